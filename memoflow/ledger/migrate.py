"""Bringing a database to the schema this version needs, and telling whether it is there.

A schema that is current is recognised by one read, without any lock. Otherwise the lock
comes first and the revision is read under it, so that any number of processes and threads
may start together on one fresh database.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, func, inspect, select, text
from sqlalchemy.exc import DBAPIError, OperationalError

from memoflow.errors import ConfigurationError, LedgerUnavailable, MemoflowError, SchemaOutdated
from memoflow.ledger.dialect import Trouble, forbidden, normalise_url, trouble

__all__ = [
    "HEAD",
    "REVISIONS",
    "SchemaState",
    "check",
    "parse_url",
    "require_current",
    "scripts",
    "upgrade",
]

REVISIONS: Final = ("0001", "0002", "0003", "0004")
"""Every revision, oldest first. Written down here so that a start need not import alembic."""

HEAD: Final = REVISIONS[-1]
"""The revision this version needs."""

VERSION_TABLE: Final = "memoflow_revision"
"""Not alembic's default name: an application may keep its own migrations in the same database."""

LOCK_TIMEOUT: Final = 60.0
_ADVISORY_KEY: Final = int.from_bytes(b"memoflow")

# Alembic keeps the running migration in module globals, so one process runs one at a time.
_alembic = threading.Lock()


@dataclass(frozen=True, slots=True)
class SchemaState:
    """The revision a database is at (None: not migrated) and the one this version needs.

    ``missing`` is the SQLite file, if it does not exist.
    """

    found: str | None
    needed: str
    missing: str | None = field(default=None, compare=False)

    @property
    def current(self) -> bool:
        """Whether they are the same."""
        return self.found == self.needed

    @property
    def unknown(self) -> bool:
        """Whether this version does not know the revision found."""
        return self.found is not None and self.found not in REVISIONS

    def require(self) -> None:
        """Refuse a schema that is not current.

        Raises:
            SchemaOutdated: it is at another revision, was never migrated, or there is no file.
        """
        if not self.current:
            raise SchemaOutdated(
                found=self.found, needed=self.needed, missing=self.missing, unknown=self.unknown
            )


def parse_url(url: str) -> URL:
    """A checked URL: ``sqlite:///path`` or ``postgresql+psycopg://…`` (which ``postgresql://`` is taken for).

    Raises:
        ConfigurationError: another kind of database, an SQLite database without a file, a missing
            directory, or a missing driver.
    """
    parsed = normalise_url(url)
    return _check_file(parsed) if parsed.get_backend_name() == "sqlite" else parsed


def _check_file(url: URL) -> URL:
    if url.database in {None, "", ":memory:"} or "\0" in str(url.database):
        raise ConfigurationError(
            "An SQLite ledger is a plain file and its URL has no options. Write sqlite:///path/to/file.db "
            "(four slashes for an absolute path)."
        )
    file = Path(str(url.database)).absolute()
    # Not pathlib's tests: those raise where a directory on the way may not be entered.
    if not os.path.isdir(file.parent):
        raise ConfigurationError(
            f"The SQLite ledger {url.database!r} cannot be opened: the directory {str(file.parent)!r} does "
            "not exist, or may not be entered. Create it, or correct the database URL."
        )
    if os.path.isdir(file):
        raise ConfigurationError(
            f"The SQLite ledger {url.database!r} is a directory. Name a file in the database URL."
        )
    return url


def _missing_file(url: URL) -> str | None:
    """The SQLite file, if it does not exist. One that cannot be looked at is left to the driver."""
    if url.get_backend_name() != "sqlite":
        return None
    file = os.path.abspath(str(url.database))
    try:
        os.stat(file)
    except FileNotFoundError:
        return file
    except OSError:
        pass
    return None


def upgrade(url: str, *, timeout: float = LOCK_TIMEOUT) -> str:
    """Bring a database to this version's schema, in one transaction, and return the revision reached.

    Safe to call from many processes and threads at once. A current schema is left alone without a lock.

    Args:
        url: see `parse_url`.
        timeout: seconds to wait for another process that is migrating the same database.

    Raises:
        ConfigurationError: the URL, the file, the role's rights or the schema found do not allow it.
        LedgerUnavailable: no connection, or the lock was not free in time.
    """
    with _engine(parse_url(url), timeout) as engine:
        if not _state(engine).current:
            with _alembic:
                _MIGRATE[engine.dialect.name](engine, timeout)
    return HEAD


def check(url: str) -> SchemaState:
    """The schema state of a database; changes nothing, creates no file and takes no lock.

    Raises:
        ConfigurationError: the URL or the file cannot be used.
        LedgerUnavailable: no connection.
    """
    parsed = parse_url(url)
    if missing := _missing_file(parsed):
        return SchemaState(None, HEAD, missing)
    with _engine(parsed, LOCK_TIMEOUT) as engine:
        return _state(engine)


def require_current(connection: Connection) -> None:
    """Refuse a database that is not at this version's schema.

    Raises:
        SchemaOutdated: it is at another revision, or was never migrated.
    """
    SchemaState(_found(connection), HEAD).require()


def _state(engine: Engine) -> SchemaState:
    with engine.connect() as connection:
        return SchemaState(_found(connection), HEAD)


def _found(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    rows = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE} ORDER BY version_num"))
    return ", ".join(rows.scalars()) or None


@contextmanager
def _engine(url: URL, timeout: float) -> Iterator[Engine]:
    options: dict[str, Any] = {"connect_timeout": 10}
    if url.get_backend_name() == "sqlite":
        # The driver starts no transactions of its own then, so the one begun below is the only one.
        options = {"timeout": timeout, "isolation_level": None}
    try:
        engine = create_engine(url, poolclass=NullPool, connect_args=options)
    except ModuleNotFoundError:
        raise ConfigurationError(
            "PostgreSQL needs the psycopg driver, which is not installed. Install it with "
            "`pip install 'memoflow-runtime[postgres]'`."
        ) from None
    try:
        yield engine
    except DBAPIError as error:
        raise _explain(error, url) from error
    finally:
        engine.dispose()


_ADVICE: Final = {
    "sqlite": "Check the database URL and the rights on the file and its directory.",
    "postgresql": "Check the database URL (host, port, user, password, database) and that the server runs.",
}


def _where(url: URL) -> str:
    return "" if url.host is None else f"at {url.host}:{url.port or 5432} "


def _role(url: URL) -> str:
    return "" if url.username is None else f" {url.username!r}"


def _explain(error: DBAPIError, url: URL) -> MemoflowError:
    kind = trouble(error)
    if kind is Trouble.CONFLICT:
        return LedgerUnavailable(
            "Another process held the ledger's lock for too long, so its schema was not read or changed. "
            "Wait until that process is done, then try again."
        )
    if kind is Trouble.OUTAGE:
        return LedgerUnavailable(
            f"The database {_where(url)}could not be reached, opened or written, so its schema was not read "
            f"or changed ({_code(error)}). {_ADVICE[url.get_backend_name()]}"
        )
    if forbidden(error):
        return ConfigurationError(
            f"The database role{_role(url)} may not read or change the ledger's schema. Run `memoflow db "
            "upgrade` with the role that owns it; a login that runs activities needs `GRANT memoflow_worker` "
            "(`memoflow db roles`)."
        )
    return ConfigurationError(
        f"The ledger's schema could not be read or brought to revision {HEAD}; nothing was changed "
        f"({_code(error)}). Check that the database is a ledger or empty, and that it may be written."
    )


def _code(error: DBAPIError) -> str:
    cause = error.orig
    code = getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None)
    return type(cause).__name__ if code is None else f"{type(cause).__name__} {code}"


def _migrate_sqlite(engine: Engine, timeout: float) -> None:
    with engine.connect() as connection:
        _switch_to_wal(connection, timeout)
        # The lock is the transaction: whoever waited here reads the revision its peer committed.
        connection.exec_driver_sql("BEGIN EXCLUSIVE")
        _run_alembic(connection)
        connection.commit()


def _switch_to_wal(connection: Connection, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while True:
        try:
            # Reading first: on a ledger in use the switch is done, and asking again could only wait.
            if connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() != "wal":
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            return
        except OperationalError as error:
            # SQLite does not wait for a peer's lock here, whatever the busy timeout says.
            if trouble(error) is not Trouble.CONFLICT or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _migrate_postgresql(engine: Engine, timeout: float) -> None:
    with _advisory_lock(engine, timeout), engine.begin() as connection:
        _run_alembic(connection)


@contextmanager
def _advisory_lock(engine: Engine, timeout: float) -> Iterator[None]:
    """Hold the migration lock on a connection of its own, in a transaction, which poolers keep."""
    with engine.begin() as connection:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {max(1, round(timeout * 1000))}")
        connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
        connection.execute(select(func.pg_advisory_xact_lock(_ADVISORY_KEY)))
        yield


_MIGRATE: Final = {"sqlite": _migrate_sqlite, "postgresql": _migrate_postgresql}


def _run_alembic(connection: Connection) -> None:
    state = SchemaState(_found(connection), HEAD)
    if state.current:
        return
    if state.unknown:
        state.require()
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(scripts()).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, HEAD)


def scripts() -> Path:
    """The directory of the migration scripts: inside the installed package, else beside it in a checkout.

    Raises:
        ConfigurationError: there is none; the installation is not complete.
    """
    package = Path(__file__).resolve().parents[1]
    for directory in (package / "migrations", package.parent / "migrations"):
        if (directory / "env.py").is_file():
            return directory
    raise ConfigurationError("The migration scripts are missing. Install memoflow-runtime again.")
