"""Dying at every step of the protocol, one after the other.

A program may die between any two things it does. `crash_points` runs a piece of work once and returns
every point it passed, in order; `CrashPoint.crash` runs it again and lets it die at one of them. What the
dead program could not have done is not done: from that point on nothing is committed, sent or run::

    def attempt(url, clock):
        with Runtime.open(url, clock=clock) as rt:
            return make_activity(rt).run("Where is my order?", workflow_id="w", run_id="1")

    for point in crash_points(lambda: attempt(new_database(), ManualClock())):
        url, clock = new_database(), ManualClock()
        with point.crash():
            attempt(url, clock)
        clock.advance(61)  # the dead worker's lease runs out
        assert attempt(url, clock) == "It is on its way."

The work has to pass the same points each time, so tools that run side by side should not race each other.
A real death leaves nothing running; here a thread that was already inside a tool runs on to the tool's end.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from memoflow import faults

__all__ = ["CrashPoint", "crash_points"]

Hook = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """One point that a piece of work passes.

    Attributes:
        index: how many points it passes before this one.
        name: ``before:<Step>`` or ``after:<Step>`` of the protocol, ``commit:before`` (all is written and
            nothing committed), ``commit:after`` (it is durable, and nobody knows yet), or a name of the
            test's own.
        occurrence: which one of this name it is, from 1.
    """

    index: int
    name: str
    occurrence: int

    def __str__(self) -> str:
        return f"{self.name} #{self.occurrence}"

    @contextmanager
    def crash(self) -> Iterator[None]:
        """Run the block until this point, where it dies; the block's end is then never reached.

        Close whatever runtime the block opens inside of it: a dead runtime closes without recording anything.
        A hook that was installed in `memoflow.faults` before is still called, first.

        Raises:
            AssertionError: the block ended without passing this point, or passed another one in its place.
        """
        death = _Death(self)
        with _installed(death):
            try:
                yield
            except (faults.Stop, asyncio.CancelledError, Exception):
                # What a dead program raises on its way down is heard by nobody.
                if death.found is None:
                    raise
        if death.found != self.name:
            passed = "it ended before" if death.found is None else f"it passed {death.found!r} there"
            raise AssertionError(
                f"The work did not pass {self} as point {self.index}; {passed}. "
                "It has to pass the same points each time it runs."
            )


def crash_points(work: Callable[[], object]) -> tuple[CrashPoint, ...]:
    """Run ``work`` to its end and return every point it passed, in order."""
    passed: list[CrashPoint] = []
    seen: Counter[str] = Counter()
    lock = threading.Lock()

    def note(name: str) -> None:
        with lock:
            seen[name] += 1
            passed.append(CrashPoint(len(passed), name, seen[name]))

    with _installed(note):
        work()
    return tuple(passed)


class _Death:
    """A hook that raises at one point, and at every one after it, on all threads."""

    def __init__(self, point: CrashPoint) -> None:
        self._left = point.index
        self._lock = threading.Lock()
        self.found: str | None = None

    def __call__(self, name: str) -> None:
        with self._lock:
            if self.found is None and self._left > 0:
                self._left -= 1
                return
            if self.found is None:
                self.found = name
        raise faults.Stop(name)


@contextmanager
def _installed(hook: Hook) -> Iterator[None]:
    """Have points call this hook, after the one they called before."""

    def both(name: str) -> None:
        if before is not None:
            before(name)
        hook(name)

    before = faults.install(None)
    faults.install(both)
    try:
        yield
    finally:
        faults.install(before)
