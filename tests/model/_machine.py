"""A random caller that drives the ledger and the model side by side, and compares them after every step."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis.stateful import RuleBasedStateMachine

from memoflow import faults
from memoflow.errors import MemoflowError
from memoflow.ledger.database import Database
from memoflow.ledger.transaction import Operation
from memoflow.ledger.verify import verify
from memoflow.ledger.writer import Writer
from memoflow.periods import from_datetime
from tests.ledger._notes import Line
from tests.model._ledger import activity_rows, figures, model_state, state, value
from tests.model._model import Model, Outcome, Refused

__all__ = ["DAY", "SECOND", "START", "Bench", "Machine"]

SECOND = 1_000_000
DAY = 86_400 * SECOND
# A day before the clocks of Berlin go forward, in the last days of a month and of a week.
START = from_datetime(datetime(2027, 3, 27, 1, 59, 59, tzinfo=ZoneInfo("Europe/Berlin")))
FATES = ["fine"] * 12 + ["reply_lost", "commit_lost", "commit_refused", "death before", "death after"]
SIZES = [1, 1, 2, 3, 5]


class Bench:
    """A database whose clock the machine sets. Each run of the machine has a namespace of its own in it.

    Attributes:
        seen: how often each kind of operation ended in each way, over all runs.
    """

    def __init__(self, url: str) -> None:
        self.now = START
        self.database = Database(url, clock=lambda connection: self.now)
        self.line = Line(self.database)
        self.runs = 0
        self.seen: Counter[str] = Counter()

    def close(self) -> None:
        """Close the connections."""
        self.database.close()


@dataclass(frozen=True)
class Step:
    """One operation, and what the model says it must come to."""

    operation: Operation[Any]
    expected: Outcome


class Machine(RuleBasedStateMachine):
    """What carries out the steps; which ones there are is for a subclass to say.

    Steps are collected into batches, each of which meets a fate: it goes through, or its commit or the
    reply is lost, or the process dies before or after it.
    """

    bench: Bench

    def __init__(self) -> None:
        super().__init__()
        self.bench.runs += 1
        self.bench.now = START
        self.namespace = f"run-{self.bench.runs}"
        self.model = self.before = Model(START)
        self.rows: dict[str, str] = {}
        self.pending: list[Step] = []
        self.batch, self.fate = 1, "fine"
        self.chance: random.Random | None = None
        # Two writers on one database, as two processes have.
        self.writers = [Writer(self.bench.database), Writer(self.bench.database)]

    def teardown(self) -> None:
        """The run ends with a ledger that proves itself."""
        self.flush()
        for writer in self.writers:
            writer.close()
        assert self.bench.database.read(lambda connection: verify(connection, self.namespace)) == []

    def do(self, operation: Operation[Any], say: Callable[[Model], Outcome]) -> None:
        """One step of both."""
        if not self.pending:
            self.before = copy.deepcopy(self.model)
        self.pending.append(Step(operation, say(self.model)))
        if len(self.pending) >= self.batch:
            self.flush()

    def set_clock(self, now: int) -> None:
        """Let the clocks of both show another time."""
        self.flush()
        if abs(now - START) < 36_500 * DAY:
            self.bench.now = self.model.now = now

    def flush(self) -> None:
        """Submit what was collected, and compare."""
        steps, self.pending = self.pending, []
        fate = self.fate
        if self.chance is not None:
            self.batch, self.fate = self.chance.choice(SIZES), self.chance.choice(FATES)
        if not steps:
            return
        self.bench.seen[fate] += 1
        self.bench.seen["batches"] += len(steps) > 1
        if fate.startswith("death"):
            self._die(steps, fate)
        else:
            self.bench.line.commits = [] if fate == "fine" else [getattr(self.bench.line, fate)]
            for step, found in zip(steps, self._submit(steps), strict=True):
                self._compare(step, found)
        self.rows = self.bench.database.read(lambda connection: activity_rows(connection, self.namespace))
        found = self.bench.database.read(lambda connection: state(connection, self.namespace))
        for part, said in model_state(self.model).items():
            assert found[part] == said, part

    def _submit(self, steps: list[Step]) -> list[Any]:
        futures = self.writers[0].submit(*[step.operation for step in steps])
        found = [future.exception(timeout=60) or future.result() for future in futures]
        self.writers.reverse()
        return found

    def _die(self, steps: list[Step], fate: str) -> None:
        point = "commit:" + fate.removeprefix("death ")

        def stop(name: str) -> None:
            if name == point:
                raise faults.Stop

        faults.install(stop)
        try:
            found = self._submit(steps)
        finally:
            faults.install(None)
        assert all(isinstance(one, faults.Stop) for one in found)
        self.writers.pop().close()
        self.writers.append(Writer(self.bench.database))
        if fate == "death before":
            self.model = self.before

    def _compare(self, step: Step, found: Any) -> None:
        ended = type(found).__name__ if isinstance(found, BaseException) else "done"
        self.bench.seen[f"{type(step.operation).__name__} {ended}"] += 1
        if isinstance(step.expected, Refused):
            assert isinstance(found, MemoflowError), (step, found)
            assert figures(found) in step.expected.ways, (step, figures(found))
        else:
            assert not isinstance(found, BaseException), (step, found)
            assert value(found) == step.expected.value, (step, found)
