"""The records that the model keeps and hands out."""

from __future__ import annotations

from dataclasses import dataclass, field

from memoflow.budget import Amounts

__all__ = ["Account", "Activity", "Allowed", "Call", "Decided", "Refused", "Sums", "Want"]

NOTHING = Amounts()
Figures = tuple[object, ...]


@dataclass(frozen=True)
class Allowed:
    """What an operation returns, as far as the rules say."""

    value: object = None


@dataclass(frozen=True)
class Refused:
    """The refusals that would be right, each with its figures: where several accounts refuse, any may."""

    ways: frozenset[Figures]

    @classmethod
    def because(cls, *figures: object) -> Refused:
        """The one right refusal."""
        return cls(frozenset([figures]))


Outcome = Allowed | Refused


@dataclass
class Account:
    """An account and its limits now; hard and soft limits by dimension."""

    period: str
    zone: str
    currency: str | None
    hard: dict[str, int]
    soft: dict[str, int]
    open: bool = True
    version: int = 1


@dataclass
class Sums:
    """One account in one period; ``entries`` counts its changes."""

    settled: Amounts = NOTHING
    held: Amounts = NOTHING
    unknown: Amounts = NOTHING
    entries: int = 0


@dataclass
class Activity:
    """An activity with the states of all its attempts, and what its replay keys are bound to."""

    digest: str
    lease_ends: int
    state: str = "RUNNING"
    attempts: list[str] = field(default_factory=lambda: ["RUNNING"])
    keys: dict[str, str] = field(default_factory=dict)

    @property
    def attempt(self) -> int:
        """The number of the last attempt."""
        return len(self.attempts)


@dataclass
class Call:
    """An invocation with its reservation, and the periods of accounts that it holds on."""

    activity: str
    attempt: int
    key: str | None
    legs: list[tuple[str, int]]
    reserved: Amounts
    state: str = "STARTED"
    hold: str = "HELD"
    reason: str | None = None
    actual: Amounts | None = None
    decision: str | None = None


@dataclass(frozen=True)
class Want:
    """What a call wants to hold; None where it has no upper bound."""

    amounts: tuple[int | None, ...]
    currency: str | None
    model: str


@dataclass(frozen=True)
class Decided:
    """A decision on an unknown."""

    call: str
    verdict: str
    actual: Amounts | None
