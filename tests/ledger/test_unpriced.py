"""Models without a price where money is limited: refused, unless an audited override is given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memoflow.budget import DIMENSIONS, Amounts, Budget, Money
from memoflow.errors import BudgetDenied, BudgetUnbounded, InvalidRequest, PriceUnknown
from memoflow.ledger import schema as s
from memoflow.ledger.activities import Fence
from memoflow.ledger.holdings import Ask
from memoflow.ledger.unpriced import AllowUnpriced
from memoflow.ledger.verify import verify
from tests.ledger._calls import NAMESPACE, START, Ledger, open_ledger, settle, start
from tests.ledger._tables import changed, tables


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """A ledger whose root limits money, on each kind of database."""
    with open_ledger(database_url) as opened:
        opened.put("acme", Budget(cost=Money.of("1")))
        opened.put("acme/a", Budget(total_tokens=100))
        yield opened


@pytest.fixture
def fence(ledger: Ledger) -> Fence:
    """A running attempt."""
    return ledger.claim()


def unpriced(model: str = "model-x", **amounts: int | None) -> Ask:
    """What a call of a model without a price wants."""
    wanted: dict[str, int | None] = dict.fromkeys(DIMENSIONS, 0)
    wanted |= {"total_tokens": 10, "model_calls": 1, "cost": None, **amounts}
    return Ask(tuple(wanted[name] for name in DIMENSIONS), None, model)


def allow(model: str = "model-x", namespace: str = NAMESPACE, actor: str = "ann") -> AllowUnpriced:
    """The override."""
    return AllowUnpriced(namespace, model, actor, "a trial without a bill")


def test_a_model_without_a_price_is_refused(ledger: Ledger, fence: Fence) -> None:
    """Before the call, naming the model and the account that limits money; nothing is written."""
    before = tables(ledger)
    (error,) = ledger.do_all(start(fence, unpriced(), "acme/a"))
    assert isinstance(error, PriceUnknown)
    assert (error.model, error.account) == ("model-x", "acme")
    assert changed(before, tables(ledger)) == set()


def test_an_override_is_a_decision_with_actor_and_reason(ledger: Ledger) -> None:
    """Who allowed it, when and why is on record; allowing it again is the first decision."""
    first = ledger.do(allow())
    assert (first.kind, first.target_id, first.verdict) == ("unpriced", "model-x", "allow")
    assert (first.actor, first.reason, first.at) == ("ann", "a trial without a bill", START)
    ledger.now += 1
    assert ledger.do(allow(actor="bob")) == first
    assert ledger.do_all(allow("model-y"), allow("model-y", actor="bob"))[1].actor == "ann"
    assert [(row.target_id, row.actor) for row in ledger.rows(s.decisions)] == [
        ("model-x", "ann"),
        ("model-y", "ann"),
    ]


@pytest.mark.parametrize("changes", [{"model": ""}, {"actor": ""}, {"reason": ""}])
def test_an_override_needs_a_model_an_actor_and_a_reason(changes: dict[str, str]) -> None:
    """Nothing is allowed anonymously or without saying why."""
    values = {"namespace": NAMESPACE, "model": "model-x", "actor": "ann", "reason": "why"} | changes
    with pytest.raises(InvalidRequest):
        AllowUnpriced(**values)


@pytest.mark.parametrize("together", [True, False])
def test_an_allowed_model_costs_nothing(ledger: Ledger, fence: Fence, together: bool) -> None:
    """Its tokens and calls are held and settled as ever; its money counts as zero."""
    operation = start(fence, unpriced(), "acme/a")
    if together:
        ledger.do_all(allow(), operation)
    else:
        ledger.do(allow())
        ledger.do(operation)
    assert ledger.account("acme").held == Amounts(total_tokens=10, model_calls=1)
    ledger.do(settle(fence, operation.id, 3, 4))
    assert ledger.account("acme").settled == Amounts(7, 3, 4, 1)
    assert ledger.read(verify) == []


def test_an_override_is_for_one_model_in_one_namespace(ledger: Ledger, fence: Fence) -> None:
    """Neither another model nor another tenant's decision counts."""
    ledger.do_all(allow("model-y"), allow(namespace="others"))
    (error,) = ledger.do_all(start(fence, unpriced(), "acme/a"))
    assert isinstance(error, PriceUnknown)


def test_an_override_lifts_no_other_limit(ledger: Ledger, fence: Fence) -> None:
    """An allowed model is refused by every limit that it would go over, and by money that is used up."""
    ledger.do(allow())
    (error,) = ledger.do_all(start(fence, unpriced(total_tokens=101), "acme/a"))
    assert isinstance(error, BudgetDenied)
    assert (error.account, error.dimension) == ("acme/a", "total_tokens")
    (error,) = ledger.do_all(start(fence, unpriced(total_tokens=None), "acme/a"))
    assert isinstance(error, BudgetUnbounded)
    priced = Ask((1, 1, 0, 1, 0, 900_000_000, 0), "USD", "model-1")
    id = ledger.start(fence, priced, "acme/a")
    ledger.do(settle(fence, id, 1, 1, actual=Amounts(2, 1, 1, 1, 0, 1_000_000_001)))
    (error,) = ledger.do_all(start(fence, unpriced(), "acme/a"))
    assert isinstance(error, BudgetDenied)
    assert (error.dimension, error.reason) == ("cost", "over_limit")


def test_a_priced_call_without_a_bound_is_not_an_unpriced_one(ledger: Ledger, fence: Fence) -> None:
    """Where there is a price, an override does not stand in for an output cap."""
    ledger.do(allow())
    priced = Ask(unpriced().amounts, "USD", "model-x")
    (error,) = ledger.do_all(start(fence, priced, "acme/a"))
    assert isinstance(error, BudgetUnbounded)
    assert error.dimension == "cost"
