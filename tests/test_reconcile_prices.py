"""What a retrieved reply costs."""

from __future__ import annotations

from memoflow import Price, PriceBook, Runtime
from memoflow.reconcile import Reconciler
from memoflow.testing import stream_ends_early, text
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
