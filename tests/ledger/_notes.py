"""Operations without rules of their own, and a database whose connection tests cut."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from sqlalchemy import select

from memoflow.errors import InvalidBudget
from memoflow.identity import new_id
from memoflow.ledger import schema as s
from memoflow.ledger.database import Clock, Database
from memoflow.ledger.dialect import database_now
from memoflow.ledger.transaction import Needs, Operation, Transaction
from memoflow.ledger.writer import Writer

__all__ = [
    "Failure",
    "Hold",
    "Line",
    "Note",
    "Queue",
    "Refuse",
    "Spoil",
    "Unencodable",
    "Unwritable",
    "driver_connection",
    "errors",
    "notes",
    "open_queue",
    "results",
    "submit",
    "trouble",
]


def _write(tx: Transaction, subject: str, **changes: Any) -> None:
    # A new id each time: an operation that is applied twice leaves two rows.
    values = {
        "id": new_id(),
        "namespace": "tests",
        "activity_id": "a",
        "attempt": 1,
        "event": "note",
        "at": 0,
    }
    tx.insert(s.evidence, subject_id=subject, **(values | changes))


@dataclass(frozen=True)
class Note:
    """Leave one row that says ``subject``."""

    subject: str

    def needs(self, needs: Needs) -> None:
        """Nothing."""

    def apply(self, tx: Transaction) -> str:
        """Write it; returns the subject."""
        _write(tx, self.subject)
        return self.subject


class Refuse(Note):
    """Refuse before anything is changed."""

    def apply(self, tx: Transaction) -> str:
        """Refuse."""
        raise InvalidBudget(f"{self.subject} is refused.")


class Spoil(Note):
    """Change something, then raise."""

    def apply(self, tx: Transaction) -> str:
        """Spoil the batch."""
        _write(tx, self.subject)
        raise InvalidBudget(f"{self.subject} is refused too late.")


class Unwritable(Note):
    """Leave a row that breaks a constraint when it is written."""

    def apply(self, tx: Transaction) -> str:
        """Write a row that the database refuses."""
        _write(tx, self.subject, event=None)
        return self.subject


class Unencodable(Note):
    """Leave a row that no driver can encode."""

    def apply(self, tx: Transaction) -> str:
        """Write a row that fails in the driver."""
        _write(tx, self.subject, event="\ud800")
        return self.subject


@dataclass(frozen=True)
class Hold(Note):
    """Leave a row, and keep the writer busy until told to go on."""

    inside: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def apply(self, tx: Transaction) -> str:
        """Write it and wait."""
        self.inside.set()
        assert self.go_on.wait(30)
        return super().apply(tx)


def notes(database: Database) -> list[str]:
    """The subjects of all rows, in the order in which they were applied."""
    query = select(s.evidence.c.subject_id).order_by(s.evidence.c.id)
    return database.read(lambda connection: list(connection.scalars(query)))


def submit(writer: Writer, *operations: Operation[Any]) -> list[Future[Any]]:
    """Queue operations and return their futures."""
    return writer.submit(*operations)


def results(futures: list[Future[Any]]) -> list[Any]:
    """What each operation returned, or the exception it ended with."""
    return [future.exception(timeout=60) or future.result() for future in futures]


def errors(futures: list[Future[Any]]) -> list[type[BaseException] | None]:
    """The type of exception each operation ended with, None for a success."""
    return [None if error is None else type(error) for error in (f.exception(timeout=60) for f in futures)]


def _is_writer() -> bool:
    return threading.current_thread().name == "memoflow-writer"


Failure = Callable[[Callable[[], None], Any], None]
"""What happens to a commit: a function that gets the driver's own commit and its connection."""


class Line:
    """The connection between a writer and its database: a plan of failures, one for each commit or statement.

    ``commits`` and ``statements`` say what happens to the next ones: None lets it pass. While the line is
    ``down`` no statement passes. ``committed`` counts the commits of the writer, also those that failed.
    """

    def __init__(self, database: Database) -> None:
        self._dialect = cast(Any, database.writing.dialect)
        self.sqlite = database.is_sqlite
        self.commits: list[Failure | None] = []
        self.statements: list[Exception | None] = []
        self.down = False
        self.committed = 0
        commit = self._dialect.do_commit
        self._dialect.do_commit = partial(self._commit, commit)
        for name in ("do_execute", "do_executemany"):
            execute = getattr(self._dialect, name)
            setattr(self._dialect, name, partial(self._execute, execute))

    def _commit(self, commit: Callable[[Any], None], dbapi: Any) -> None:
        failure = None
        if _is_writer():
            self.committed += 1
            failure = self.commits.pop(0) if self.commits else None
        if failure is None:
            commit(dbapi)
        else:
            failure(partial(commit, dbapi), dbapi)

    def _execute(self, execute: Callable[..., None], *args: Any) -> None:
        if _is_writer():
            failure = self.statements.pop(0) if self.statements else None
            if failure is not None or self.down:
                raise failure or self.outage
        execute(*args)

    # Failures

    def error(self, sqlite_code: int, sqlstate: str | None) -> Exception:
        """The driver's exception for a code."""
        if self.sqlite:
            broken = sqlite3.OperationalError("injected")
            broken.sqlite_errorcode = sqlite_code
            return broken
        import psycopg

        if sqlstate is None:
            return psycopg.OperationalError("injected")
        return psycopg.errors.lookup(sqlstate)("injected")

    @property
    def outage(self) -> Exception:
        """The database is away."""
        return self.error(sqlite3.SQLITE_IOERR, None)

    @property
    def conflict(self) -> Exception:
        """Others were in the way."""
        return self.error(sqlite3.SQLITE_BUSY, "40001")

    def reply_lost(self, commit: Callable[[], None], _dbapi: Any) -> None:
        """The commit arrives; its reply does not."""
        commit()
        raise self.outage

    def reply_lost_for_long(self, commit: Callable[[], None], _dbapi: Any) -> None:
        """The commit arrives; its reply does not, and then nothing does."""
        commit()
        self.down = True
        raise self.outage

    def commit_lost(self, _commit: Callable[[], None], dbapi: Any) -> None:
        """The connection ends before the commit arrives."""
        dbapi.rollback()
        raise self.outage

    def commit_refused(self, _commit: Callable[[], None], dbapi: Any) -> None:
        """The commit is answered with a conflict."""
        dbapi.rollback()
        raise self.conflict


class Queue:
    """A database with a writer of its own, a line to cut, and a way to make operations land in one batch."""

    def __init__(self, url: str, *, clock: Clock = database_now, **options: Any) -> None:
        self.database = Database(url, clock=clock)
        self.line = Line(self.database)
        self.writer = Writer(self.database, **options)

    def close(self) -> None:
        """Stop the writer and close the connections."""
        self.writer.close()
        self.database.close()

    def submit(self, *operations: Operation[Any]) -> list[Future[Any]]:
        """Queue operations."""
        return submit(self.writer, *operations)

    def do(self, *operations: Operation[Any]) -> list[Any]:
        """Queue operations and wait for what became of each."""
        return results(self.submit(*operations))

    @contextmanager
    def held(self, subject: str = "held") -> Iterator[Future[Any]]:
        """Keep the writer busy inside the context: what is queued meanwhile is one batch."""
        hold = Hold(subject)
        (future,) = self.submit(hold)
        assert hold.inside.wait(30)
        try:
            yield future
        finally:
            hold.go_on.set()

    def notes(self) -> list[str]:
        """The subjects of all rows, in the order in which they were applied."""
        return notes(self.database)

    def batches(self) -> list[int]:
        """How many batches each writer of this database has committed, by its own row."""
        query = select(s.writers.c.batches).order_by(s.writers.c.id)
        return self.database.read(lambda connection: list(connection.scalars(query)))


@contextmanager
def open_queue(url: str, **options: Any) -> Iterator[Queue]:
    """A database with its writer for as long as the context lasts."""
    queue = Queue(url, **options)
    try:
        yield queue
    finally:
        queue.close()


def driver_connection(url: str) -> sqlite3.Connection:
    """A connection of the driver itself, without its own handling of transactions."""
    return sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=30)


class Trouble(logging.Handler):
    """Sets an event when the writer says that it is going to try again."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Note it."""
        self.seen.set()


@contextmanager
def trouble() -> Iterator[threading.Event]:
    """An event that is set when a writer meets trouble that it is going to live through."""
    handler = Trouble()
    logger = logging.getLogger("memoflow.ledger")
    logger.addHandler(handler)
    try:
        yield handler.seen
    finally:
        logger.removeHandler(handler)
