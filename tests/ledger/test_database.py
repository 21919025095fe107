"""Opening a ledger's database, reading from it, and writing to it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, func, insert, select, text
from sqlalchemy.exc import DBAPIError

from memoflow.errors import ConfigurationError, InvalidBudget, LedgerUnavailable, SchemaOutdated
from memoflow.ledger import migrate
from memoflow.ledger import schema as s
from memoflow.ledger.database import Database
from tests.ledger._notes import Line, driver_connection
from tests.ledger._postgres import wait_until_alone
from tests.ledger._support import connect


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """An open database of each kind."""
    opened = Database(database_url)
    yield opened
    opened.close()


def add_writer(connection: Connection, id: str) -> None:
    """Write a row."""
    connection.execute(s.writers.insert().values(id=id, batches=0, started_at=0))


def writers(connection: Connection) -> list[str]:
    """The ids of all rows."""
    return list(connection.scalars(select(s.writers.c.id).order_by(s.writers.c.id)))


# Opening


def test_a_current_database_opens(database: Database, database_url: str) -> None:
    """And says which kind it is."""
    assert database.is_sqlite == database_url.startswith("sqlite")
    assert database.read(writers) == []


def test_a_database_that_was_never_migrated_is_refused(empty_database_url: str) -> None:
    """The refusal names the command that helps."""
    with pytest.raises(SchemaOutdated, match="memoflow db upgrade") as refusal:
        Database(empty_database_url)
    assert (refusal.value.found, refusal.value.needed) == (None, migrate.HEAD)


def test_a_database_of_another_version_is_refused(database_url: str) -> None:
    """Neither an older nor a newer schema is written to."""
    with connect(database_url) as connection:
        connection.execute(text(f"UPDATE {migrate.VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(SchemaOutdated, match="does not know") as refusal:
        Database(database_url)
    assert refusal.value.found == "9999"


def test_a_file_that_does_not_exist_is_not_created(empty_sqlite_url: str) -> None:
    """A mistyped path leaves no empty database behind."""
    path = empty_sqlite_url.removeprefix("sqlite:///")
    with pytest.raises(SchemaOutdated) as refusal:
        Database(empty_sqlite_url)
    assert refusal.value.missing == path
    assert not Path(path).exists()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """Whatever it is, it is left as it was."""
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but longer than a header of one would be " * 10)
    with pytest.raises(ConfigurationError):
        Database(f"sqlite:///{path}")
    assert path.read_text().startswith("not a database")


@pytest.mark.parametrize(
    "url",
    ["sqlite://", "sqlite:///:memory:", "sqlite:///file:memo?mode=memory&uri=true", "mysql://host/name"],
)
def test_what_cannot_be_a_ledger_is_refused(url: str) -> None:
    """Databases in memory, of other kinds, or with options that would change what the ledger relies on."""
    with pytest.raises(ConfigurationError):
        Database(url)


@pytest.mark.postgres
def test_a_server_that_cannot_be_reached_is_unavailable(tmp_path: Path) -> None:
    """The refusal does not repeat the password."""
    with pytest.raises(LedgerUnavailable) as refusal:
        Database(f"postgresql://user:hunter2@/name?host={tmp_path}")
    assert "hunter2" not in str(refusal.value)


@pytest.mark.postgres
def test_a_refused_database_leaves_no_connection(empty_postgres_url: str) -> None:
    """Whoever tries again and again does not use up the server's connections."""
    for _ in range(3):
        with pytest.raises(SchemaOutdated):
            Database(empty_postgres_url)
    wait_until_alone(empty_postgres_url)


def test_the_clock_is_the_database_s_own_unless_another_is_given(database_url: str) -> None:
    """Tests may bring a clock; it is asked with a connection, as the real one is."""
    database = Database(database_url, clock=lambda connection: 42 if connection.in_transaction() else 0)
    real = Database(database_url)
    try:
        assert database.read(database.clock) == 42
        assert real.read(real.clock) > 1_700_000_000_000_000
    finally:
        database.close()
        real.close()


# Reading


def test_a_reader_does_not_wait_for_a_writer(database: Database) -> None:
    """It sees what was committed before, while a batch is being written."""
    with database.write() as connection:
        add_writer(connection, "a")
        assert database.read(writers) == []
    assert database.read(writers) == ["a"]


def test_all_queries_of_one_reading_see_one_moment(database: Database) -> None:
    """What others commit meanwhile is not half there."""
    with database.reading() as connection:
        before = connection.scalar(select(func.count()).select_from(s.writers))
        with database.write() as other:
            other.execute(insert(s.writers).values(id="w", started_at=1, batches=0))
        assert connection.scalar(select(func.count()).select_from(s.writers)) == before
    with database.reading() as connection:
        assert connection.scalar(select(func.count()).select_from(s.writers)) == before + 1


def test_a_reader_cannot_write_by_mistake_for_long(database: Database) -> None:
    """What a query raises is raised, and whatever it did is undone."""

    def query(connection: Connection) -> None:
        add_writer(connection, "a")
        raise InvalidBudget("No.")

    with pytest.raises(InvalidBudget):
        database.read(query)
    assert database.read(writers) == []


def test_a_wrong_query_is_not_called_an_outage(database: Database) -> None:
    """A mistake in a statement is raised as what it is, once."""
    calls = []

    def query(connection: Connection) -> None:
        calls.append(1)
        connection.execute(text("SELECT nonsense FROM nowhere"))

    with pytest.raises(DBAPIError):
        database.read(query)
    assert len(calls) == 1


@pytest.mark.parametrize("kind", ["outage", "conflict"])
def test_a_database_that_cannot_be_read_is_unavailable(database: Database, kind: str) -> None:
    """Callers get one error for all that time may cure, without the statement in it."""
    error = getattr(Line(database), kind)

    def query(connection: Connection) -> None:
        raise DBAPIError("SELECT secret FROM somewhere", None, error)

    with pytest.raises(LedgerUnavailable, match="could not be read") as refusal:
        database.read(query)
    assert "secret" not in str(refusal.value)


def test_many_readers_share_a_few_connections(database_url: str) -> None:
    """More threads than connections wait for each other."""
    database = Database(database_url, pool_size=2)
    found: list[list[str]] = []
    threads = [threading.Thread(target=lambda: found.append(database.read(writers))) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    database.close()
    assert found == [[]] * 12


# Writing


def test_a_write_is_committed_at_the_end_of_its_block(database: Database) -> None:
    """Not before, and as a whole."""
    with database.write() as connection:
        add_writer(connection, "a")
        add_writer(connection, "b")
    assert database.read(writers) == ["a", "b"]


@pytest.mark.parametrize("error", [InvalidBudget("No."), KeyboardInterrupt()])
def test_a_write_that_raises_is_undone(database: Database, error: BaseException) -> None:
    """Whatever the reason, nothing of it is left, and the next one may write."""
    with pytest.raises(type(error)), database.write() as connection:  # noqa: PT012
        add_writer(connection, "a")
        raise error
    with database.write() as connection:
        add_writer(connection, "b")
    assert database.read(writers) == ["b"]


def test_sqlite_writers_take_turns(sqlite_url: str) -> None:
    """The lock is taken when the block begins, so what it reads stays true until it commits."""
    database = Database(sqlite_url)
    with closing(driver_connection(sqlite_url)) as rival:
        rival.execute("PRAGMA busy_timeout = 1")
        with database.write(), pytest.raises(sqlite3.OperationalError):
            rival.execute("BEGIN IMMEDIATE")
        rival.execute("BEGIN IMMEDIATE")
        rival.execute("ROLLBACK")
    database.close()


def test_a_closed_database_holds_no_connection(database_url: str) -> None:
    """Closing gives every pooled connection back to the system."""
    database = Database(database_url)
    database.read(writers)
    with database.write():
        pass
    pools = [database.engine.pool, database.writing.pool]
    assert [pool.checkedin() for pool in pools] == [1, 1]  # type: ignore[attr-defined]
    database.close()
    pools += [database.engine.pool, database.writing.pool]
    assert [pool.checkedin() for pool in pools] == [0] * 4  # type: ignore[attr-defined]
