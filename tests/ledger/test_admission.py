"""Refusals of reservations: what they say, and what they promise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoflow.budget import DIMENSIONS, Amounts, Budget, Money
from memoflow.errors import BudgetDenied, BudgetError, BudgetUnbounded, EstimateRefused
from memoflow.ledger.accounts import SetAccountState
from memoflow.ledger.admission import admit
from memoflow.ledger.holdings import ZERO, Account, Ask, Balance
from memoflow.ledger.unpriced import AllowUnpriced
from memoflow.pricing import Price
from tests.ledger._calls import NAMESPACE, Ledger, ask, identity, open_ledger, start


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """A fresh ledger on each kind of database."""
    with open_ledger(database_url) as opened:
        yield opened


@pytest.mark.parametrize("hard", [Budget(), Budget(model_calls=1), Budget(total_tokens=1)])
def test_a_closed_account_refuses_whatever_it_limits(ledger: Ledger, hard: Budget) -> None:
    """Also one that limits no tokens, or nothing at all; no output cap would make it fit."""
    ledger.put("acme", hard)
    ledger.do(SetAccountState(NAMESPACE, "acme", "CLOSED", "ann", "moved"))
    (error,) = ledger.do_all(start(ledger.claim(), ask(total_tokens=1), "acme"))
    assert isinstance(error, BudgetDenied)
    assert (error.account, error.reason, error.output_cap_fits) == ("acme", "closed", None)


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_every_limited_dimension_needs_a_bound_and_says_how(ledger: Ledger, dimension: str) -> None:
    """What could be any amount is refused, with a hint, in every dimension."""
    limit = {"cost": Money(100)} if dimension == "cost" else {dimension: 100}
    ledger.put("acme", Budget(**limit))
    (error,) = ledger.do_all(start(ledger.claim(), ask(**{dimension: None}), "acme"))
    assert isinstance(error, BudgetUnbounded)
    assert (error.account, error.dimension) == ("acme", dimension)
    assert error.hint.endswith(".")


few = st.integers(0, 300)
amounts = st.tuples(*[few for _ in DIMENSIONS])


@st.composite
def accounts(draw: st.DrawFn) -> tuple[Account, Balance]:
    """An account with limits in some dimensions and something used of them."""
    hard = draw(st.tuples(*[st.none() | few for _ in DIMENSIONS]))
    state = draw(st.sampled_from(["OPEN"] * 9 + ["CLOSED"]))
    account = Account(1, "tests", "a", "none", "UTC", "USD", state, 1, False, hard, (None,) * 7)
    settled = Amounts(*[used // 4 for used in draw(amounts)])
    return account, Balance(1, 1, 0, None, settled, ZERO, ZERO, 0, "", 0)


@given(
    chain=st.lists(accounts(), min_size=1, max_size=3),
    wanted=amounts,
    price=st.none() | st.builds(lambda tokens: Price(0, tokens), st.decimals("0", "0.01", places=6)),
    least=st.sampled_from([1, 16]),
)
def test_the_output_cap_of_a_refusal_is_admitted_and_the_largest(
    chain: list[tuple[Account, Balance]], wanted: tuple[int, ...], price: Price | None, least: int
) -> None:
    """Asked for with that cap, every account agrees; with one more, one refuses. 0: none would do.

    What the provider would not take is no cap.
    """
    ask = Ask(wanted, "USD", "model-1", price=price, cap_minimum=least)
    try:
        admit(chain, ask)
        return
    except BudgetDenied as denied:
        fits = denied.output_cap_fits
    if fits is None:
        return
    if fits:
        assert fits >= least
        admit(chain, ask.capped(fits))
    if (more := max(fits + 1, least)) <= max(wanted[0], wanted[2]):
        with pytest.raises(BudgetError):
            admit(chain, ask.capped(more))


def test_a_reservation_whose_input_is_not_known_is_promised_no_cap(ledger: Ledger) -> None:
    """What a cap would add up to cannot be told."""
    ledger.put("acme", Budget(total_tokens=5))
    with pytest.raises(BudgetDenied) as refusal:
        ledger.start(ledger.claim(), ask(total_tokens=6, input_tokens=None))
    assert refusal.value.output_cap_fits is None


def test_a_model_that_is_allowed_without_a_price_is_still_estimated(ledger: Ledger) -> None:
    """Allowing one thing allows no other: an account that takes no estimates refuses."""
    ledger.put("acme", Budget(cost=Money(5)), strict_input=True)
    ledger.do(AllowUnpriced(NAMESPACE, "model-1", "ann", "free of charge"))
    wanted = replace(ask(cost=None), currency=None, estimated=True)
    with pytest.raises(EstimateRefused):
        ledger.start(ledger.claim(), wanted)
    ledger.start(ledger.claim(identity("other")), replace(wanted, estimated=False))
