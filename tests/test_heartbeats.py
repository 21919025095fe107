"""Heartbeats: what the thread that keeps leases submits, and how."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from memoflow import ActivityBusy, LeaseLost
from memoflow.context import Current
from memoflow.leases import LeaseKeeper
from memoflow.ledger.writer import MAX_BATCH, Writer
from memoflow.testing import temporary_runtime


class _Line:
    """Stands for a writer: notes what is submitted, and never gets round to it."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, bool]] = []
        self.enough = threading.Event()

    def submit(self, *operations: Any, urgent: bool = False) -> list[Future[Any]]:
        """Note it; every lease is lost, so that the attempts are heard of once."""
        self.seen.append((len(operations), urgent))
        futures: list[Future[Any]] = [Future() for _ in operations]
        for future in futures:
            future.set_exception(LeaseLost(activity="a", attempt=1, current=2))
        if sum(size for size, _ in self.seen) >= 600:
            self.enough.set()
        return futures


def test_heartbeats_go_before_all_that_is_queued_in_groups_that_fit_a_batch() -> None:
    """However many attempts live and however many calls wait, no lease runs out in a queue."""
    line = _Line()
    keeper = LeaseKeeper(cast(Writer, line), 30_000)
    attempts = [_Living(SimpleNamespace(fence=None)) for _ in range(600)]
    for attempt in attempts:
        keeper.watch(cast(Current, attempt))
    assert line.enough.wait(30)
    keeper.close()
    assert all(urgent for _, urgent in line.seen)
    assert max(size for size, _ in line.seen) <= MAX_BATCH


@dataclass(eq=False)
class _Living:
    """As much of a running attempt as its heartbeat looks at."""

    record: Any
    lost: LeaseLost | None = None
    on_lost: None = None
    abandoned: Callable[[], bool] = lambda: False
    attempt: int = 1
    identity: str = "a"


def test_an_attempt_whose_event_loop_was_closed_is_not_kept_alive() -> None:
    """Nobody can carry it on, so its lease runs out and another process may."""
    entered = threading.Event()
    with temporary_runtime(lease_seconds=1) as runtime:

        @runtime.activity(version="v1")
        async def slow() -> str:
            if not entered.is_set():
                entered.set()
                await asyncio.sleep(3_600)
            return "done"

        loop = asyncio.new_event_loop()
        left = loop.create_task(slow.run(workflow_id="w", run_id="1"))
        loop.run_until_complete(asyncio.sleep(0))
        while not entered.is_set():
            loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()
        for _ in range(3_000):
            try:
                assert asyncio.run(slow.run(workflow_id="w", run_id="1")) == "done"
                break
            except ActivityBusy:
                time.sleep(0.01)
        else:
            raise AssertionError("The lease never ran out.")
        # The task is dropped without a word: its loop is not there to say that it was pending.
        left._log_destroy_pending = False  # type: ignore[attr-defined]
