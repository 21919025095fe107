"""One database: its engine, its clock, and plain reads beside the writer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from memoflow.errors import LedgerUnavailable
from memoflow.ledger.dialect import Trouble, database_now, make_engine, normalise_url, trouble
from memoflow.ledger.migrate import require_current

__all__ = ["Clock", "Database"]

T = TypeVar("T")
Clock = Callable[[Connection], int]


class Database:
    """An open ledger database with a current schema.

    Args:
        url: ``sqlite:///file.db`` or ``postgresql+psycopg://…``.
        clock: UTC microseconds for a connection; the database's own clock if not given.

    Raises:
        ConfigurationError: the URL or driver cannot be used.
        SchemaOutdated: the schema is not the one this version needs.
        LedgerUnavailable: the database cannot be reached.
    """

    def __init__(self, url: str, *, clock: Clock = database_now, pool_size: int = 5) -> None:
        self.url = normalise_url(url)
        self.clock = clock
        self.engine = make_engine(self.url, pool_size=pool_size)
        self.read(require_current)

    @property
    def is_sqlite(self) -> bool:
        """Whether this is the embedded database."""
        return self.engine.dialect.name == "sqlite"

    def read(self, query: Callable[[Connection], T]) -> T:
        """Run a query in one read transaction.

        Raises:
            LedgerUnavailable: the database cannot be reached.
        """
        for last_try in (False, True):
            try:
                with self.engine.connect() as connection, connection.begin():
                    return query(connection)
            except DBAPIError as error:
                # A pooled connection may have died since its last use; the next one is new.
                if last_try or not error.connection_invalidated:
                    if trouble(error) not in (Trouble.OUTAGE, Trouble.CONFLICT):
                        raise
                    raise LedgerUnavailable(
                        f"The ledger could not be read ({type(error.orig).__name__}). "
                        "Check the database and try again."
                    ) from error
        raise AssertionError("unreachable")

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A connection in a write transaction that commits at the end of the block."""
        with self.engine.connect() as connection:
            connection = connection.execution_options(memoflow_write=True)
            with connection.begin():
                yield connection

    def close(self) -> None:
        """Close all pooled connections."""
        self.engine.dispose()
