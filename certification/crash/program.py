"""``python -m certification crash``: run campaigns, print what was seen, keep the evidence."""

from __future__ import annotations

import argparse
import json
import secrets
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from certification.about import about
from certification.crash.campaign import Result, run_campaign
from certification.crash.plan import JOBS, Plan

__all__ = ["main"]

DATABASES = {"sqlite": ("sqlite",), "postgresql": ("postgresql",), "both": ("sqlite", "postgresql")}
SHOWN = 20


def main(arguments: list[str]) -> int:
    """Run the campaign; 1 if any rule was broken."""
    parser = argparse.ArgumentParser(prog="python -m certification crash", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long on each database")
    parser.add_argument("--seed", type=int, help="what decides everything; a new one by default")
    parser.add_argument("--database", choices=sorted(DATABASES), default="both")
    parser.add_argument("--jobs", type=int, default=JOBS, help="activities of a round")
    parser.add_argument("--out", type=Path, help="write what was seen to this file, as JSON")
    given = parser.parse_args(arguments)
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    known = about()
    results = []
    for database in DATABASES[given.database]:
        print(f"crash campaign on {database}, {given.minutes:g} minutes, seed {seed}", flush=True)
        with _undoing():
            results.append(run_campaign(Plan(seed, database, given.jobs), given.minutes))
        _show(results[-1])
    if given.out is not None:
        document = {"about": known, "campaigns": [result.to_json() for result in results]}
        given.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 1 if any(result.violations for result in results) else 0


@contextmanager
def _undoing() -> Iterator[None]:
    """What is mounted and started is undone, also where somebody has lost patience."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(result: Result) -> None:
    print(f"  {'rounds':<42} {result.rounds:>8}")
    print(f"  {'seconds':<42} {result.seconds:>8}")
    for name, number in (result.counts | result.facts).items():
        print(f"  {name:<42} {number:>8}")
    print(f"  {'violations':<42} {len(result.violations):>8}", flush=True)
    for violation in result.violations[:SHOWN]:
        print(f"  {violation}")
    if result.violations:
        print(
            f"  evidence is kept in {result.evidence}; the same plan again (the moment of a kill may differ):"
        )
        print(
            f"  python -m certification crash --minutes {result.minutes:g} --seed {result.plan.seed} "
            f"--database {result.plan.database} --jobs {result.plan.jobs}",
            flush=True,
        )
