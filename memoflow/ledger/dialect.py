"""Where SQLite and PostgreSQL differ: connecting, beginning, the clock, and what an error means."""

from __future__ import annotations

import sqlite3
import time
from enum import Enum
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from memoflow.errors import ConfigurationError
from memoflow.ledger.statements import Sets

__all__ = [
    "DATABASE_ERRORS",
    "Trouble",
    "begin_snapshot",
    "database_now",
    "forbidden",
    "make_engine",
    "normalise_url",
    "trouble",
]

DATABASE_ERRORS = (DBAPIError, PoolTimeout)
"""What `trouble` can classify. The second says that all connections are in use, and stay so."""

# How long one statement waits for somebody else's lock, before the batch is tried anew.
BUSY_TIMEOUT_MS = 5_000
CONNECT_TIMEOUT_S = 10
_SQLITE_RETRY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_SQLITE_OUTAGE = {
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
}
_SQLITE_CLASH = {sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY}
_PG_RETRY = {"40001", "40P01", "55P03", "57014"}
_PG_UNIQUE = "23505"
# Connection trouble, out of resources, a server that is going down or coming up, or that became a standby.
_PG_OUTAGE = ("08", "53", "57P", "25006")


class Trouble(Enum):
    """What a database error says about the batch that met it."""

    CONFLICT = "conflict"
    """Rolled back because of others; the same batch may succeed at once."""
    CLASH = "clash"
    """A unique key was taken by another process meanwhile; looking again shows its row."""
    OUTAGE = "outage"
    """The database is away or full, and a commit may or may not have arrived."""
    FAULT = "fault"
    """The statement itself is wrong or breaks a constraint."""


def trouble(error: DBAPIError | PoolTimeout) -> Trouble:
    """Classify a database error by its code, never by its text."""
    if isinstance(error, PoolTimeout):
        return Trouble.OUTAGE
    original = error.orig
    if isinstance(original, sqlite3.Error):
        extended = getattr(original, "sqlite_errorcode", 0)
        code = extended & 0xFF
        if code in _SQLITE_RETRY:
            return Trouble.CONFLICT
        if extended in _SQLITE_CLASH:
            return Trouble.CLASH
        return Trouble.OUTAGE if code in _SQLITE_OUTAGE else Trouble.FAULT
    state: str | None = getattr(original, "sqlstate", None)
    if state in _PG_RETRY:
        return Trouble.CONFLICT
    if state == _PG_UNIQUE:
        return Trouble.CLASH
    if error.connection_invalidated or (state is not None and state.startswith(_PG_OUTAGE)):
        return Trouble.OUTAGE
    # A driver error without a state is not the server's answer.
    lost = state is None and type(original).__name__ in ("OperationalError", "InterfaceError")
    return Trouble.OUTAGE if lost else Trouble.FAULT


def forbidden(error: BaseException) -> bool:
    """Whether an error says that the database role may not do this."""
    return getattr(getattr(error, "orig", None), "sqlstate", None) == "42501"


def normalise_url(url: str) -> URL:
    """The database URL with its driver filled in.

    Raises:
        ConfigurationError: not a URL, neither SQLite nor PostgreSQL, or more than the file of an SQLite one.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # The second is what a port that is no number leads to.
        raise ConfigurationError(
            "The database URL cannot be parsed. Use sqlite:///file.db or postgresql+psycopg://user@host/name."
        ) from None
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite", "postgresql+psycopg"):
        raise ConfigurationError(
            f"Databases of kind {parsed.drivername!r} are not supported; use sqlite or postgresql+psycopg."
        )
    # What follows a question mark would be dropped without a word, and another file opened.
    if parsed.drivername.startswith("sqlite") and ("?" in url or parsed.host or parsed.username):
        raise ConfigurationError(
            "An SQLite ledger is a plain file and its URL has no options and no host. Write "
            "sqlite:///path/to/file.db (four slashes for an absolute path), and a '?' in its name as %3F."
        )
    return parsed


def make_engine(url: URL, *, pool_size: int = 5, by_key: bool = False) -> Engine:
    """An engine whose transactions begin as the ledger needs them: immediate on SQLite, for writers.

    Args:
        by_key: for what only finds rows by their keys, with the same few statements again and again.

    Raises:
        ConfigurationError: the driver is missing, or the SQLite database is in memory (no other
            connection could see it).
    """
    if url.drivername.startswith("sqlite"):
        if url.database in (None, "", ":memory:"):
            raise ConfigurationError("An in-memory SQLite database is not durable. Use sqlite:///file.db.")
        return _sqlite_engine(url, pool_size)
    try:
        return _postgresql_engine(url, pool_size, by_key)
    except ModuleNotFoundError:
        raise ConfigurationError(
            "PostgreSQL needs the psycopg driver: pip install 'memoflow-runtime[postgres]'."
        ) from None


_BY_KEY: Final = ("SET enable_seqscan = off", "SET plan_cache_mode = force_generic_plan")
"""Plans are made once and kept, and the first are made while a ledger is empty. Left to itself, the server
reads every row of a table for each batch until it has gathered statistics, or makes a new plan each time."""


def _postgresql_engine(url: URL, pool_size: int, by_key: bool) -> Engine:
    # An unreachable address would be tried for minutes.
    limit = {} if "connect_timeout" in url.query else {"connect_timeout": CONNECT_TIMEOUT_S}
    engine = create_engine(url, pool_size=pool_size, max_overflow=0, hide_parameters=True, connect_args=limit)

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        # The server would wait for ever. A role or a URL that sets a limit of its own keeps it.
        connection.execute(
            "SELECT set_config('lock_timeout', %s, false) WHERE current_setting('lock_timeout') = '0'",
            (str(BUSY_TIMEOUT_MS),),
        )
        # What is told as durable has to be, whatever the server or role is set to.
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) "
            "WHERE current_setting('synchronous_commit') = 'off'"
        )
        # A snapshot taken before a lock was waited for shows limits that have been changed meanwhile.
        connection.execute(
            "SELECT set_config('default_transaction_isolation', 'read committed', false) "
            "WHERE current_setting('default_transaction_isolation') = 'repeatable read'"
        )
        for statement in _BY_KEY if by_key else ():
            connection.execute(statement)
        connection.commit()

    return engine


def _sqlite_engine(url: URL, pool_size: int) -> Engine:
    engine = create_engine(url, pool_size=pool_size, max_overflow=0, hide_parameters=True)

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: Any) -> None:
        # The driver's own transaction handling begins too late and too weakly.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        # Otherwise REPLACE would pass by the guards against deleting.
        cursor.execute("PRAGMA recursive_triggers = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        write = connection.get_execution_options().get("memoflow_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def begin_snapshot(connection: Connection) -> None:
    """Make what follows one snapshot, unless the caller has begun a transaction: then it is the caller's."""
    driver: Any = connection.connection.dbapi_connection
    assert driver is not None
    if connection.dialect.name == "sqlite":
        if not driver.in_transaction:
            connection.exec_driver_sql("BEGIN")
    elif driver.info.transaction_status == driver.info.transaction_status.IDLE:
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


_PG_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


def database_now(connection: Connection) -> int:
    """UTC microseconds by the database's clock. SQLite has none but this machine's."""
    if connection.dialect.name == "sqlite":
        return time.time_ns() // 1000
    return int(Sets(connection).value(_PG_NOW))
