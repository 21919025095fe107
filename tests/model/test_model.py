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
RUNS, STEPS = 30, 40
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
"""What a random caller has to come by; without it the comparison would say little."""
ROUNDS = 5
"""How often chance, which now and then leaves one of them out, is given another go at it."""


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
    options = settings(
        max_examples=RUNS if chosen == USUAL_PROFILE else chosen,
        stateful_step_count=STEPS,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[phase for phase in Phase if phase is not Phase.explain],
    )
    for _ in range(ROUNDS):
        run_state_machine_as_test(rules_on(bench), settings=options)
        missing = [what for what in EXPECTED if not bench.seen[what]]
        if not missing or chosen < USUAL_PROFILE:
            break
    assert bench.database.read(verify) == []
    assert missing == [] or chosen < USUAL_PROFILE
