"""One database: its engine, its clock, and plain reads beside the writer."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Connection, PoolProxiedConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from memoflow.errors import LedgerUnavailable
from memoflow.ledger.dialect import (
    DATABASE_ERRORS,
    Trouble,
    begin_snapshot,
    database_now,
    make_engine,
    trouble,
)
from memoflow.ledger.migrate import check, parse_url

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
        self.url = parse_url(url)
        # Before there is an engine: connecting would create an SQLite file that does not exist.
        check(url).require()
        self.clock = clock
        self.engine = make_engine(self.url, pool_size=pool_size)
        # What is written is found by keys; what is read may be a report of everything.
        self.writing = self.engine if self.is_sqlite else make_engine(self.url, by_key=True)
        self._pool_size = pool_size
        self._parked: list[PoolProxiedConnection] = []
        _live.add(self)

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
            except DATABASE_ERRORS as error:
                # A pooled connection may have died since its last use; the next one is new.
                if last_try or not getattr(error, "connection_invalidated", False):
                    if (unread := _unread(error)) is None:
                        raise
                    raise unread from error
        raise AssertionError("unreachable")

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection in one read transaction, for rows that are read one by one. Not tried again.

        All its queries see the same moment, while others go on writing.

        Raises:
            LedgerUnavailable: the database cannot be reached.
        """
        try:
            with self.engine.connect() as connection, connection.begin():
                begin_snapshot(connection)
                yield connection
        except DATABASE_ERRORS as error:
            if (unread := _unread(error)) is None:
                raise
            raise unread from error

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A connection in a write transaction that commits at the end of the block."""
        with self.writing.connect() as connection:
            connection = connection.execution_options(memoflow_write=True)
            with connection.begin():
                yield connection

    def close(self) -> None:
        """Close all pooled connections."""
        _live.discard(self)
        self.engine.dispose()
        self.writing.dispose()

    # Forking

    def before_fork(self) -> None:
        """Wait until no SQLite connection is in use, close all, and let nobody open one.

        SQLite keeps its locks per process and would take those of an inherited connection for held: the
        parent may then delete the log that the child writes to.
        """
        if self.is_sqlite:
            try:
                while len(self._parked) < self._pool_size:
                    self._parked.append(self.engine.raw_connection())
                    self._parked[-1].driver_connection.close()  # type: ignore[union-attr]
            except self.engine.dialect.loaded_dbapi.Error:
                # Idle connections are handed out first: only a new one was refused, and no more are needed.
                log.debug("the ledger of this process cannot be opened any more")
            except PoolTimeout:
                log.warning("forking while the ledger is in use; let the child open a database of its own")

    def after_fork_in_parent(self) -> None:
        """Go on as before."""
        while self._parked:
            self._parked.pop().invalidate()

    def after_fork_in_child(self) -> None:
        """Start with no connection: the parent's are not ours."""
        # Not returned to their pool: a thread that is not here any more may hold its lock.
        _inherited.extend(self._parked)
        self._parked = []
        self.engine.dispose(close=False)
        self.writing.dispose(close=False)


def _unread(error: DBAPIError | PoolTimeout) -> LedgerUnavailable | None:
    """What a reader is told if the database is away, and not at odds with what it was asked."""
    if trouble(error) not in (Trouble.OUTAGE, Trouble.CONFLICT):
        return None
    cause = type(getattr(error, "orig", error)).__name__
    return LedgerUnavailable(f"The ledger could not be read ({cause}). Check the database and try again.")


log = logging.getLogger("memoflow.ledger")
_live: weakref.WeakSet[Database] = weakref.WeakSet()
_inherited: list[PoolProxiedConnection] = []
_forking = threading.Lock()


def _before_fork() -> None:
    _forking.acquire()
    for database in list(_live):
        database.before_fork()


def _after_fork_in_parent() -> None:
    for database in list(_live):
        database.after_fork_in_parent()
    _forking.release()


def _after_fork_in_child() -> None:
    global _forking
    _forking = threading.Lock()
    for database in list(_live):
        database.after_fork_in_child()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
