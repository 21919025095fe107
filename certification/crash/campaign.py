"""A campaign on one database: rounds, an audit after each, and the reckoning at the end."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from certification.crash.auditor import Violation, audit
from certification.crash.auditor.tables import open_tables
from certification.crash.operator import Operator
from certification.crash.plan import LEASE_S, Plan
from certification.crash.provider import Provider
from certification.crash.round import play_round, run_workers
from certification.crash.site import PostgresSite, Site, SqliteSite
from certification.crash.weather import Weather
from certification.crash.worker import Life
from memoflow import KeyRing

__all__ = ["Result", "run_campaign"]

SITES = {"sqlite": SqliteSite, "postgresql": PostgresSite}
FINISH_S = 120.0
COUNTED = {
    "unknown requests": "SELECT count(*) AS number FROM reservations WHERE decision_id IS NOT NULL",
    "late writes refused": "SELECT count(*) AS number FROM evidence",
    "journal rows": "SELECT count(*) AS number FROM journal",
}
AT_THE_END = 20
"""How often work and decisions take turns at the end before something must be stuck.

A tool that may not run again needs a decision each time it breaks, and on a slow machine a turn does not get
round to every activity.
"""


@dataclass
class Result:
    """What a campaign saw.

    Attributes:
        evidence: the directory with all files, kept if anything was wrong.
    """

    plan: Plan
    minutes: float
    rounds: int = 0
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    evidence: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As written to a file of evidence."""
        plan = {"seed": self.plan.seed, "database": self.plan.database, "jobs": self.plan.jobs}
        return plan | {
            "minutes": self.minutes,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "counts": self.counts,
            "facts": self.facts,
            "violations": [violation._asdict() for violation in self.violations],
            "evidence": self.evidence,
        }


def run_campaign(plan: Plan, minutes: float) -> Result:
    """Play rounds until the time is over or a rule is broken, then reconcile everything."""
    result = Result(plan, minutes)
    directory = Path(tempfile.mkdtemp(prefix="mfc-"))
    # What the operator's runtime warns of is meant to happen.
    logging.getLogger("memoflow").addHandler(logging.NullHandler())
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["certification.crash.warm"])
    # Importing everything takes as long as a round.
    warm = context.Process(target=int)
    warm.start()
    warm.join()
    weather = Weather(context)
    try:
        with SITES[plan.database](directory, weather) as site, Provider(plan) as provider:
            _Campaign(plan, site, provider, context, directory, result).run(minutes * 60)
            if result.violations and plan.database == "sqlite":
                shutil.copytree(site.directory / "disk", directory / "ledger")
    finally:
        if result.violations:
            result.evidence = str(directory)
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return result


class _Campaign:
    def __init__(
        self, plan: Plan, site: Site, provider: Provider, context: Any, directory: Path, result: Result
    ) -> None:
        self._plan, self._site, self._provider, self._context = plan, site, provider, context
        self._evidence = directory / "evidence"
        self._evidence.mkdir()
        self._result = result
        self._counts: Counter[str] = Counter()
        self._key = KeyRing.generate().export()
        self._operator = Operator(site.url, self._key, self._evidence, provider.base_url, site.weather)
        self._left: list[str] = []
        self._begun: list[str] = []

    def run(self, seconds: float) -> None:
        """All of it."""
        began = time.monotonic()
        for number in count():
            self._round(number)
            self._result.rounds += 1
            if self._result.violations or time.monotonic() - began > seconds:
                break
        if not self._result.violations:
            self._finish()
        self._report(time.monotonic() - began)

    def _life(self, jobs: list[str], name: str) -> Life:
        return Life(
            self._plan,
            self._site.workers_url,
            self._key,
            self._provider.base_url,
            self._evidence,
            name,
            tuple(jobs),
            None,
        )

    def _round(self, number: int) -> None:
        round = self._plan.round(number)
        self._operator.prepare(round)
        # A slow machine takes up new work only when the old is done.
        new = [job.name for job in round.jobs] if len(self._left) < len(round.jobs) else []
        self._begun += new
        jobs = [*self._left, *new]
        play_round(
            round,
            self._life(jobs, ""),
            context=self._context,
            site=self._site,
            operator=self._operator,
            counts=self._counts,
        )
        # Whoever was killed holds its lease until it ends, and nobody may decide before that.
        self._site.weather.step(LEASE_S + 1)
        self._audit()
        if not self._result.violations:
            self._operator.decide(round.reconciled)
            self._audit()
        over = self._over("completed", "denied")
        self._left = [name for name in jobs if name not in over]

    def _finish(self) -> None:
        """Do what is left in peace, decide about everything, and compare every figure."""
        self._operator.lift()
        completed = self._over("completed")
        self._left = [name for name in self._begun if name not in completed]
        for turn in range(AT_THE_END):
            if self._left:
                life = self._life(self._left, f"end-{turn}")
                run_workers(life, context=self._context, weather=self._site.weather, seconds=FINISH_S)
            self._site.weather.step(LEASE_S + 1)
            self._provider.write_record(self._evidence / "provider.jsonl")
            undecided = self._operator.decide("everything")
            # The budget of a run is its own, and may be used up for good.
            over = self._over("completed", "denied", lives="end-*")
            self._left = [name for name in self._left if name not in over]
            if not self._left and not undecided:
                break
        for name in self._left:
            self._result.violations.append(Violation("NEVER_ENDED", name, "it came to no end in peace"))
        self._audit(final=True)
        self._verify()

    def _audit(self, *, final: bool = False) -> None:
        self._provider.write_record(self._evidence / "provider.jsonl")
        self._result.violations += audit(self._site.url, self._evidence, final=final)
        for line in self._heard():
            if line["event"] == "unexpected":
                self._result.violations.append(Violation("UNEXPECTED", line["job"], line["said"]))

    def _verify(self) -> None:
        command = [sys.executable, "-m", "memoflow.cli", "verify"]
        environment = os.environ | {
            "MEMOFLOW_DATABASE_URL": self._site.url,
            "MEMOFLOW_OUTPUT_KEYS": self._key,
        }
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            self._result.violations.append(Violation("VERIFY", "memoflow verify", done.stdout + done.stderr))

    def _heard(self, lives: str = "*") -> list[dict[str, Any]]:
        return [
            json.loads(line)
            for path in sorted(self._evidence.glob(f"worker-{lives}.jsonl"))
            for line in path.read_text(encoding="utf-8").split("\n")[:-1]
        ]

    def _over(self, *events: str, lives: str = "*") -> set[str]:
        """The jobs that came to such an end in some life of a worker."""
        return {line["job"] for line in self._heard(lives) if line["event"] in events}

    def _report(self, seconds: float) -> None:
        heard = self._heard()
        outcomes = Counter(line["event"] for line in heard)
        self._counts["activities completed"] = len(
            {line["job"] for line in heard if line["event"] == "completed"}
        )
        self._counts["denials"] = outcomes["denied"]
        self._counts["commit replies lost"] = outcomes["lost"]
        for line in heard:
            if line["event"] == "ended":
                self._counts[f"attempts ended by {line['error']}"] += 1
            elif line["event"] == "database error":
                self._counts[f"database error {line['code']}"] += 1
        self._counts["requests"] = _count(self._evidence / "provider.jsonl")
        self._counts["tool executions"] = _count(self._evidence / "tools.jsonl")
        self._counts["decisions on unknowns"] = self._operator.decisions
        with open_tables(self._site.url) as tables:
            for name, query in COUNTED.items():
                (row,) = tables.rows(query)
                self._counts[name] = row["number"]
        self._result.seconds = round(seconds, 1)
        self._result.counts = dict(sorted(self._counts.items()))
        self._result.facts = self._site.facts()


def _count(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0
