"""What a death at each point may cost, told from nothing but the order of the points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memoflow.testing import CrashPoint
from tests.crash._scenarios import AT_MOST_ONCE, Scenario

__all__ = ["Expected", "expected"]


@dataclass(frozen=True, slots=True)
class Expected:
    """The figures after recovery.

    Attributes:
        requests: arrived at the provider.
        replies: recorded and paid.
        rejections: recorded, each counted as a model call.
        unknown: holds that are kept.
        done: effects brought about.
    """

    requests: int
    replies: int
    rejections: int
    unknown: int
    done: int


@dataclass(frozen=True, slots=True)
class _Request:
    """It is durable from ``started`` on, and its end from ``settled`` on; after ``sent`` it may arrive."""

    started: int
    sent: int
    settled: int
    kind: str

    def lost(self, at: int) -> bool:
        return self.started <= at < self.settled

    def asked(self, at: int) -> bool:
        return self.sent < at < self.settled


class _Trace:
    def __init__(self, points: Sequence[CrashPoint]) -> None:
        self.names = [point.name for point in points]

    def all(self, prefix: str) -> list[int]:
        return [n for n, name in enumerate(self.names) if name.startswith(prefix)]

    def next(self, name: str, after: int) -> int:
        return next(n for n in range(after + 1, len(self.names)) if self.names[n] == name)

    def last(self, name: str, before: int) -> int:
        return next(n for n in range(before - 1, -1, -1) if self.names[n] == name)

    def requests(self, scenario: Scenario) -> list[_Request]:
        found = []
        for sent in self.all("before:Dispatch"):
            settled = self.next("commit:after", self.next("after:Dispatch", sent))
            first = "unsent" if scenario.stopped == "when_started" else scenario.first
            kind = "answered" if found else first
            found.append(_Request(self.last("commit:after", sent), sent, settled, kind))
        return found

    def effects(self, scenario: Scenario) -> list[tuple[str, int, int]]:
        """Tool, where it is done, and where that is durable."""
        if scenario.together:
            done = self.next("after:Collect", 0)
            first = self.next("commit:after", done)
            ends = first, self.next("commit:after", first)
            return [(name, done, end) for (_, _, name), end in zip(scenario.calls, ends, strict=True)]
        return [
            (self.names[n].rpartition(":")[2], n, self.next("commit:after", n)) for n in self.all("tool:done")
        ]


def expected(scenario: Scenario, points: Sequence[CrashPoint], at: int) -> Expected:
    """The figures after a death at point number ``at`` and a recovery; past the end there is no death."""
    trace = _Trace(points)
    requests = trace.requests(scenario)
    # A request that was under way is asked again if it was going to be answered: nothing else is known of it.
    # One that was going to fail has failed; the next is answered.
    asked_again = sum(request.kind == "answered" and request.asked(at) for request in requests)
    rejections = sum(request.kind == "rejected" and not request.asked(at) for request in requests)
    unknown = sum(
        request.kind in ("timed_out", "cancelled") and not request.asked(at) for request in requests
    )
    done = trace.effects(scenario)
    repeated = sum(name not in AT_MOST_ONCE and start <= at < end for name, start, end in done)
    return Expected(
        requests=sum(request.kind != "unsent" for request in requests) + asked_again,
        replies=len(scenario.rounds) + 1 if scenario.asks else 0,
        rejections=rejections,
        unknown=unknown + sum(request.lost(at) for request in requests),
        done=len(scenario.calls) + repeated,
    )
