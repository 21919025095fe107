"""One round: workers that live and die, and faults at their times."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.context import BaseContext
from typing import Any

from certification.crash.operator import Operator
from certification.crash.plan import CHAOS_S, LEASE_S, WORKERS, Fault, Round
from certification.crash.site import Site
from certification.crash.weather import Weather
from certification.crash.worker import Life, work
from memoflow.errors import LedgerUnavailable

__all__ = ["play_round", "run_workers"]

CALM_S = 8.0
"""For how long workers may finish after the last fault."""
LOOK_S = 0.02


def play_round(
    round: Round, life: Life, *, context: BaseContext, site: Site, operator: Operator, counts: Counter[str]
) -> None:
    """Run the jobs of a round under its faults; afterwards no worker lives and nothing is wrong any more."""
    workers = _Workers(context, life, round, site.weather, counts)
    trouble = _Trouble(round, workers, site, operator, counts)
    end = time.monotonic() + CHAOS_S
    try:
        while workers.keep_alive() and time.monotonic() < end:
            trouble.look()
            time.sleep(LOOK_S)
    finally:
        trouble.over()
    end = time.monotonic() + (0.0 if round.abrupt else CALM_S)
    while workers.keep_alive() and time.monotonic() < end:
        time.sleep(LOOK_S)
    workers.end()


def run_workers(life: Life, *, context: BaseContext, weather: Weather, seconds: float) -> None:
    """Let one worker do its jobs in peace, for so long at most."""
    process: Any = context.Process(target=work, args=(life, weather))  # type: ignore[attr-defined]
    process.start()
    process.join(seconds)
    process.kill()
    process.join()


class _Workers:
    """The processes of a round. One that is killed is replaced; one that is done is not."""

    def __init__(
        self, context: Any, life: Life, round: Round, weather: Weather, counts: Counter[str]
    ) -> None:
        self._context, self._life, self._round, self._weather = context, life, round, weather
        self._counts = counts
        self._born = [0] * WORKERS
        self._alive: list[Any] = [self._start(number) for number in range(WORKERS)]

    def _start(self, number: int) -> Any:
        deaths, born = self._round.deaths[number], self._born[number]
        self._born[number] += 1
        name = f"{self._round.number}-{number}-{born}"
        # Each begins somewhere else, and meets the others.
        at = len(self._life.jobs) * number // WORKERS
        jobs = (*self._life.jobs[at:], *self._life.jobs[:at])
        dies_at = deaths[born] if born < len(deaths) else None
        life = replace(self._life, name=name, jobs=jobs, dies_at=dies_at)
        process = self._context.Process(target=work, args=(life, self._weather), daemon=True)
        process.start()
        return process

    def keep_alive(self) -> bool:
        """Replace the dead; whether anybody still works."""
        for number, process in enumerate(self._alive):
            if process.exitcode is None or process.exitcode == 0:
                continue
            self._counts["worker deaths"] += 1
            if process.exitcode != -signal.SIGKILL:
                raise RuntimeError(f"A worker ended with code {process.exitcode}; its error is above.")
            process.close()
            self._alive[number] = self._start(number)
        return any(process.exitcode is None for process in self._alive)

    def send(self, number: int, sent: signal.Signals) -> None:
        """Send a signal to a worker that lives."""
        with suppress(ProcessLookupError):
            if self._alive[number].exitcode is None:
                os.kill(self._alive[number].pid, sent)

    def end(self) -> None:
        """Kill whoever is left."""
        for process in self._alive:
            if process.exitcode is None:
                process.kill()
                self._counts["worker deaths"] += 1
            process.join()
            process.close()


class _Trouble:
    """The faults of a round, each begun at its time and ended after its length."""

    def __init__(
        self, round: Round, workers: _Workers, site: Site, operator: Operator, counts: Counter[str]
    ) -> None:
        self._round, self._workers, self._site, self._operator = round, workers, site, operator
        self._counts = counts
        self._start = time.monotonic()
        self._coming = list(round.faults)
        self._ending: list[tuple[float, Callable[[], None]]] = []
        self._threads: list[threading.Thread] = []

    def look(self) -> None:
        """Begin and end what is due."""
        now = time.monotonic() - self._start
        while self._coming and self._coming[0].at <= now:
            fault = self._coming.pop(0)
            self._counts[f"fault {fault.kind}"] += 1
            self._begin(fault, now)
        for due, end in [one for one in self._ending if one[0] <= now]:
            self._ending.remove((due, end))
            end()

    def over(self) -> None:
        """End everything that began."""
        for _, end in self._ending:
            end()
        self._site.weather.calm()
        for thread in self._threads:
            thread.join()

    def _begin(self, fault: Fault, now: float) -> None:
        weather, end = self._site.weather, None
        length = fault.length
        if fault.kind == "kill":
            self._workers.send(fault.worker, signal.SIGKILL)
        elif fault.kind == "pause":
            # Long enough for others to take its work over; then it goes on as if nothing had been.
            self._workers.send(fault.worker, signal.SIGSTOP)
            end, length = self._waker(fault.worker), LEASE_S * (0.3 + fault.amount)
        elif fault.kind == "clock":
            weather.step(_step(fault.amount))
        elif fault.kind == "slow":
            weather.slow(0.05 + fault.amount / 4)
            end = self._quickly
        elif fault.kind == "lost":
            weather.lose(20 + round(60 * fault.amount))
            end = self._safely
        elif fault.kind == "limit":
            self._aside(lambda: self._operator.change(self._round, round(10 * fault.length), fault.amount))
        else:
            begin, end = self._site.faults()[fault.kind]
            begin(fault.amount)
        if end is not None:
            self._ending.append((now + length, end))

    def _waker(self, worker: int) -> Callable[[], None]:
        return lambda: self._workers.send(worker, signal.SIGCONT)

    def _quickly(self) -> None:
        self._site.weather.slow(0)

    def _safely(self) -> None:
        self._site.weather.lose(0)

    def _aside(self, action: Callable[[], None]) -> None:
        """Do something that waits for the database, which may be away."""

        def act() -> None:
            with suppress(LedgerUnavailable):
                action()

        thread = threading.Thread(target=act, daemon=True)
        thread.start()
        self._threads.append(thread)


def _step(amount: float) -> float:
    """Seconds that the clock steps: back, past the end of all leases, or into another period."""
    if amount < 0.35:
        return -60 * amount
    return LEASE_S + 1 if amount < 0.8 else 3_600
