"""Where the databases differ: URLs, connections, clocks, and what an error means."""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from memoflow.errors import ConfigurationError
from memoflow.ledger import schema as s
from memoflow.ledger.dialect import Trouble, database_now, make_engine, normalise_url, trouble
from memoflow.ledger.migrate import upgrade

# What an error means


def sqlite_error(code: int) -> DBAPIError:
    """An error as it comes from SQLite."""
    error = sqlite3.OperationalError("injected")
    error.sqlite_errorcode = code
    return DBAPIError("statement", None, error)


def postgresql_error(state: str) -> DBAPIError:
    """An error as it comes from a PostgreSQL server."""
    return DBAPIError("statement", None, psycopg.errors.lookup(state)("injected"))


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (sqlite3.SQLITE_BUSY, Trouble.CONFLICT),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, Trouble.CONFLICT),
        (sqlite3.SQLITE_BUSY_RECOVERY, Trouble.CONFLICT),
        (sqlite3.SQLITE_LOCKED, Trouble.CONFLICT),
        (sqlite3.SQLITE_LOCKED_SHAREDCACHE, Trouble.CONFLICT),
        (sqlite3.SQLITE_PROTOCOL, Trouble.CONFLICT),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, Trouble.CLASH),
        (sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, Trouble.CLASH),
        (sqlite3.SQLITE_IOERR, Trouble.OUTAGE),
        (sqlite3.SQLITE_IOERR_FSYNC, Trouble.OUTAGE),
        (sqlite3.SQLITE_FULL, Trouble.OUTAGE),
        (sqlite3.SQLITE_CANTOPEN, Trouble.OUTAGE),
        (sqlite3.SQLITE_READONLY, Trouble.OUTAGE),
        (sqlite3.SQLITE_READONLY_DBMOVED, Trouble.OUTAGE),
        (sqlite3.SQLITE_CONSTRAINT_CHECK, Trouble.FAULT),
        (sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY, Trouble.FAULT),
        (sqlite3.SQLITE_CONSTRAINT_NOTNULL, Trouble.FAULT),
        (sqlite3.SQLITE_CONSTRAINT_TRIGGER, Trouble.FAULT),
        (sqlite3.SQLITE_ERROR, Trouble.FAULT),
        (sqlite3.SQLITE_CORRUPT, Trouble.FAULT),
        (sqlite3.SQLITE_NOTADB, Trouble.FAULT),
        (sqlite3.SQLITE_AUTH, Trouble.FAULT),
    ],
)
def test_what_a_code_of_sqlite_means(code: int, meaning: Trouble) -> None:
    """Extended codes mean what their kind means; unique keys are told from other constraints."""
    assert trouble(sqlite_error(code)) is meaning


@pytest.mark.parametrize(
    ("state", "meaning"),
    [
        ("40001", Trouble.CONFLICT),  # serialization_failure
        ("40P01", Trouble.CONFLICT),  # deadlock_detected
        ("55P03", Trouble.CONFLICT),  # lock_not_available
        ("57014", Trouble.CONFLICT),  # query_canceled, by a statement timeout or by hand
        ("23505", Trouble.CLASH),  # unique_violation
        ("08006", Trouble.OUTAGE),  # connection_failure
        ("08007", Trouble.OUTAGE),  # transaction_resolution_unknown
        ("53100", Trouble.OUTAGE),  # disk_full
        ("53300", Trouble.OUTAGE),  # too_many_connections
        ("57P01", Trouble.OUTAGE),  # admin_shutdown
        ("57P03", Trouble.OUTAGE),  # cannot_connect_now
        ("57P05", Trouble.OUTAGE),  # idle_session_timeout
        ("25006", Trouble.OUTAGE),  # read_only_sql_transaction: the server became a standby
        ("23000", Trouble.FAULT),  # what a guard raises
        ("23502", Trouble.FAULT),  # not_null_violation
        ("23503", Trouble.FAULT),  # foreign_key_violation
        ("23514", Trouble.FAULT),  # check_violation
        ("22003", Trouble.FAULT),  # numeric_value_out_of_range
        ("42501", Trouble.FAULT),  # insufficient_privilege
        ("42P01", Trouble.FAULT),  # undefined_table
    ],
)
def test_what_a_state_of_postgresql_means(state: str, meaning: Trouble) -> None:
    """By the server's own state, never by the text, which is translated."""
    assert trouble(postgresql_error(state)) is meaning


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (psycopg.OperationalError("server closed the connection unexpectedly"), Trouble.OUTAGE),
        (psycopg.InterfaceError("the connection is closed"), Trouble.OUTAGE),
        (psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes"), Trouble.FAULT),
        (psycopg.ProgrammingError("can't adapt type 'object'"), Trouble.FAULT),
    ],
)
def test_what_an_error_of_the_driver_alone_means(error: Exception, meaning: Trouble) -> None:
    """Without a state it is no answer of the server: either the connection, or the values."""
    assert trouble(DBAPIError("statement", None, error)) is meaning


def test_a_dead_connection_is_an_outage_whatever_it_says() -> None:
    """What the server said last does not matter when it hung up."""
    error = DBAPIError("statement", None, psycopg.DatabaseError("odd"), connection_invalidated=True)
    assert trouble(error) is Trouble.OUTAGE


def test_no_free_connection_is_an_outage() -> None:
    """All in use for too long: later there may be one."""
    assert trouble(PoolTimeout()) is Trouble.OUTAGE


# URLs


@pytest.mark.parametrize(
    ("given", "driver"),
    [
        ("sqlite:///file.db", "sqlite"),
        ("sqlite+pysqlite:///file.db", "sqlite+pysqlite"),
        ("postgresql://host/name", "postgresql+psycopg"),
        ("postgres://host/name", "postgresql+psycopg"),
        ("postgresql+psycopg://host/name", "postgresql+psycopg"),
    ],
)
def test_the_driver_is_filled_in(given: str, driver: str) -> None:
    """Both spellings of PostgreSQL get the one driver there is."""
    assert normalise_url(given).drivername == driver


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://host/name", "mysql"),
        ("postgresql+psycopg2://host/name", "psycopg2"),
        ("postgresql+asyncpg://host/name", "asyncpg"),
        ("not a url", "cannot be parsed"),
        ("", "cannot be parsed"),
    ],
)
def test_other_databases_are_refused(url: str, says: str) -> None:
    """A refusal says what would do, and never repeats a whole URL: it may hold a password."""
    with pytest.raises(ConfigurationError, match=says) as refusal:
        normalise_url(url)
    assert "sqlite" in str(refusal.value)


def test_a_password_is_not_repeated() -> None:
    """A URL that cannot be used may still hold a secret."""
    for url in ("mysql://user:hunter2@host/name", "postgresql://user:hunter2@host:port/name"):
        with pytest.raises(ConfigurationError) as refusal:
            normalise_url(url)
        assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    "url", ["sqlite:///a?b.db", "sqlite:///a.db?", "sqlite:///a.db?mode=ro", "sqlite://host/a.db"]
)
def test_an_sqlite_url_is_a_file_and_nothing_else(url: str) -> None:
    """What would be dropped without a word is refused: another file than the one meant would be opened."""
    with pytest.raises(ConfigurationError, match=r"no options and no host.*%3F"):
        normalise_url(url)


def test_a_file_name_may_have_a_question_mark(tmp_path: Path) -> None:
    """Written as every URL has it; then it is that very file."""
    upgrade(f"sqlite:///{tmp_path}/a%3Fb.db")
    assert {path.name for path in tmp_path.iterdir()} >= {"a?b.db"}
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_database_in_memory_is_refused(url: str) -> None:
    """It would be another one for every connection, and durable for none."""
    with pytest.raises(ConfigurationError, match="not durable"):
        make_engine(normalise_url(url))


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL is an extra of the package."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigurationError, match=r"memoflow-runtime\[postgres\]"):
        make_engine(normalise_url("postgresql://host/name"))


# Connections


@contextmanager
def engine_on(url: str) -> Iterator[Engine]:
    """An engine for as long as the context lasts."""
    engine = make_engine(normalise_url(url))
    try:
        yield engine
    finally:
        engine.dispose()


def pragma(connection: Connection, name: str) -> Any:
    """The value of a setting of SQLite."""
    return connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()


def test_sqlite_is_durable_and_keeps_its_rules(sqlite_url: str) -> None:
    """Every commit is on disk, every foreign key is checked, and readers are not blocked."""
    with engine_on(sqlite_url) as engine, engine.connect() as connection:
        assert pragma(connection, "synchronous") == 2
        assert pragma(connection, "journal_mode") == "wal"
        assert pragma(connection, "foreign_keys") == 1
        assert pragma(connection, "busy_timeout") == 5_000


def test_sqlite_takes_the_write_lock_at_once_for_writers_only(sqlite_url: str) -> None:
    """A writer that waited for its first write could find that what it had read is gone."""
    with engine_on(sqlite_url) as engine, engine.connect() as reader, engine.connect() as writer:
        reader.execute(text("SELECT 1"))
        writer = writer.execution_options(memoflow_write=True)
        writer.execute(text("SELECT 1"))
        assert reader.execute(text("SELECT count(*) FROM writers")).scalar_one() == 0
        rival = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), timeout=0, isolation_level=None)
        try:
            with pytest.raises(sqlite3.OperationalError) as busy:
                rival.execute("BEGIN IMMEDIATE")
            assert busy.value.sqlite_errorcode == sqlite3.SQLITE_BUSY
            writer.rollback()
            rival.execute("BEGIN IMMEDIATE")
        finally:
            rival.close()


@pytest.mark.postgres
def test_postgresql_does_not_wait_for_a_lock_for_ever(postgres_url: str) -> None:
    """A limit that the role or the URL sets is left as it is."""
    for url, limit in ((postgres_url, "5s"), (_with_options(postgres_url, "-c lock_timeout=123"), "123ms")):
        with engine_on(url) as engine, engine.connect() as connection:
            assert connection.execute(text("SHOW lock_timeout")).scalar_one() == limit
            connection.rollback()
            assert connection.execute(text("SHOW lock_timeout")).scalar_one() == limit


@pytest.mark.postgres
@pytest.mark.parametrize(("given", "used"), [("off", "on"), ("remote_write", "remote_write")])
def test_postgresql_commits_are_durable(postgres_url: str, given: str, used: str) -> None:
    """Whatever the server or role is set to, a commit that was told has been written."""
    url = _with_options(postgres_url, f"-c synchronous_commit={given}")
    with engine_on(url) as engine, engine.connect() as connection:
        assert connection.execute(text("SHOW synchronous_commit")).scalar_one() == used


@pytest.mark.postgres
def test_postgresql_does_not_try_to_connect_for_ever(postgres_url: str) -> None:
    """A limit in the URL is left as it is."""
    for url, limit in ((postgres_url, "10"), (_with_query(postgres_url, "connect_timeout=7"), "7")):
        with engine_on(url) as engine, engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            assert driver.info.get_parameters()["connect_timeout"] == limit


def _with_query(url: str, query: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{query}"


def _with_options(url: str, options: str) -> str:
    return normalise_url(url).update_query_dict({"options": options}).render_as_string(hide_password=False)


def test_errors_do_not_repeat_values(database_url: str) -> None:
    """An exception of the database goes to logs; the values of a statement do not."""
    with engine_on(database_url) as engine, engine.connect() as connection:
        values = {"id": "SECRET-MARKER", "batches": None, "started_at": 0}
        with pytest.raises(IntegrityError) as broken:
            connection.execute(s.writers.insert(), values)
        assert "[SQL parameters hidden" in str(broken.value)


# The clock


def test_the_clock_is_utc_microseconds(database_url: str) -> None:
    """Both databases count alike, and here both run on this machine."""
    with engine_on(database_url) as engine, engine.connect() as connection:
        before = time.time_ns() // 1000
        now = database_now(connection)
        after = time.time_ns() // 1000
        assert isinstance(now, int)
        assert before - 1_000_000 <= now <= after + 1_000_000


@pytest.mark.postgres
@pytest.mark.parametrize("zone", ["UTC", "Pacific/Auckland", "America/St_Johns"])
def test_the_clock_of_a_server_does_not_depend_on_its_zone(postgres_url: str, zone: str) -> None:
    """Nor does it stand still for the length of a transaction, as a server's now() does."""
    with engine_on(postgres_url) as engine, engine.connect() as connection:
        connection.execute(text(f"SET TIME ZONE '{zone}'"))
        first = database_now(connection)
        connection.execute(text("SELECT pg_sleep(0.002)"))
        second = database_now(connection)
        assert first < second
        assert abs(first - time.time_ns() // 1000) < 10_000_000


def test_a_foreign_key_is_kept(database_url: str) -> None:
    """A row that belongs to nothing is refused by the database itself."""
    with engine_on(database_url) as engine, engine.connect() as connection:
        row = {"id": "a/1", "activity_id": "nobody", "number": 1, "worker": "w", "state": "RUNNING"}
        with pytest.raises((IntegrityError, OperationalError)):
            connection.execute(s.attempts.insert(), {**row, "claimed_at": 0})


def test_the_file_is_where_the_url_says(sqlite_url: str) -> None:
    """Nothing else is created beside it but SQLite's own files."""
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    with engine_on(sqlite_url) as engine, engine.connect() as connection:
        connection.execute(text("SELECT 1"))
    assert {found.name for found in path.parent.iterdir()} <= {
        path.name,
        f"{path.name}-wal",
        f"{path.name}-shm",
    }
