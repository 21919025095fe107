"""Plain connections for tests that look at a database past the package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, create_engine

from memoflow.ledger.migrate import parse_url
from tests._databases import PostgresServer

__all__ = ["connect", "module_database", "taken_back"]


@contextmanager
def connect(url: str) -> Iterator[Connection]:
    """A transaction on a database, with the driver's own defaults and without the package's settings."""
    engine = create_engine(parse_url(url))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def module_database(request: pytest.FixtureRequest, paths: pytest.TempPathFactory) -> Iterator[str]:
    """A migrated database for a fixture with parameters of `BACKENDS` that lives longer than one test."""
    if request.param == "sqlite":
        yield request.getfixturevalue("sqlite_files").create(paths.mktemp("module"))
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.create()
    yield url
    server.drop(url)


@contextmanager
def taken_back(connection: Connection) -> Iterator[Connection]:
    """Undo what happens in the block, errors of the database included."""
    connection.exec_driver_sql("SAVEPOINT taken_back")
    try:
        yield connection
    finally:
        connection.exec_driver_sql("ROLLBACK TO SAVEPOINT taken_back")
        connection.exec_driver_sql("RELEASE SAVEPOINT taken_back")
