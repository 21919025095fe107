"""A whole ledger that tests may break, and what `verify` then says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, text

from memoflow.ledger import guards
from memoflow.ledger.verify import Finding, verify
from tests.conftest import BACKENDS
from tests.ledger._guarded import filled, ledger

__all__ = ["check", "ledger", "shared_ledger"]


@pytest.fixture(scope="module", params=BACKENDS)
def shared_ledger(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Connection]:
    """A whole ledger without guards or checked references, once for all tests."""
    with filled(request, tmp_path_factory) as connection:
        guards.uninstall(connection)
        if request.param == "postgresql":
            # Rows that break a reference get in only this way.
            connection.execute(text("SET LOCAL session_replication_role = replica"))
        yield connection


def check(connection: Connection, namespace: str | None = None) -> list[Finding]:
    """The findings about rows; the guards are gone on purpose."""
    return [found for found in verify(connection, namespace) if found.code != "GUARD_MISSING"]
