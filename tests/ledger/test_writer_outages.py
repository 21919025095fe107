"""The writer and a database that is away or full, for a moment or for longer than callers are patient."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from sqlalchemy import event, text

from memoflow.budget import Amounts, Budget
from memoflow.errors import LedgerUnavailable
from memoflow.ledger import dialect as dialect_module
from memoflow.ledger import schema as s
from memoflow.ledger import writer as writer_module
from memoflow.ledger.verify import verify
from memoflow.ledger.writer import Writer
from tests.ledger._calls import ask, open_ledger, settle, start
from tests.ledger._notes import Failure, Line, Note, Queue, driver_connection, errors, open_queue, trouble
from tests.ledger._postgres import alter_database, terminate_all
from tests.ledger._support import connect


@pytest.fixture
def queue(database_url: str) -> Iterator[Queue]:
    """A writer whose callers are not patient, on each kind of database, with one row written."""
    with open_queue(database_url, patience=0.05) as opened:
        opened.do(Note("first"))
        yield opened


# Away


def test_a_short_outage_goes_unnoticed(database_url: str) -> None:
    """A database that comes back in time costs callers nothing but time."""
    with open_queue(database_url) as queue, trouble() as met:
        queue.do(Note("first"))
        queue.line.down = True
        futures = queue.submit(Note("a"), Note("b"))
        assert met.wait(30)
        assert not futures[0].done()
        queue.line.down = False
        assert [future.result(30) for future in futures] == ["a", "b"]
        assert queue.notes() == ["first", "a", "b"]


def test_an_outage_that_lasts_is_reported_and_nothing_is_half_written(queue: Queue) -> None:
    """After their patience the callers hear that the ledger is unavailable, and the next are served."""
    queue.line.down = True
    futures = queue.submit(Note("a"), Note("b"))
    assert errors(futures) == [LedgerUnavailable] * 2
    queue.line.down = False
    assert queue.notes() == ["first"]
    assert queue.do(Note("c")) == ["c"]
    assert queue.notes() == ["first", "c"]


def test_an_outage_before_the_first_batch(database_url: str) -> None:
    """A writer that could not even register does so later."""
    with open_queue(database_url, patience=0.05) as queue:
        queue.line.down = True
        assert errors(queue.submit(Note("a"))) == [LedgerUnavailable]
        queue.line.down = False
        assert queue.do(Note("b")) == ["b"]
        assert queue.notes() == ["b"]


@pytest.mark.parametrize("then", ["commit_lost", "reply_lost", "commit_refused"])
def test_a_batch_whose_fate_was_never_learned_confuses_no_later_one(queue: Queue, then: str) -> None:
    """It is there whole, though its callers never heard; and the next lost commit is decided right."""
    queue.line.commits = [queue.line.reply_lost_for_long]
    assert errors(queue.submit(Note("a"), Note("b"))) == [LedgerUnavailable] * 2
    queue.line.down = False
    assert queue.notes() == ["first", "a", "b"]
    queue.line.commits = [getattr(queue.line, then)]
    assert queue.do(Note("c")) == ["c"]
    queue.line.commits = [None, getattr(queue.line, then)]
    assert queue.do(Note("d")) == ["d"]
    assert queue.do(Note("e")) == ["e"]
    assert queue.notes() == ["first", "a", "b", "c", "d", "e"]


@pytest.mark.postgres
@pytest.mark.parametrize("patience", [0.1, 30])
def test_a_server_that_takes_no_connections(postgres_url: str, patience: float) -> None:
    """A real outage, shorter or longer than the callers' patience."""
    with open_queue(postgres_url, patience=patience) as queue, trouble() as met:
        queue.do(Note("first"))
        alter_database(postgres_url, "ALLOW_CONNECTIONS false")
        terminate_all(postgres_url)
        try:
            (future,) = queue.submit(Note("a"))
            assert met.wait(30)
            if patience < 1:
                assert errors([future]) == [LedgerUnavailable]
                with pytest.raises(LedgerUnavailable):
                    queue.notes()
        finally:
            alter_database(postgres_url, "ALLOW_CONNECTIONS true")
        expected = ["first"] if patience < 1 else ["first", future.result(30)]
        assert queue.do(Note("b")) == ["b"]
        assert queue.notes() == [*expected, "b"]


def test_sqlite_locked_for_longer_than_callers_are_patient(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process that keeps the only write lock is an outage in the end."""
    monkeypatch.setattr(dialect_module, "BUSY_TIMEOUT_MS", 1)
    with open_queue(sqlite_url, patience=0.05) as queue, closing(driver_connection(sqlite_url)) as other:
        queue.do(Note("first"))
        other.execute("BEGIN IMMEDIATE")
        assert errors(queue.submit(Note("a"))) == [LedgerUnavailable]
        other.execute("COMMIT")
        assert queue.do(Note("b")) == ["b"]
        assert queue.notes() == ["first", "b"]


@pytest.mark.postgres
def test_a_lock_that_somebody_keeps_is_no_reason_to_wait_for_ever(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that forgot its transaction costs callers their patience, no more."""
    monkeypatch.setattr(dialect_module, "BUSY_TIMEOUT_MS", 50)
    with open_queue(postgres_url, patience=0.1) as queue:
        queue.do(Note("first"))
        with connect(postgres_url) as other:
            other.execute(text("LOCK TABLE evidence IN ACCESS EXCLUSIVE MODE"))
            assert errors(queue.submit(Note("a"), Note("b"))) == [LedgerUnavailable] * 2
        assert queue.do(Note("c")) == ["c"]
        assert queue.notes() == ["first", "c"]


def test_no_free_connection_is_an_outage(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool that readers have emptied is waited for, and ends as any outage does."""
    engines = {queue.database.engine, queue.database.writing}
    readers = []
    for engine in engines:
        pool: Any = engine.pool
        monkeypatch.setattr(pool, "_timeout", 0.05)
        readers += [engine.connect() for _ in range(pool.size())]
    try:
        assert errors(queue.submit(Note("a"))) == [LedgerUnavailable]
        with pytest.raises(LedgerUnavailable):
            queue.notes()
    finally:
        for reader in readers:
            reader.close()
    assert queue.do(Note("b")) == ["b"]
    assert queue.notes() == ["first", "b"]


# Full


@contextmanager
def full(queue: Queue) -> Iterator[None]:
    """A disk that has no room for a further page, for as long as the context lasts."""

    def limit(dbapi: Any, _record: Any, _proxy: Any) -> None:
        # The database lowers it to the pages there are.
        dbapi.execute("PRAGMA max_page_count = 1")

    event.listen(queue.database.engine, "checkout", limit)
    yield
    event.remove(queue.database.engine, "checkout", limit)
    queue.database.engine.dispose()


LARGE = "x" * 100_000


def test_a_full_disk_that_is_cleared_in_time(sqlite_url: str) -> None:
    """A batch that found no room is written when there is some."""
    with open_queue(sqlite_url) as queue, trouble() as met:
        queue.do(Note("first"))
        with full(queue):
            (future,) = queue.submit(Note("a"), Note(LARGE))[:1]
            assert met.wait(30)
            assert not future.done()
        assert future.result(30) == "a"
        assert queue.notes() == ["first", "a", LARGE]
        assert queue.batches() == [2]


def test_a_disk_that_stays_full(sqlite_url: str) -> None:
    """Nothing of a batch is left for which there was no room, and small ones may still be written."""
    with open_queue(sqlite_url, patience=0.05) as queue:
        queue.do(Note("first"))
        with full(queue):
            assert errors(queue.submit(Note("a"), Note(LARGE))) == [LedgerUnavailable] * 2
            assert queue.notes() == ["first"]
        assert queue.batches() == [1]
        assert queue.do(Note(LARGE)) == [LARGE]
        assert queue.notes() == ["first", LARGE]


# Everything at once


def misfortune(chance: random.Random, line: Line, length: int) -> None:
    """Let a tenth of the next statements and half of the next commits fail, in all ways there are."""
    failures: list[Failure | None] = [
        line.reply_lost,
        line.commit_lost,
        line.commit_refused,
        None,
        None,
        None,
    ]
    line.commits = [chance.choice(failures) for _ in range(length)]
    broken = [line.outage, line.conflict, *[None] * 18]
    line.statements = [chance.choice(broken) for _ in range(length)]


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that does not wait longer from try to try."""
    monkeypatch.setattr(writer_module, "LONGEST_PAUSE_S", writer_module.FIRST_PAUSE_S)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("seed", range(3))
def test_every_operation_is_written_exactly_once(database_url: str, seed: int) -> None:
    """Whatever happens to statements and commits, each operation is there once, in order."""
    chance = random.Random(seed)
    with open_queue(database_url) as queue:
        misfortune(chance, queue.line, 150)
        futures = [queue.submit(*[Note(f"{i}.{j}") for j in range(chance.randint(1, 3))]) for i in range(60)]
        expected = [future.result(60) for group in futures for future in group]
        queue.line.commits, queue.line.statements = [], []
        assert queue.notes() == expected


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("seed", range(3))
def test_what_callers_are_told_is_true(database_url: str, seed: int) -> None:
    """With no patience, too: success means written once, unavailable means written once or not at all."""
    chance = random.Random(seed)
    with open_queue(database_url, patience=0.012) as queue:
        misfortune(chance, queue.line, 400)
        told = {}
        for i in range(60):
            (future,) = queue.submit(Note(f"{i:02d}"))
            told[f"{i:02d}"] = future.exception(60)
        queue.line.commits, queue.line.statements = [], []
        written = queue.notes()
        assert written == sorted(set(written))
        assert {subject for subject, error in told.items() if error is None} <= set(written)
        assert {type(error) for error in told.values()} <= {type(None), LedgerUnavailable}


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("seed", range(2))
def test_a_ledger_adds_up_through_all_of_it(database_url: str, seed: int) -> None:
    """Reservations are held once and settled once, and the journal proves it."""
    chance = random.Random(seed)
    with open_ledger(database_url) as ledger:
        ledger.put("acme", Budget(total_tokens=1_000))
        fence = ledger.claim()
        line = Line(ledger.database)
        misfortune(chance, line, 100)
        for i in range(20):
            begin = start(fence, ask(total_tokens=20), "acme")
            ledger.do(begin)
            ledger.do(settle(fence, begin.id, i, 1))
        line.commits, line.statements = [], []
        assert ledger.account("acme").settled == Amounts(210, 190, 20, 20)
        assert ledger.account("acme").held == Amounts()
        assert len(ledger.rows(s.journal)) == 40
        assert ledger.read(verify) == []


def test_a_second_writer_knows_nothing_of_the_first(queue: Queue) -> None:
    """Each writer counts its own batches, so that what happens to one says nothing about another."""
    other = Writer(queue.database, patience=0.05)
    try:
        # Registered first, since a lost reply to that would leave one more row.
        other.record(Note("second"))
        queue.line.commits = [queue.line.reply_lost]
        futures = [*queue.submit(Note("a")), *other.submit(Note("b"))]
        assert [future.result(30) for future in futures] == ["a", "b"]
        assert sorted(queue.notes()) == ["a", "b", "first", "second"]
        assert queue.batches() == [2, 2]
    finally:
        other.close()
