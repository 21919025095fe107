"""The ledger against an independent model of its rules, driven at random."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from memoflow.ledger.verify import verify
from tests.model._machine import Bench
from tests.model._rules import rules_on

USUAL_PROFILE = 100
RUNS, STEPS = 50, 40
EXPECTED = [
    "StartInvocation done",
    "StartInvocation BudgetDenied",
    "StartInvocation LeaseLost",
    "SettleInvocation done",
    "SettleInvocation ReservationConflict",
    "DecideInvocation done",
    "DecideInvocation ActivityBusy",
    "ClaimActivity ActivityBusy",
    "batches",
    "reply_lost",
    "commit_lost",
    "death before",
    "death after",
]
"""What a random caller cannot miss in so many runs; without it the comparison would say little."""


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
            phases=[phase for phase in Phase if phase is not Phase.explain],
        ),
    )
    assert bench.database.read(verify) == []
    if chosen >= USUAL_PROFILE:
        assert [what for what in EXPECTED if not bench.seen[what]] == []
