"""A worker: a process that runs activities until there is nothing left to do, or until it is killed."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.engine import ExceptionContext

from certification.crash.lines import Lines
from certification.crash.plan import LEASE_S, Job, Plan
from certification.crash.play import Player
from certification.crash.tools import ToolBroke
from certification.crash.weather import Weather
from memoflow import KeyRing, Price, PriceBook, Runtime, faults
from memoflow.errors import (
    ActivityBusy,
    BudgetDenied,
    BudgetUnbounded,
    CallCancelled,
    LeaseLost,
    LedgerUnavailable,
    OutcomeUnknown,
    ProviderError,
)

__all__ = ["Life", "open_runtime", "work"]

THREADS = 3
TASKS = 4
PAUSE_S = 0.15
NAMESPACE = "crash"

DENIED = (BudgetDenied, BudgetUnbounded)
"""Refusals of a budget; the second where money is limited and a call has no output cap."""

AGAIN = (
    ActivityBusy,
    CallCancelled,
    LeaseLost,
    LedgerUnavailable,
    OutcomeUnknown,
    ProviderError,
    ToolBroke,
    asyncio.CancelledError,
)
"""How an attempt may end that somebody makes again."""


@dataclass(frozen=True, slots=True)
class Life:
    """What a worker needs to know.

    Attributes:
        jobs: the activities to run, which the other workers run too.
        dies_at: the point at which it kills itself, and which one of that name.
    """

    plan: Plan
    url: str
    key: str
    base_url: str
    evidence: Path
    name: str
    jobs: tuple[str, ...]
    dies_at: tuple[str, int] | None


def open_runtime(url: str, key: str, weather: Weather, worker: str) -> Runtime:
    """The ledger by the campaign's clock and at its prices."""
    return Runtime.open(
        url,
        namespace=NAMESPACE,
        keys=KeyRing.parse(key),
        prices=PriceBook({"gpt-5-mini*": Price("1", "2")}),
        lease_seconds=LEASE_S,
        worker=worker,
        clock=weather.clock,
    )


def work(life: Life, weather: Weather) -> None:
    """The whole life of a worker; the target of a process."""
    logging.disable(logging.CRITICAL)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_follow, args=(parent,), daemon=True).start()
    if life.dies_at is not None:
        _die_at(*life.dies_at)
    heard = Lines(life.evidence / f"worker-{life.name}.jsonl")
    with _opened(life, weather) as runtime:
        database = runtime.ledger.database
        for engine in {database.engine, database.writing}:
            _note_errors(engine, heard)
        if database.is_sqlite:
            weather.install(database.writing, lambda: heard.append(event="lost"))
        player = Player(life.plan, runtime, life.base_url, Lines(life.evidence / "tools.jsonl"), heard)
        _Crew(life, player, heard).run()


def _note_errors(engine: Engine, heard: Lines) -> None:
    """Write down what the database answers, so that it can be seen that faults arrive."""

    @event.listens_for(engine, "handle_error")
    def note(context: ExceptionContext) -> None:
        error: Any = context.original_exception
        code = getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None)
        heard.append(event="database error", code=code or type(error).__name__)


def _follow(parent: multiprocessing.process.BaseProcess) -> None:
    """Outlive nobody."""
    parent.join()
    os._exit(1)


def _die_at(name: str, occurrence: int) -> None:
    seen: Counter[str] = Counter()

    def hook(point: str) -> None:
        seen[point] += 1
        if (point, seen[point]) == (name, occurrence):
            os.kill(os.getpid(), signal.SIGKILL)

    faults.install(hook)


def _opened(life: Life, weather: Weather) -> Runtime:
    while True:
        try:
            return open_runtime(life.url, life.key, weather, life.name)
        except LedgerUnavailable:
            time.sleep(PAUSE_S)


class _Crew:
    """The threads and tasks of a worker, which share a queue of jobs of each kind."""

    def __init__(self, life: Life, player: Player, heard: Lines) -> None:
        jobs = [life.plan.job(name) for name in life.jobs]
        self._player, self._heard = player, heard
        self._sync = _Shift([job for job in jobs if not job.is_async])
        self._async = _Shift([job for job in jobs if job.is_async])

    def run(self) -> None:
        """Work until every job has come to an end, here or elsewhere."""
        threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        asyncio.run(self._serve_all())
        for thread in threads:
            thread.join()

    def _serve(self) -> None:
        for job in self._sync:
            if job is None:
                time.sleep(PAUSE_S)
                continue
            try:
                self._completed(job, self._player.run(job))
                self._sync.over(job)
            except BaseException as error:
                self._ended(self._sync, job, error)

    async def _serve_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(TASKS):
                group.create_task(self._serve_async())

    async def _serve_async(self) -> None:
        for job in self._async:
            if job is None:
                await asyncio.sleep(PAUSE_S)
                continue
            # In a task of its own: the plan may cancel it.
            task = asyncio.create_task(self._player.run_async(job))
            await asyncio.wait([task])
            if task.cancelled():
                self._ended(self._async, job, asyncio.CancelledError())
            elif (error := task.exception()) is not None:
                self._ended(self._async, job, error)
            else:
                self._completed(job, task.result())
                self._async.over(job)

    def _completed(self, job: Job, output: str) -> None:
        self._heard.append(event="completed", job=job.name, output=output)

    def _ended(self, shift: _Shift, job: Job, error: BaseException) -> None:
        """An attempt ended without an output: make another one, give up, or report what must not be."""
        for one in _leaves(error):
            name = type(one).__name__
            if isinstance(one, DENIED):
                self._heard.append(event="denied", job=job.name)
                shift.over(job)
                return
            if isinstance(one, OutcomeUnknown) and one.kind == "effect":
                # The operator finds out what it did when nobody works.
                self._heard.append(event="blocked", job=job.name)
                shift.over(job)
                return
            if not isinstance(one, AGAIN):
                said = f"{name}: {str(one).partition(chr(10))[0]}"
                trace = "".join(traceback.format_exception(one))
                self._heard.append(event="unexpected", job=job.name, said=said, trace=trace)
                shift.over(job)
                return
            if not isinstance(one, ActivityBusy):
                self._heard.append(event="ended", job=job.name, error=name)
        shift.again(job)


class _Shift:
    """Jobs of one kind; iterating gives the next one, or None while all that are left are tried elsewhere."""

    def __init__(self, jobs: list[Job]) -> None:
        self._lock = threading.Lock()
        self._waiting = deque(jobs)
        self._left = len(jobs)
        self._not_before: dict[str, float] = {}

    def __iter__(self) -> Iterator[Job | None]:
        while True:
            with self._lock:
                if not self._left:
                    return
                job = self._waiting.popleft() if self._waiting else None
                if job is not None and self._not_before.get(job.name, 0.0) > time.monotonic():
                    self._waiting.append(job)
                    job = None
            yield job

    def over(self, job: Job) -> None:
        """It needs no further attempt here."""
        with self._lock:
            self._left -= 1

    def again(self, job: Job) -> None:
        """It needs one, a little later."""
        with self._lock:
            self._not_before[job.name] = time.monotonic() + PAUSE_S
            self._waiting.append(job)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
