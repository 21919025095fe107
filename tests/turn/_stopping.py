"""Ways to stop a call at a chosen moment: an interrupt from the keyboard, or a task that is cancelled."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from memoflow import faults
from memoflow.budget import Amounts
from tests.turn._worlds import Got, World

__all__ = [
    "NOTHING",
    "Stopper",
    "at_commit",
    "at_point",
    "check_released",
    "check_unknown",
    "from_point",
    "meanwhile",
    "stopped",
    "stopping",
]

NOTHING = (Amounts(), Amounts(), Amounts())
"""The balance of an account that nothing was charged to."""


class Stopper:
    """Stops the call of a world, from any thread, and returns when the stop has arrived."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._arrived = threading.Event()

    def __call__(self) -> None:
        if self._world.is_async:
            self._cancel()
        elif threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        else:
            self._interrupt()

    def _interrupt(self) -> None:
        # A signal that comes just before a thread blocks does not wake it, so one may not be enough.
        for _ in range(500):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            if self._arrived.wait(0.02):
                return
        raise AssertionError("The interrupt did not arrive.")

    def _cancel(self) -> None:
        loop, task = self._world.loop, self._world.task
        assert loop is not None
        assert task is not None
        if threading.get_ident() == loop._thread_id:  # type: ignore[attr-defined]
            task.cancel()
            return
        loop.call_soon_threadsafe(lambda: (task.cancel(), self._arrived.set()))
        assert self._arrived.wait(10)

    def interrupted(self, *args: Any) -> None:
        """The handler of the interrupt, which comes once however often it was sent."""
        if not self._arrived.is_set():
            self._arrived.set()
            raise KeyboardInterrupt


@contextmanager
def stopping(world: World) -> Iterator[Stopper]:
    """A stopper of a world; in this block an interrupt is noticed when it arrives."""
    stopper = Stopper(world)
    before = signal.signal(signal.SIGINT, stopper.interrupted)
    try:
        yield stopper
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def at_point(name: str, does: Callable[[], object], *, occurrence: int = 1) -> Iterator[None]:
    """Do something when a point of the core is passed for the n-th time."""
    seen = 0

    def hook(point: str) -> None:
        nonlocal seen
        if point == name:
            seen += 1
            if seen == occurrence:
                does()

    before = faults.install(hook)
    try:
        yield
    finally:
        faults.install(before)


@contextmanager
def from_point(name: str, does: Callable[[], object], *, occurrence: int, until: str) -> Iterator[None]:
    """Do something before every commit from the n-th time a point is passed until another one is.

    Which commit a record is in is not certain where others, for which nobody waits, may share it.
    """
    seen = {name: 0, until: 0}

    def hook(point: str) -> None:
        if point in seen:
            seen[point] += 1
        if point == "commit:before" and seen[name] >= occurrence > seen[until]:
            does()

    before = faults.install(hook)
    try:
        yield
    finally:
        faults.install(before)


def at_commit(number: int, does: Callable[[], object]) -> Any:
    """Do something on the writer's thread, just before the n-th commit from now."""
    return at_point("commit:before", does, occurrence=number)


@contextmanager
def meanwhile(waits: Callable[[], object], does: Callable[[], object]) -> Iterator[None]:
    """On another thread: wait for something, then do something."""
    failures: list[BaseException] = []

    def work() -> None:
        try:
            assert waits()
            does()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield
    thread.join(10)
    assert failures == []


def stopped(world: World, got: Got) -> BaseException:
    """The exception of a call that was stopped, which is the caller's own."""
    error: BaseException = got.raised(asyncio.CancelledError if world.is_async else KeyboardInterrupt)
    return error


def check_released(w: World, *, error_type: str | None) -> None:
    """The call never left: its hold is gone."""
    found = w.invocation
    assert (found.state, found.reservation_state, found.reason) == (
        "CANCELLED",
        "RELEASED",
        "PROVIDER_CALL_NOT_STARTED",
    )
    assert (found.finish_reason, found.error_type) == ("cancelled", error_type)
    assert w.balance() == NOTHING
    assert w.provider.requests == []


def check_unknown(w: World, reason: str, *, kept_id: bool) -> None:
    """The call had left: its whole hold stays, and the id of the reply is kept if one was named.

    It ended as cancelled where somebody cancelled it; a limit of time is nobody's cancellation.
    """
    found = w.invocation
    assert (found.state, found.reservation_state, found.reason) == ("OUTCOME_UNKNOWN", "RECONCILE", reason)
    assert found.finish_reason == ("cancelled" if reason in ("CANCELLED", "ABANDONED") else None)
    assert w.balance() == (Amounts(), Amounts(), found.reserved)
    assert found.retrievable == kept_id
