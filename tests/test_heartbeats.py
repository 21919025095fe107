"""Heartbeats: what the thread that keeps leases submits, and how."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from memoflow import LeaseLost
from memoflow.context import Current
from memoflow.leases import LeaseKeeper
from memoflow.ledger.writer import MAX_BATCH, Writer


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
    attempt: int = 1
    identity: str = "a"
