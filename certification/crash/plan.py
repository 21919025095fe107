"""What is going to happen, decided by the seed alone: activities, replies, mishaps and faults."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import Final, Literal

__all__ = [
    "CHAOS_S",
    "EFFECTS",
    "JOBS",
    "LEASE_S",
    "ROOT",
    "WORKERS",
    "Call",
    "Fate",
    "Fault",
    "Job",
    "Plan",
    "Round",
]

ROOT: Final = "acme"
WORKERS: Final = 3
LEASE_S: Final = 3
CHAOS_S: Final = 8.0
"""For how long faults happen in a round."""

JOBS: Final = 100
"""Activities of a round, if not said otherwise."""

RESERVED: Final = 3_000
"""Tokens that each request reserves."""

EFFECTS: Final[dict[str, Literal["read_only", "idempotent", "at_most_once"]]] = {
    "look": "read_only",
    "put": "idempotent",
    "send": "at_most_once",
}
"""The tools there are, by what may be done when it is not known whether they ran."""

LAST_UNLUCKY_ATTEMPT: Final = 4
"""From the next attempt on nothing goes wrong by itself, so that every activity comes to an end."""

POINTS: Final = (
    "commit:before",
    "commit:after",
    "before:Dispatch",
    "after:Dispatch",
    "after:Launch",
    "after:Collect",
    "tool:entered",
    "tool:done",
)

Account = Literal["tokens", "calls", "money", "tools", "ample"]
LIMITS: Final[dict[Account, tuple[str, int, int]]] = {
    "tokens": ("total_tokens", 6_000, 15_000),
    "calls": ("model_calls", 6, 30),
    "money": ("cost", 9_000_000, 25_000_000),
    "tools": ("tool_calls", 3, 15),
    "ample": ("total_tokens", 10**9, 10**9),
}
"""The accounts of a round: what is limited, and between which amounts."""

FATES: Final = {
    "answered": 74,
    "slow": 8,
    "rejected": 3,
    "error": 3,
    "reset": 3,
    "cut": 3,
    "silent": 1,
    "usage_missing": 2,
    "incomplete": 2,
    "failed": 1,
}
MISHAPS: Final = {"none": 84, "slow": 5, "refuses": 4, "breaks_before": 3, "breaks_after": 4}
FAULTS: Final = {
    "sqlite": ("kill", "kill", "kill", "pause", "clock", "full", "slow", "lost", "limit"),
    "postgresql": ("kill", "kill", "kill", "pause", "clock", "stop", "stop", "slow", "lost", "limit"),
}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the model.

    Attributes:
        key: its name, and its replay key unless it is ``forgotten``.
        rounds: the tools that the model asks for, reply by reply, before its last one.
        overruns: the provider is not told where to stop, and goes beyond what was reserved.
        cancel_ms: it is cancelled so long after its beginning, in the first attempt.
    """

    key: str
    rounds: tuple[tuple[str, ...], ...]
    streamed: bool
    counted: bool
    overruns: bool
    forgotten: bool
    cancel_ms: int | None


@dataclass(frozen=True, slots=True)
class Job:
    """One activity.

    Attributes:
        name: its run id.
        account: where it is charged, unless its calls name ``other``.
        run_budget: tokens that its run may use in all.
        together: its calls are made side by side.
        tolerant: it goes on with its next call when one fails.
    """

    name: str
    account: str
    other: str | None
    run_budget: int | None
    is_async: bool
    together: bool
    tolerant: bool
    tries: int
    calls: tuple[Call, ...]

    @property
    def charged(self) -> tuple[str, ...]:
        """The accounts of its calls."""
        run = () if self.run_budget is None else (f"{self.account}/run:crash:{self.name}",)
        return run if run and self.other is None else (*run, self.other or self.account)


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one request at the provider."""

    kind: str
    input_tokens: int
    output_tokens: int
    performed: bool
    delay_s: float


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong ``at`` so many seconds; ``worker``, ``amount`` and ``length`` as it needs."""

    at: float
    kind: str
    worker: int
    amount: float
    length: float


@dataclass(frozen=True, slots=True)
class Round:
    """One round of the campaign.

    Attributes:
        limits: hard limits of its accounts: path, dimension, amount.
        deaths: for the lives of each worker, one after the other, the point at which it kills itself.
        abrupt: it ends with the death of all workers; otherwise they may finish.
        reconciled: what the operator does about unknown requests afterwards.
    """

    number: int
    jobs: tuple[Job, ...]
    limits: tuple[tuple[str, str, int], ...]
    faults: tuple[Fault, ...]
    deaths: tuple[tuple[tuple[str, int] | None, ...], ...]
    abrupt: bool
    reconciled: Literal["nothing", "retrieved", "everything"]


@dataclass(frozen=True)
class Plan:
    """Everything that a seed decides, for one kind of database and so many ``jobs`` a round."""

    seed: int
    database: str = "sqlite"
    jobs: int = JOBS
    _jobs: dict[str, Job] = field(default_factory=dict, repr=False, compare=False)

    def _random(self, *about: object) -> Random:
        return Random(repr((self.seed, *about)))

    def round(self, number: int) -> Round:
        """A round, from 0."""
        random = self._random("round", number)
        limits = [
            (f"{ROOT}/r{number}-{name}", dimension, random.randint(low, high))
            for name, (dimension, low, high) in LIMITS.items()
        ]
        kinds = FAULTS[self.database]
        faults = [_fault(random, random.choice(kinds)) for _ in range(random.randint(6, 12))]
        return Round(
            number,
            tuple(self._job(number, index) for index in range(self.jobs)),
            tuple(limits),
            tuple(sorted(faults, key=lambda fault: fault.at)),
            tuple(tuple(_death(random) for _ in range(8)) for _ in range(WORKERS)),
            random.random() < 0.5,
            random.choice(("nothing", "retrieved", "everything")),
        )

    def job(self, name: str) -> Job:
        """The activity of this name."""
        number, index = name[1:].split("-")
        return self._job(int(number), int(index))

    def _job(self, number: int, index: int) -> Job:
        name = f"r{number}-{index:03d}"
        if name not in self._jobs:
            self._jobs[name] = _job(self._random("job", name), name, f"{ROOT}/r{number}")
        return self._jobs[name]

    def fate(self, job: str, call: str, round: int, attempt: int) -> Fate:
        """What the provider does with a request."""
        random = self._random("fate", job, call, round, attempt)
        lucky = attempt > LAST_UNLUCKY_ATTEMPT
        kind = "answered" if lucky else random.choices(list(FATES), list(FATES.values()))[0]
        overruns = any(one.key == call and one.overruns for one in self.job(job).calls)
        output = random.randint(RESERVED, 2 * RESERVED) if overruns else random.randint(16, 300)
        return Fate(
            kind, random.randint(10, 200), output, random.random() < 0.6, random.choice((0.05, 0.2, 0.6))
        )

    def mishap(self, item: str, attempt: int) -> str:
        """What goes wrong with one execution of a tool."""
        if attempt > LAST_UNLUCKY_ATTEMPT:
            return "none"
        return self._random("mishap", item, attempt).choices(list(MISHAPS), list(MISHAPS.values()))[0]


@lru_cache
def _accounts(prefix: str) -> tuple[str, ...]:
    return tuple(f"{prefix}-{name}" for name in LIMITS)


def _job(random: Random, name: str, prefix: str) -> Job:
    accounts = _accounts(prefix)
    account = random.choice(accounts)
    others = [other for other in accounts if other != account]
    calls = random.choices((0, 1, 2, 3), (1, 8, 4, 2))[0]
    return Job(
        name,
        account,
        random.choice(others) if random.random() < 0.1 else None,
        random.choice((8_000, 40_000)) if random.random() < 0.15 else None,
        random.random() < 0.5,
        random.random() < 0.4,
        random.random() < 0.4,
        random.choice((1, 1, 3)),
        tuple(_call(random, f"c{index}") for index in range(calls)),
    )


def _call(random: Random, key: str) -> Call:
    depth = random.choices((0, 1, 2, 3), (6, 5, 3, 1))[0]
    rounds = tuple(
        tuple(random.choice(list(EFFECTS)) for _ in range(random.choices((1, 2, 3), (6, 3, 1))[0]))
        for _ in range(depth)
    )
    return Call(
        key,
        rounds,
        random.random() < 0.35,
        random.random() < 0.1,
        random.random() < 0.04,
        not rounds and random.random() < 0.2,
        random.choice((0, 5, 30, 120, 300)) if random.random() < 0.15 else None,
    )


def _fault(random: Random, kind: str) -> Fault:
    return Fault(
        round(random.uniform(0.2, CHAOS_S), 3),
        kind,
        random.randrange(WORKERS),
        round(random.random(), 3),
        round(random.uniform(0.2, 1.2), 3),
    )


def _death(random: Random) -> tuple[str, int] | None:
    return (random.choice(POINTS), random.randint(1, 25)) if random.random() < 0.6 else None
