"""The group-commit writer: batches, order, refusals, the queue, closing, and dying."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from memoflow import faults
from memoflow.errors import ConfigurationError, InvalidBudget
from memoflow.ledger import writer as writer_module
from tests.ledger._notes import (
    Note,
    Queue,
    Refuse,
    Spoil,
    Unencodable,
    Unwritable,
    errors,
    open_queue,
    results,
)


@pytest.fixture
def queue(database_url: str) -> Iterator[Queue]:
    """A writer on each kind of database."""
    with open_queue(database_url) as opened:
        yield opened


@pytest.fixture
def dying() -> Iterator[Callable[[str], None]]:
    """Makes the process die, as far as a test can see, at a point."""

    def die_at(name: str) -> None:
        def hook(point: str) -> None:
            if point == name:
                faults.install(None)
                raise faults.Stop

        faults.install(hook)

    yield die_at
    faults.install(None)


def named(count: int, prefix: str = "n") -> list[str]:
    """Subjects whose order is plain."""
    return [f"{prefix}{i:03d}" for i in range(count)]


# Batches


def test_an_operation_alone_is_one_commit(queue: Queue) -> None:
    """Nobody waits for a batch to fill, and the writer's own row costs no commit of its own."""
    queue.do(Note("first"))
    before = queue.line.committed
    for subject in named(3):
        assert queue.do(Note(subject)) == [subject]
    assert queue.line.committed - before == 3
    assert queue.batches() == [4]


def test_what_queues_up_behind_a_commit_is_the_next_commit(queue: Queue) -> None:
    """Under load one commit serves all callers that wait."""
    with queue.held() as held:
        before = queue.line.committed
        futures = [queue.submit(Note(subject))[0] for subject in named(40)]
    assert held.result(30) == "held"
    assert results(futures) == named(40)
    assert queue.line.committed - before == 2
    assert queue.batches() == [2]


def test_operations_are_applied_in_the_order_they_were_submitted(queue: Queue) -> None:
    """Order holds inside a submission, between submissions, and between batches."""
    with queue.held("a"):
        queue.submit(Note("b"), Note("c"))
        queue.submit(Note("d"))
    queue.do(Note("e"))
    assert queue.notes() == ["a", "b", "c", "d", "e"]


def test_a_batch_is_bounded_and_never_splits_a_submission(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was submitted together is committed together, even when it is larger than a batch may be."""
    monkeypatch.setattr(writer_module, "MAX_BATCH", 4)
    sizes: list[int] = []
    persist = queue.writer._persist

    def spy(operations: list[Any]) -> list[Any]:
        sizes.append(len(operations))
        return persist(operations)

    monkeypatch.setattr(queue.writer, "_persist", spy)
    with queue.held():
        futures = [
            future
            for size, prefix in ((3, "a"), (1, "b"), (2, "c"), (6, "d"), (1, "e"))
            for future in queue.submit(*[Note(subject) for subject in named(size, prefix)])
        ]
    results(futures)
    assert sizes == [1, 4, 2, 6, 1]
    assert queue.notes() == ["held", *(future.result() for future in futures)]


def test_a_refusal_concerns_its_operation_alone(queue: Queue) -> None:
    """Neighbours of a refused operation are committed, with it, in one commit."""
    queue.do(Note("first"))
    before = queue.line.committed
    futures = queue.submit(Note("a"), Refuse("b"), Note("c"))
    assert errors(futures) == [None, InvalidBudget, None]
    assert queue.line.committed - before == 1
    assert queue.notes() == ["first", "a", "c"]


@pytest.mark.parametrize(
    ("bad", "error"),
    [(Spoil, InvalidBudget), (Unwritable, DBAPIError), (Unencodable, UnicodeEncodeError)],
)
@pytest.mark.parametrize("together", [True, False])
def test_an_operation_that_cannot_be_written_does_not_spoil_its_neighbours(
    queue: Queue, bad: type[Note], error: type[Exception], together: bool
) -> None:
    """A batch that cannot be kept is taken back, and each of its operations is tried alone, in order."""
    operations = [Note("a"), bad("b"), Note("c"), bad("d"), Note("e")]
    with queue.held("held"):
        futures = queue.submit(*operations) if together else [queue.submit(one)[0] for one in operations]
    ended = [future.exception(30) for future in futures]
    assert [ended[0], ended[2], ended[4]] == [None, None, None]
    assert isinstance(ended[1], error)
    assert isinstance(ended[3], error)
    assert queue.notes() == ["held", "a", "c", "e"]


@pytest.mark.parametrize(
    ("bad", "error"),
    [(Spoil, InvalidBudget), (Unwritable, DBAPIError), (Unencodable, UnicodeEncodeError)],
)
def test_an_operation_that_cannot_be_written_fails_with_its_own_error(
    queue: Queue, bad: type[Note], error: type[Exception]
) -> None:
    """Alone in its batch, too, an operation ends with what went wrong with it, and the writer goes on."""
    (future,) = queue.submit(bad("a"))
    assert isinstance(future.exception(30), error)
    assert queue.do(Note("b")) == ["b"]
    assert queue.notes() == ["b"]


def test_a_failed_batch_does_not_count(queue: Queue) -> None:
    """The writer's row counts what was committed and nothing else."""
    queue.do(Note("a"))
    queue.submit(Spoil("b"))[0].exception(30)
    queue.submit(Unwritable("c"))[0].exception(30)
    queue.do(Note("d"))
    assert queue.batches() == [2]


# The queue


def test_submitting_never_blocks(queue: Queue) -> None:
    """Threads and coroutines get their futures at once, however much is queued; all is written in order."""
    subjects = named(700)

    async def callers() -> list[str]:
        with queue.held():
            first = [queue.submit(Note(subject))[0] for subject in subjects[:350]]
            futures = [queue.writer.asubmit(Note(subject))[0] for subject in subjects[350:]]
            assert queue.writer.waiting == 700
        return results(first) + [await future for future in futures]

    assert asyncio.run(callers()) == subjects
    assert queue.notes() == ["held", *subjects]
    assert queue.writer.waiting == 0


def test_what_is_urgent_goes_first(queue: Queue) -> None:
    """Whatever is queued, and in batches of its own if there is much of it."""
    with queue.held():
        queue.submit(Note("a"), Note("b"))
        for size in (200, 200):
            queue.writer.submit(*[Note(f"urgent {i}") for i in range(size)], urgent=True)
    queue.do(Note("last"))
    found = queue.notes()
    assert (found[0], found[-3:]) == ("held", ["a", "b", "last"])
    assert len(found) == 404


def test_coroutines_get_their_own_results(queue: Queue) -> None:
    """Of one batch each hears what became of its own operation, refusals too."""

    async def callers() -> list[Any]:
        with queue.held():
            futures = [*queue.writer.asubmit(Note("a"), Refuse("b")), *queue.writer.asubmit(Note("c"))]
        return await asyncio.gather(*futures, return_exceptions=True)

    first, refused, last = asyncio.run(callers())
    assert (first, type(refused), last) == ("a", InvalidBudget, "c")
    assert queue.notes() == ["held", "a", "c"]


def test_an_event_loop_that_is_gone_holds_nobody_up(queue: Queue) -> None:
    """What its coroutines submitted is recorded, and the others hear what became of theirs."""

    async def leave() -> None:
        queue.writer.asubmit(Note("a"))

    with queue.held():
        asyncio.run(leave())
        (after,) = queue.submit(Note("b"))
    assert after.result(30) == "b"
    assert queue.notes() == ["held", "a", "b"]


def test_submitting_nothing_is_no_batch(queue: Queue) -> None:
    """No operations, no futures; the writer goes on."""
    assert queue.submit() == []
    assert queue.do(Note("a")) == ["a"]
    assert queue.batches() == [1]


def test_what_was_submitted_cannot_be_cancelled(queue: Queue) -> None:
    """A caller that goes away changes nothing: what it submitted is recorded."""
    with queue.held():
        (future,) = queue.submit(Note("a"))
        assert not future.cancel()
    assert future.result(30) == "a"
    assert queue.notes() == ["held", "a"]


def test_many_callers_are_all_served(queue: Queue) -> None:
    """Threads that submit at once get their own results, and every operation is written once."""
    start = threading.Barrier(8)
    wrong: list[Any] = []

    def caller(prefix: str) -> None:
        start.wait()
        for subject in named(10, prefix):
            if queue.do(Note(subject)) != [subject]:
                wrong.append(subject)

    threads = [threading.Thread(target=caller, args=(f"{letter}",)) for letter in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    written = queue.notes()
    assert sorted(written) == [subject for letter in "abcdefgh" for subject in named(10, letter)]
    for letter in "abcdefgh":
        assert [subject for subject in written if subject[0] == letter] == named(10, letter)


# Closing


async def _asubmit(queue: Queue, note: Note) -> None:
    queue.writer.asubmit(note)


def test_closing_writes_what_is_queued_then_refuses(queue: Queue) -> None:
    """Nothing that was accepted is lost, and nothing is accepted any more."""
    with queue.held():
        futures = queue.submit(Note("a"), Note("b"))
        closing = threading.Thread(target=queue.writer.close)
        closing.start()
    closing.join()
    assert [future.result(0) for future in futures] == ["a", "b"]
    assert queue.notes() == ["held", "a", "b"]
    with pytest.raises(ConfigurationError):
        queue.submit(Note("c"))
    with pytest.raises(ConfigurationError):
        asyncio.run(_asubmit(queue, Note("c")))


def test_closing_twice_or_unused_is_harmless(queue: Queue) -> None:
    """Whoever closes need not know what happened before."""
    queue.writer.close()
    queue.writer.close()
    with pytest.raises(ConfigurationError):
        queue.submit(Note("a"))
    assert queue.batches() == []


# Dying


def test_death_before_the_commit_leaves_nothing(queue: Queue, dying: Callable[[str], None]) -> None:
    """What was not committed never happened, for all that were in the batch or behind it."""
    queue.do(Note("first"))
    with queue.held("held"):
        dying("commit:before")
        futures = queue.submit(Note("a"), Note("b"))
    assert errors(futures) == [faults.Stop, faults.Stop]
    assert queue.notes() == ["first"]
    assert queue.batches() == [1]


def test_death_after_the_commit_leaves_all_of_it(queue: Queue, dying: Callable[[str], None]) -> None:
    """A batch is there whole, although nobody was told."""
    queue.do(Note("first"))
    dying("commit:after")
    futures = queue.submit(Note("a"), Refuse("b"), Note("c"))
    assert errors(futures) == [faults.Stop] * 3
    assert queue.notes() == ["first", "a", "c"]
    assert queue.batches() == [2]


def test_nothing_is_written_after_death(queue: Queue, dying: Callable[[str], None]) -> None:
    """A dead process neither takes operations nor writes those it had taken, and nobody waits for ever."""
    with queue.held("held") as held:
        (queued,) = queue.submit(Note("a"))
        dying("commit:before")
    assert errors([held]) == [faults.Stop]
    assert errors([queued]) == [faults.Stop]
    with pytest.raises(ConfigurationError):
        queue.submit(Note("b"))
    queue.writer.close()
    assert queue.notes() == []
