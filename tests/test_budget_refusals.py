"""What the refusals of budgets say: money as decimals, and advice that can be followed."""

from __future__ import annotations

from typing import Any

import pytest

from memoflow.errors import BudgetDenied, BudgetTooSmall

DENIED: dict[str, Any] = {"account": "acme", "dimension": "total_tokens", "limit": 1000, "settled": 900}
DENIED |= {"held": 50, "unknown": 0, "requested": 200}
SMALL: dict[str, Any] = {"dimension": "total_tokens", "reserved": 100, "needed": 250}
SMALL |= {"output_cap_fits": 0, "basis": "bound"}


def test_money_is_said_in_decimals_with_its_currency() -> None:
    """The attributes are exact nano-units; nobody should have to count their zeros."""
    money = {"dimension": "cost", "limit": 2_500_000_000, "settled": 2_000_000_000, "held": 1}
    error = BudgetDenied(**{**DENIED, **money, "requested": 10**18, "currency": "EUR"})
    assert (
        "refused 1000000000 EUR cost: limit 2.5 EUR, settled 2 EUR, held 0.000000001 EUR, "
        "unknown 0 EUR, so 0.499999999 EUR would fit on this account."
    ) in str(error)
    assert (error.limit, error.requested, error.currency) == (2_500_000_000, 10**18, "EUR")
    small = {"dimension": "cost", "reserved": 500_000, "needed": 10**9, "output_cap_fits": 9}
    said = str(BudgetTooSmall(**{**SMALL, **small, "currency": "USD"}))
    assert "reservation of 0.0005 USD cost" in said
    assert "needs 1 USD" in said
    assert "reserve at least 1 USD" in said


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (
            BudgetDenied(**DENIED, output_cap_fits=0),
            "No output cap that the provider takes would fit beside the input. Raise the limit or shorten",
        ),
        (BudgetDenied(**DENIED), "so 50 would fit on this account. Raise the limit or ask for less."),
        (
            BudgetTooSmall(**SMALL),
            "The input leaves no room for an output cap that the provider takes; shorten the input",
        ),
        (
            BudgetTooSmall(**SMALL | {"dimension": "output_tokens", "reserved": 0}),
            "That is less output than the provider can be asked for; leave output_tokens out or reserve at",
        ),
    ],
)
def test_where_no_output_cap_would_fit_none_is_proposed(
    error: BudgetDenied | BudgetTooSmall, advice: str
) -> None:
    """What does not fit is the input, and what to do about it is said instead."""
    assert advice in str(error)
    assert "cap of 0" not in str(error)
