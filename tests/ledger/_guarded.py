"""A guarded ledger that statements are tried on, and what refuses them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from memoflow.ledger import guards
from tests.conftest import BACKENDS
from tests.ledger._rows import whole_ledger
from tests.ledger._support import connect, module_database, taken_back

__all__ = ["filled", "ledger", "refusal", "shared_ledger"]


@contextmanager
def filled(request: pytest.FixtureRequest, paths: pytest.TempPathFactory) -> Iterator[Connection]:
    """A ledger with rows in every table, for a fixture with parameters of `BACKENDS` that all tests share."""
    with module_database(request, paths) as url, connect(url) as connection:
        whole_ledger(connection)
        yield connection
        connection.rollback()


@pytest.fixture(scope="module", params=BACKENDS)
def shared_ledger(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Connection]:
    """A guarded ledger with rows in every table, once for all tests."""
    with filled(request, tmp_path_factory) as connection:
        yield connection


@pytest.fixture
def ledger(shared_ledger: Connection) -> Iterator[Connection]:
    """The ledger that the tests of a module share; what a test did to it is taken back."""
    with taken_back(shared_ledger):
        yield shared_ledger


def refusal(connection: Connection, statement: str) -> str | None:
    """The guard that refuses a statement, or None if it went through and changed something."""
    connection.exec_driver_sql("SAVEPOINT attempt")
    try:
        changed = connection.execute(text(statement)).rowcount
    except IntegrityError as error:
        connection.exec_driver_sql("ROLLBACK TO SAVEPOINT attempt")
        return guards.violated(error) or f"no guard, but {error.orig}"
    assert changed != 0, statement
    return None
