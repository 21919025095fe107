"""The writer among processes: forked ones, and others that want the same."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from memoflow.ledger.verify import verify
from tests.ledger._calls import open_ledger
from tests.ledger._processes import (
    claim_at_once,
    fork_after_close,
    fork_in_a_batch,
    fork_in_threads,
    fork_without_the_file,
    meet,
    outlive_the_parent,
)

Elsewhere = Callable[[Callable[..., Any], str], Any]
Claimants = Callable[[str], list[list[str]]]
CLAIMANTS = 3
ACTIVITIES = 8


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    """Runs something in another process, which may then fork: it has no threads but its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield lambda function, url: pool.submit(function, url).result(90)


@pytest.fixture(scope="module")
def claimants() -> Iterator[Claimants]:
    """Processes that claim the same activities at the same moments; what became of each claim, by process."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(CLAIMANTS)
    with ProcessPoolExecutor(CLAIMANTS, mp_context=context, initializer=meet, initargs=(barrier,)) as pool:

        def claim_all(url: str) -> list[list[str]]:
            futures = [pool.submit(claim_at_once, url, ACTIVITIES) for _ in range(CLAIMANTS)]
            return [future.result(90) for future in futures]

        yield claim_all


@pytest.mark.slow
def test_a_fork_in_the_middle_of_a_batch(elsewhere: Elsewhere, database_url: str) -> None:
    """The child writes with a writer of its own; what was queued is the parent's, and is written once."""
    found = elsewhere(fork_in_a_batch, database_url)
    assert found["child"]
    assert found["errors"] == [None, None]
    assert found["after"] == ["after"]
    assert sorted(found["notes"]) == ["after", "child", "held", "queued"]
    assert sorted(found["batches"]) == [1, 3]


@pytest.mark.slow
def test_a_child_that_outlives_its_parent(elsewhere: Elsewhere, database_url: str) -> None:
    """What a child has committed stays, although the parent thought it was the last to close the database."""
    found = elsewhere(outlive_the_parent, database_url)
    assert found["child"]
    assert sorted(found["notes"]) == ["again", "child-1", "child-2", "first", "parent"]


@pytest.mark.slow
def test_a_closed_writer_stays_closed_in_a_child(elsewhere: Elsewhere, database_url: str) -> None:
    """A fork opens nothing again."""
    assert elsewhere(fork_after_close, database_url)


def test_a_fork_when_the_ledger_file_is_gone(elsewhere: Elsewhere, tmp_path: Path) -> None:
    """Whoever forks hears nothing of a ledger that nobody can open any more."""
    assert elsewhere(fork_without_the_file, f"sqlite:///{tmp_path}/gone/memoflow.db") == []


@pytest.mark.slow
def test_forks_from_several_threads_at_once(elsewhere: Elsewhere, database_url: str) -> None:
    """They wait for each other and for the writer, not for ever, and every child can write."""
    found = elsewhere(fork_in_threads, database_url)
    assert found["children"] == [True] * 4
    assert found["notes"] == [*[f"child-{i}" for i in range(4)], *[f"parent-{i}" for i in range(5)]]


@pytest.mark.slow
def test_processes_that_claim_the_same_activities_at_once(claimants: Claimants, database_url: str) -> None:
    """Each activity goes to one of them; the others hear that it is busy, and nothing else."""
    found = list(zip(*claimants(database_url), strict=True))
    assert [sorted(of_one) for of_one in found] == [["busy", "busy", "claimed"]] * ACTIVITIES
    with open_ledger(database_url) as ledger:
        assert ledger.read(verify) == []
