"""Many processes on one budget (field case 31)."""

from __future__ import annotations

import pytest

from memoflow import Budget
from memoflow.budget import Amounts
from memoflow.ledger.verify import verify
from tests._processes import together
from tests.races.racers import NEED, Place, spend, spend_on_own

RACERS = 8
FIT = 3
ROUNDS = 4


@pytest.mark.parametrize(
    "limits", [Budget(total_tokens=FIT * NEED), Budget(model_calls=FIT)], ids=["tokens", "calls"]
)
def test_a_budget_admits_exactly_as_many_as_fit(place: Place, limits: Budget) -> None:
    """Eight processes ask at once, every time for the first reservation of an account's period: as many as
    fit are admitted, neither more nor fewer, and each of the others is told which dimension did not fit."""
    accounts = [f"acme/{number}" for number in range(ROUNDS)]
    with place.open() as runtime:
        runtime.budgets.put("acme", Budget(), period="month")
        for account in accounts:
            runtime.budgets.put(account, limits, period="day")
        outcomes = together(spend, RACERS, place, accounts)
        (refused,) = {name for name, limit in limits.items() if limit is not None}
        for one_account in zip(*outcomes, strict=True):
            assert sorted(one_account) == sorted(["admitted"] * FIT + [refused] * (RACERS - FIT))
        for account in accounts:
            shown = runtime.budgets.show(account)
            assert (shown.settled.total_tokens, shown.settled.model_calls) == (FIT * NEED, FIT)
            assert shown.held == shown.unknown == Amounts()
        assert runtime.budgets.show("acme").settled.model_calls == FIT * ROUNDS
        assert runtime.ledger.database.read(verify) == []


def test_a_parent_admits_exactly_as_many_as_fit_of_all_its_children(place: Place) -> None:
    """Processes on accounts of their own compete for what a parent allows that nobody has used yet."""
    with place.open() as runtime:
        for number in range(ROUNDS):
            runtime.budgets.put(f"{number}", Budget(total_tokens=FIT * NEED), period="week")
            for index in range(RACERS):
                runtime.budgets.put(f"{number}/{index}", Budget(total_tokens=10 * NEED))
        outcomes = together(spend_on_own, RACERS, place, ROUNDS)
        for one_parent in zip(*outcomes, strict=True):
            assert one_parent.count("admitted") == FIT
        for number in range(ROUNDS):
            assert runtime.budgets.show(f"{number}").settled.total_tokens == FIT * NEED
        assert runtime.ledger.database.read(verify) == []
