"""The writer and a database that answers: with silence about a commit, a conflict, a clash."""

from __future__ import annotations

import errno
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError

from memoflow import faults
from memoflow.errors import ActivityBusy, InvalidBudget
from memoflow.ledger import dialect as dialect_module
from memoflow.ledger import schema as s
from memoflow.ledger.activities import ClaimActivity
from memoflow.ledger.transaction import Transaction
from memoflow.ledger.verify import verify
from tests.ledger._calls import Ledger, identity, open_ledger
from tests.ledger._notes import (
    Note,
    Queue,
    Refuse,
    driver_connection,
    errors,
    open_queue,
    results,
    submit,
    trouble,
)
from tests.ledger._postgres import alter_database, terminate, wait_for_lock
from tests.ledger._support import connect


@pytest.fixture
def queue(database_url: str) -> Iterator[Queue]:
    """A writer on each kind of database, with one row written."""
    with open_queue(database_url) as opened:
        opened.do(Note("first"))
        yield opened


def claim(activity_id: str = "answer") -> ClaimActivity:
    """The operation that claims an activity."""
    return ClaimActivity(identity(activity_id), "sha256:input", 60_000_000, "worker-1")


def touch(activity_id: str) -> Any:
    """A statement that changes nothing of an activity's row, but makes another version of it."""
    return text("UPDATE activities SET lease_expires_at = lease_expires_at WHERE id = :id").bindparams(
        id=activity_id
    )


def freed(ledger: Ledger, activity_id: str) -> str:
    """The row's id of an activity that may be claimed again."""
    fence = ledger.claim(identity(activity_id))
    ledger.end(fence)
    return fence.activity_id


# A lost reply


def test_a_commit_that_arrived_without_a_reply_is_not_repeated(queue: Queue) -> None:
    """The writer's own row says that the batch is there; the results are those of the batch."""
    queue.line.commits = [queue.line.reply_lost]
    futures = queue.submit(Note("a"), Refuse("b"), Note("c"))
    assert errors(futures) == [None, InvalidBudget, None]
    assert queue.notes() == ["first", "a", "c"]
    assert queue.batches() == [2]


def test_a_commit_that_did_not_arrive_is_repeated(queue: Queue) -> None:
    """The writer's own row says that the batch is not there, so it is written again."""
    queue.line.commits = [queue.line.commit_lost, queue.line.commit_lost]
    futures = queue.submit(Note("a"), Refuse("b"), Note("c"))
    assert errors(futures) == [None, InvalidBudget, None]
    assert queue.notes() == ["first", "a", "c"]
    assert queue.batches() == [2]


@pytest.mark.parametrize("first", ["commit_lost", "commit_refused"])
def test_the_question_is_asked_as_often_as_a_reply_is_lost(queue: Queue, first: str) -> None:
    """Whichever of several tries arrived, the batch is there once."""
    queue.line.commits = [getattr(queue.line, first), queue.line.reply_lost, None, queue.line.reply_lost]
    assert queue.do(Note("a")) == ["a"]
    assert queue.do(Note("b")) == ["b"]
    assert queue.notes() == ["first", "a", "b"]
    assert queue.batches() == [3]


@pytest.mark.parametrize("arrived", [True, False])
def test_an_error_of_another_kind_says_nothing_about_a_commit(queue: Queue, arrived: bool) -> None:
    """A process without a free file descriptor, say, cannot tell what became of a commit it had sent."""

    def no_descriptor(commit: Callable[[], None], dbapi: Any) -> None:
        commit() if arrived else dbapi.rollback()
        raise OSError(errno.EMFILE, "Too many open files")

    queue.line.commits = [no_descriptor]
    assert queue.do(Note("a"), Note("b")) == ["a", "b"]
    assert queue.notes() == ["first", "a", "b"]
    assert queue.batches() == [2]


def test_no_other_trouble_makes_a_lost_reply_forgotten(queue: Queue) -> None:
    """While a commit is in doubt no operation is tried alone, even if the question cannot be asked."""

    def then_broken(commit: Callable[[], None], _dbapi: Any) -> None:
        commit()
        queue.line.statements = [queue.line.error(sqlite3.SQLITE_ERROR, "42501")]
        raise queue.line.outage

    queue.line.commits = [then_broken]
    assert queue.do(Note("a"), Note("b")) == ["a", "b"]
    assert queue.notes() == ["first", "a", "b"]
    assert queue.batches() == [2]


@pytest.mark.parametrize("when", ["before", "in doubt"])
def test_a_history_that_lost_commits_is_not_taken_for_an_answer(queue: Queue, when: str) -> None:
    """After a failover that lost its last commits, the writer's row says less than the writer knows."""

    def fail_over(_commit: Callable[[], None], dbapi: Any) -> None:
        dbapi.rollback()
        queue.writer._batches += 3
        raise queue.line.outage

    if when == "before":
        queue.writer._batches += 3
    queue.line.commits = [queue.line.commit_lost if when == "before" else fail_over]
    assert queue.do(Note("a")) == ["a"]
    queue.line.commits = [queue.line.commit_lost, queue.line.reply_lost]
    assert queue.do(Note("b")) == ["b"]
    assert queue.notes() == ["first", "a", "b"]


def test_the_registration_of_a_writer_may_lose_its_reply(database_url: str) -> None:
    """A writer whose own row is in doubt takes another."""
    with open_queue(database_url) as queue:
        queue.line.commits = [queue.line.reply_lost]
        assert queue.do(Note("a")) == ["a"]
        assert queue.notes() == ["a"]
        assert sorted(queue.batches()) == [0, 1]


@pytest.mark.postgres
@pytest.mark.parametrize("committed", [True, False])
def test_a_server_that_ends_the_connection_at_the_commit(postgres_url: str, committed: bool) -> None:
    """A terminated backend took nothing with it that is not written again, and left nothing that is."""

    def cut(commit: Callable[[], None], dbapi: Any) -> None:
        if committed:
            commit()
        terminate(postgres_url, dbapi.pgconn.backend_pid)
        dbapi.execute("SELECT 1")

    with open_queue(postgres_url) as queue:
        queue.do(Note("first"))
        queue.line.commits = [cut]
        assert queue.do(Note("a"), Note("b")) == ["a", "b"]
        assert queue.notes() == ["first", "a", "b"]
        assert queue.batches() == [2]


@pytest.mark.postgres
def test_a_connection_that_died_while_it_was_idle(postgres_url: str) -> None:
    """Pooled connections may have ended since their last use, for the writer and for readers."""
    with open_queue(postgres_url) as queue:
        queue.do(Note("first"))
        _terminate_pooled(queue.database.engine, postgres_url)
        assert queue.notes() == ["first"]
        _terminate_pooled(queue.database.writing, postgres_url)
        assert queue.do(Note("a")) == ["a"]
        assert queue.notes() == ["first", "a"]


def _terminate_pooled(engine: Engine, url: str) -> None:
    with engine.connect() as connection:
        pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    terminate(url, pid)


_SLOW_COMMIT = (
    # Deferred triggers run inside a commit, before it is durable.
    """CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_sleep(0.5);
        RETURN NULL;
    END $$""",
    """CREATE CONSTRAINT TRIGGER dawdle AFTER INSERT ON evidence DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.subject_id = 'slow') EXECUTE FUNCTION dawdle()""",
)


@pytest.mark.postgres
def test_a_commit_that_is_still_being_carried_out(postgres_url: str) -> None:
    """The question whether a commit arrived waits for a server that is still busy with it."""
    with connect(postgres_url) as connection:
        for statement in _SLOW_COMMIT:
            connection.execute(text(statement))

    def hang_up(_commit: Callable[[], None], dbapi: Any) -> None:
        dbapi.pgconn.send_query(b"COMMIT")
        dbapi.pgconn.finish()
        dbapi.execute("SELECT 1")

    with open_queue(postgres_url) as queue:
        queue.do(Note("first"))
        queue.line.commits = [hang_up]
        assert queue.do(Note("slow")) == ["slow"]
        assert queue.do(Note("a")) == ["a"]
        assert queue.notes() == ["first", "slow", "a"]
        assert queue.batches() == [3]


# Conflicts


def test_a_conflict_is_tried_again(queue: Queue) -> None:
    """A batch that was rolled back because of others is written as soon as they are gone."""
    queue.line.statements = [queue.line.conflict, None, queue.line.conflict]
    queue.line.commits = [queue.line.commit_refused]
    assert queue.do(Note("a"), Note("b")) == ["a", "b"]
    assert queue.notes() == ["first", "a", "b"]
    assert queue.batches() == [2]


def test_sqlite_locked_by_another_connection_then_released(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch waits for a writer of another process, beyond what the driver itself waits."""
    monkeypatch.setattr(dialect_module, "BUSY_TIMEOUT_MS", 1)
    with open_queue(sqlite_url) as queue, closing(driver_connection(sqlite_url)) as other, trouble() as met:
        queue.do(Note("first"))
        other.execute("BEGIN IMMEDIATE")
        (future,) = queue.submit(Note("a"))
        assert met.wait(30)
        assert not future.done()
        other.execute("COMMIT")
        assert future.result(30) == "a"
        assert queue.notes() == ["first", "a"]


@pytest.mark.postgres
def test_a_real_serialization_failure(postgres_url: str) -> None:
    """Under a stricter isolation a batch that saw an older state is applied to the newer one."""
    alter_database(postgres_url, "SET default_transaction_isolation = 'serializable'")
    with open_ledger(postgres_url) as ledger, trouble() as met:
        id = freed(ledger, "answer")
        with connect(postgres_url) as other:
            other.execute(touch(id))
            (future,) = submit(ledger.writer, claim())
            wait_for_lock(postgres_url)
        assert future.result(30).attempt == 2
        assert met.is_set()
        assert ledger.read(verify) == []


@pytest.mark.postgres
def test_a_real_deadlock(postgres_url: str) -> None:
    """A batch that waits for somebody who waits for it gives way and is tried again."""
    with open_ledger(postgres_url) as ledger, trouble() as met:
        ids = {freed(ledger, name): name for name in ("a", "b")}
        low, high = sorted(ids)
        with connect(postgres_url) as other:
            # The batch locks upwards by id. This connection does it downwards, and is more patient.
            other.execute(text("SET LOCAL deadlock_timeout = '20s'"))
            other.execute(touch(high))
            futures = submit(ledger.writer, claim("a"), claim("b"))
            wait_for_lock(postgres_url)
            other.execute(touch(low))
        assert [future.result(30).attempt for future in futures] == [2, 2]
        assert met.is_set()
        assert ledger.read(verify) == []


# Clashes


class TakeName(Note):
    """Insert under a fixed key."""

    def apply(self, tx: Transaction) -> str:
        """Insert without looking."""
        tx.insert(s.writers, id=self.subject, batches=0, started_at=0)
        return self.subject


def test_a_clash_that_looking_again_does_not_resolve(queue: Queue) -> None:
    """A key that stays taken ends the operation that wants it, after a few tries, and no other."""
    assert queue.do(TakeName("taken")) == ["taken"]
    futures = queue.submit(Note("a"), TakeName("taken"), Note("b"))
    ended = [future.exception(30) for future in futures]
    assert [ended[0], ended[2]] == [None, None]
    assert isinstance(ended[1], IntegrityError)
    assert queue.notes() == ["first", "a", "b"]


@pytest.mark.postgres
def test_two_writers_that_claim_the_same_new_activity(postgres_url: str) -> None:
    """Both saw no such activity; one gets it, and the other looks again and finds it busy."""
    inserted = threading.Event()
    with open_ledger(postgres_url) as one, open_ledger(postgres_url) as two, trouble() as met:

        def wait_for_the_other(point: str) -> None:
            if point == "commit:before" and not inserted.is_set():
                inserted.set()
                wait_for_lock(postgres_url)

        faults.install(wait_for_the_other)
        try:
            (first,) = submit(one.writer, claim())
            assert inserted.wait(30)
            (second,) = submit(two.writer, claim())
            assert results([first])[0].attempt == 1
            assert errors([second]) == [ActivityBusy]
        finally:
            faults.install(None)
        assert met.is_set()
        assert len(one.rows(s.activities)) == len(one.rows(s.attempts)) == 1
