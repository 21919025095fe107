"""What a retrieved reply costs."""

from __future__ import annotations

import pytest

from memoflow import Budget, Money, Price, PriceBook, Runtime
from memoflow.reconcile import Reconciler
from memoflow.testing import stream_ends_early, temporary_runtime, text
from tests.test_reconcile import World, rt

__all__ = ["rt"]


def test_a_price_in_another_currency_is_no_price(rt: Runtime) -> None:
    """Its figure would mean something else on the account; the cost is charged as it was reserved."""
    world = World(rt, stream_ends_early(text("Because.")), store_interrupted=True)
    id = world.lose()
    (reserved,) = [entry.reserved for entry in rt.reconcile.list().invocations]
    foreign = PriceBook({"gpt-test": Price(input=1, output=2, currency="EUR")})
    database, writer = rt.ledger.database, rt.ledger.writer
    reconciler = Reconciler(database, writer, rt.namespace, rt.vault, digester=rt.digester, prices=foreign)
    (attempted,) = reconciler.auto(world.llm.retrieve)
    assert attempted.decision is not None
    assert (attempted.invocation_id, attempted.decision.actual.cost) == (id, reserved.cost)  # type: ignore[union-attr]
    assert rt.reconcile.show(id).invocation.cost is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("usage", "nanos"),
    [
        (Budget(input_tokens=5_000, output_tokens=6_000), 5_000 * 1_000 + 6_000 * 2_000),
        (Budget(input_tokens=10, output_tokens=1), 10 * 1_000 + 2_000),
        (Budget(total_tokens=30), 30 * 2_000),
        (Budget(input_tokens=10, output_tokens=1, cost=Money(7)), 7),
    ],
    ids=["more than reserved", "less", "a total is all of the dearer kind", "a cost that is given"],
)
def test_a_decision_on_tokens_costs_what_they_cost(usage: Budget, nanos: int) -> None:
    """Neither what was reserved nor less than the price."""
    prices = PriceBook({"gpt-test": Price(input=1, output=2)})
    with temporary_runtime(prices=prices) as runtime:
        runtime.budgets.put("acme", Budget(cost=Money.of(1)))
        world = World(runtime, stream_ends_early(text("Because.")))
        decision = runtime.reconcile.settle(world.lose(), usage, actor="ann", reason="the usage page")
        assert decision.actual is not None
        assert decision.actual.cost == nanos
        assert runtime.budgets.show("acme").settled.cost == nanos
