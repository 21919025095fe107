"""Refusals of reservations that say nothing about tokens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memoflow.budget import DIMENSIONS, Budget, Money
from memoflow.errors import BudgetDenied, BudgetUnbounded
from memoflow.ledger.accounts import SetAccountState
from tests.ledger._calls import NAMESPACE, Ledger, ask, open_ledger, start


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
