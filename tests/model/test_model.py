"""The ledger against an independent model of its rules, driven at random."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from memoflow.ledger.verify import verify
from tests.model._machine import Bench
from tests.model._rules import rules_on

USUAL_PROFILE = 100
RUNS, STEPS = 100, 40


@pytest.fixture
def bench(database_url: str) -> Iterator[Bench]:
    """One database of each kind for all runs."""
    opened = Bench(database_url)
    yield opened
    opened.close()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_ledger_does_what_the_rules_say(bench: Bench) -> None:
    """After every step every balance, state and refusal is what the model says."""
    chosen = settings().max_examples
    run_state_machine_as_test(
        rules_on(bench),
        settings=settings(
            max_examples=RUNS if chosen == USUAL_PROFILE else chosen,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert bench.database.read(verify) == []
    print(*sorted(bench.seen.items()), sep="\n")
