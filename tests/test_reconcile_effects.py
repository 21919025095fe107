"""Decisions on tool effects, with real activities and a simulated provider."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from memoflow import Budget, KeyRing, Money, Price, PriceBook, Runtime, ToolCall, tool
from memoflow.canonical import Digester
from memoflow.errors import (
    InvalidRequest,
    OutcomeUnknown,
    ReservationConflict,
    ResultNotEncodable,
)
from memoflow.keyring import KeyNotFound
from memoflow.ledger.outputs import sealed_with
from memoflow.ledger.verify import verify
from memoflow.openai import OpenAIResponses
from memoflow.testing import SimulatedProvider, call, calls, text

WHO: dict[str, str] = {"actor": "ann", "reason": "asked the provider"}
DIGESTER = Digester(b"k" * 32, "d1")
KEYS = KeyRing.generate()


@pytest.fixture
def rt(database_url: str) -> Iterator[Runtime]:
    """A runtime with one account; when the test is over, every fact of the ledger must hold."""
    prices = PriceBook({"gpt-test": Price(input=1, output=2)})
    with Runtime.open(database_url, keys=KEYS, digester=DIGESTER, prices=prices) as runtime:
        runtime.budgets.put("acme", Budget(total_tokens=10_000, cost=Money.of(5)))
        yield runtime
        assert runtime.ledger.database.read(verify) == []


class Refunds:
    """A tool loop whose tool fails in a way that leaves open whether it happened."""

    def __init__(self, rt: Runtime) -> None:
        self.runs: list[str] = []
        self.fails = True
        provider = SimulatedProvider([calls(call("refund", {"cents": 5})), text("Done.")])
        self.provider = provider
        llm = OpenAIResponses(provider.client())

        @tool(version="v1", effect="at_most_once")
        def refund(cents: int, *, call: ToolCall) -> str:
            """Refund."""
            self.runs.append(call.idempotency_key)
            if self.fails:
                raise OSError("the line went dead")
            return "refunded"

        @rt.activity(version="v1", budget="acme")
        def pay(question: str) -> str:
            return llm.run_with_tools(
                {"model": "gpt-test", "input": question},
                tools=[refund],
                budget=Budget(total_tokens=2_000, tool_calls=1),
                continuation_budgets=[Budget(total_tokens=2_000)],
                replay_key="turn",
            ).response.output_text

        self.pay = pay

    def run(self) -> str:
        """Run the activity; the same identity every time."""
        return self.pay.run("Pay", workflow_id="w", run_id="r")

    def lose(self, rt: Runtime) -> str:
        """Run it into an unknown effect; returns the effect's id."""
        with pytest.raises(OSError, match="dead"):
            self.run()
        (effect,) = rt.reconcile.list().effects
        return effect.id

    def told(self) -> str:
        """What the model was told in the last request."""
        return str(json.loads(self.provider.requests[-1].body)["input"][-1]["output"])


def test_an_unknown_effect_blocks_until_it_is_decided(rt: Runtime) -> None:
    """A tool that may have run is never run again by itself."""
    world = Refunds(rt)
    id = world.lose(rt)
    with pytest.raises(OutcomeUnknown) as unknown:
        world.run()
    assert (unknown.value.kind, unknown.value.id) == ("effect", id)
    assert len(world.runs) == 1


@pytest.mark.parametrize(
    ("result", "told"), [("refunded 5", "refunded 5"), ({"ok": True}, '{"ok":true}'), (None, "null")]
)
def test_what_happened_goes_to_the_model_with_its_result(rt: Runtime, result: object, told: str) -> None:
    """The result is what the tool would have returned; the tool is not run again."""
    world = Refunds(rt)
    id = world.lose(rt)
    rt.reconcile.happened(id, result=result, **WHO)
    assert world.run() == "Done."
    assert (len(world.runs), world.told()) == (1, told)


def test_what_happened_without_a_known_result_still_goes_on(rt: Runtime) -> None:
    """The model is told that the tool ran, and not to call it again."""
    world = Refunds(rt)
    rt.reconcile.happened(world.lose(rt), **WHO)
    assert world.run() == "Done."
    assert len(world.runs) == 1
    assert "not known" in world.told()


def test_what_did_not_happen_is_run_by_the_next_attempt(rt: Runtime) -> None:
    """Under the same idempotency key."""
    world = Refunds(rt)
    rt.reconcile.did_not_happen(world.lose(rt), evidence="the bank has no record", **WHO)
    world.fails = False
    assert world.run() == "Done."
    assert len(world.runs) == 2
    assert len(set(world.runs)) == 1


@pytest.mark.parametrize("result", [{1, 2}, float("nan"), "x" * 2_000_000])
def test_a_result_that_cannot_be_given_to_a_model_is_refused(rt: Runtime, result: object) -> None:
    """Before anything is decided."""
    id = Refunds(rt).lose(rt)
    with pytest.raises(ResultNotEncodable):
        rt.reconcile.happened(id, result=result, **WHO)
    assert rt.reconcile.list().effects[0].id == id


def test_opposite_decisions_on_an_effect_are_a_conflict(rt: Runtime) -> None:
    """The first one stands."""
    id = Refunds(rt).lose(rt)
    rt.reconcile.happened(id, **WHO)
    with pytest.raises(ReservationConflict):
        rt.reconcile.did_not_happen(id, evidence="the bank has no record", **WHO)


def test_a_result_is_refused_where_the_workers_key_is_missing(rt: Runtime, database_url: str) -> None:
    """Sealed with a key of the operator's own, no worker could open it, and the decision would stick."""
    world = Refunds(rt)
    id = world.lose(rt)
    key_id = rt.ledger.database.read(sealed_with)
    with Runtime.open(database_url, keys=KeyRing.generate(), digester=DIGESTER) as other:
        with pytest.raises(KeyNotFound, match="MEMOFLOW_OUTPUT_KEYS") as missing:
            other.reconcile.happened(id, result="refunded 5", **WHO)
        assert missing.value.key_id == key_id
    assert rt.reconcile.list().effects[0].id == id
    assert world.provider.performed == 1


def test_a_result_is_sealed_so_that_the_workers_can_open_it(rt: Runtime, database_url: str) -> None:
    """Also where the operator's first key is one that they do not have."""
    world = Refunds(rt)
    id = world.lose(rt)
    ring = KeyRing.parse(f"{KeyRing.generate().export()},{KEYS.export()}")
    with Runtime.open(database_url, keys=ring, digester=DIGESTER) as other:
        other.reconcile.happened(id, result="refunded 5", **WHO)
    assert world.run() == "Done."
    assert world.told() == "refunded 5"


@pytest.mark.parametrize("evidence", [{"ticket": 7}, 7, ["never received"]])
def test_evidence_is_text_or_bytes(rt: Runtime, evidence: Any) -> None:
    """Anything else is refused by its type; nothing is decided by it."""
    id = Refunds(rt).lose(rt)
    for decide in (rt.reconcile.did_not_happen, rt.reconcile.happened):
        with pytest.raises(InvalidRequest, match=f"text or bytes, not {type(evidence).__name__}"):
            decide(id, evidence=evidence, **WHO)
    assert [one.id for one in rt.reconcile.list().effects] == [id]


@pytest.mark.parametrize("evidence", ["", " \n", b""])
def test_that_an_effect_did_not_happen_needs_proof(rt: Runtime, evidence: str | bytes) -> None:
    """As for a release: the tool would run again. Nothing is decided without it."""
    id = Refunds(rt).lose(rt)
    with pytest.raises(InvalidRequest, match="evidence is blank"):
        rt.reconcile.did_not_happen(id, evidence=evidence, **WHO)
    with pytest.raises(TypeError, match="evidence"):
        rt.reconcile.did_not_happen(id, **WHO)  # type: ignore[call-arg]
    assert rt.reconcile.list().effects[0].id == id
