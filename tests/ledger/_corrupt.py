"""A whole ledger that tests may break, and what `verify` then says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, text

from memoflow.ledger import guards
from memoflow.ledger.verify import Finding, verify
from tests.conftest import BACKENDS
from tests.ledger._rows import whole_ledger
from tests.ledger._support import connect, module_database, taken_back

__all__ = ["check", "ledger", "shared_ledger"]


@pytest.fixture(scope="module", params=BACKENDS)
def shared_ledger(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Connection]:
    """A whole ledger without guards or checked references, once for all tests."""
    with module_database(request, tmp_path_factory) as url, connect(url) as connection:
        whole_ledger(connection)
        guards.uninstall(connection)
        if request.param == "postgresql":
            # Rows that break a reference get in only this way.
            connection.execute(text("SET LOCAL session_replication_role = replica"))
        yield connection
        connection.rollback()


@pytest.fixture
def ledger(shared_ledger: Connection) -> Iterator[Connection]:
    """A whole ledger to be corrupted; what a test did to it is taken back."""
    with taken_back(shared_ledger):
        yield shared_ledger


def check(connection: Connection, namespace: str | None = None) -> list[Finding]:
    """The findings about rows; the guards are gone on purpose."""
    return [found for found in verify(connection, namespace) if found.code != "GUARD_MISSING"]
