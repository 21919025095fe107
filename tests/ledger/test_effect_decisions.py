"""Decisions about tool effects, and about models without a price."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from memoflow.budget import Amounts, Budget, Money
from memoflow.errors import (
    ActivityBusy,
    InvalidRequest,
    NotFound,
    PriceUnknown,
    ReservationConflict,
)
from memoflow.ledger import schema as s
from memoflow.ledger.effects import BeginEffects, EffectResult, FinishEffects
from memoflow.ledger.holdings import Ask
from memoflow.ledger.unpriced import AllowUnpriced
from memoflow.ledger.verify import verify
from tests.ledger._calls import (
    LEASE,
    NAMESPACE,
    SECOND,
    Ledger,
    ask,
    effect,
    open_ledger,
    output,
)
from tests.ledger._decisions import WANTED, decide_effect


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """A ledger with one account; when the test is over, every fact in it must hold."""
    with open_ledger(database_url) as opened:
        opened.put("acme", Budget(total_tokens=1_000, cost=Money.of(1)))
        yield opened
        assert opened.read(verify) == []


def unknown_effect(ledger: Ledger, **changes: Any) -> str:
    """An effect whose outcome is unknown, and whose attempt has ended."""
    fence = ledger.claim()
    id = ledger.start(fence, WANTED)
    new = effect(id, **changes)
    ledger.settle(fence, id, 1, 1, effects=(new,))
    ledger.do(
        FinishEffects(fence, (EffectResult(new.id, "OUTCOME_UNKNOWN", "TOOL_ERROR", error_type="OSError"),))
    )
    ledger.end(fence)
    return new.id


def test_an_effect_that_happened_is_done_with_its_result(ledger: Ledger) -> None:
    """The result goes to the protected store, its digest to the ledger."""
    id = unknown_effect(ledger)
    decision = ledger.do(decide_effect(id, result=output(id, "result"), result_bytes=7))
    row = ledger.row(s.effects, id)
    assert (row.state, row.reason, row.result_digest, row.result_bytes, row.decision_id) == (
        "DONE",
        "DECIDED",
        "sha256:result",
        7,
        decision.id,
    )
    assert (decision.kind, decision.verdict, decision.target_id) == ("effect", "happened", id)
    (kept,) = ledger.rows(s.outputs)
    assert (kept.owner_id, kept.kind) == (id, "result")


def test_an_effect_that_did_not_happen_may_run_again(ledger: Ledger) -> None:
    """FAILED / NOT_PERFORMED is a state after which a further execution is in order."""
    id = unknown_effect(ledger)
    ledger.do(decide_effect(id, "did_not_happen"))
    row = ledger.row(s.effects, id)
    assert (row.state, row.reason, row.result_digest) == ("FAILED", "NOT_PERFORMED", None)
    fence = ledger.claim()
    again = effect(row.invocation_id, execution=2, supersedes=id, idempotency_key=row.idempotency_key)
    ledger.do(BeginEffects(fence, (again,)))
    assert ledger.row(s.effects, again.id).state == "STARTED"


def test_repeating_a_decision_on_an_effect_is_a_no_op(ledger: Ledger) -> None:
    """By the same id, or by another one that says the same."""
    id = unknown_effect(ledger)
    operation = decide_effect(id, result=output(id, "result"))
    first = ledger.do(operation)
    assert ledger.do(operation) == first
    assert ledger.do(decide_effect(id, actor="bob")) == first
    assert len(ledger.rows(s.decisions)) == 1


def test_an_effect_is_decided_once(ledger: Ledger) -> None:
    """The opposite, or another result, is a conflict."""
    id = unknown_effect(ledger)
    first = ledger.do(decide_effect(id))
    for other in (
        decide_effect(id, "did_not_happen"),
        decide_effect(id, result_digest="sha256:other"),
        decide_effect(id, result_digest="sha256:other", decision_id=first.id),
    ):
        with pytest.raises(ReservationConflict):
            ledger.do(other)
    assert ledger.row(s.effects, id).result_digest == "sha256:result"


@pytest.mark.parametrize("state", ["DONE", "FAILED"])
def test_an_effect_with_a_known_end_is_not_decided(ledger: Ledger, state: str) -> None:
    """Only unknowns are decided, also where the decision would say the same."""
    fence = ledger.claim()
    id = ledger.start(fence, WANTED)
    new = effect(id)
    ledger.settle(fence, id, 1, 1, effects=(new,))
    ledger.do(FinishEffects(fence, (EffectResult(new.id, state, result_digest="sha256:result"),)))
    for verdict in ("happened", "did_not_happen"):
        with pytest.raises(ReservationConflict):
            ledger.do(decide_effect(new.id, verdict))


def test_a_running_tool_is_not_decided_but_a_lost_one_is(ledger: Ledger) -> None:
    """As for invocations: while the lease holds the attempt will say, afterwards somebody must."""
    fence = ledger.claim()
    id = ledger.start(fence, WANTED)
    tool, read = effect(id, 0), effect(id, 1, effect_class="read_only")
    ledger.settle(fence, id, 1, 1, effects=(tool, read))
    with pytest.raises(ActivityBusy):
        ledger.do(decide_effect(tool.id))
    ledger.now += LEASE
    with pytest.raises(ReservationConflict):
        ledger.do(decide_effect(read.id))
    ledger.do(decide_effect(tool.id, "did_not_happen"))
    assert ledger.row(s.effects, tool.id).reason == "NOT_PERFORMED"
    assert ledger.row(s.effects, read.id).reason == "ATTEMPT_LOST"
    assert ledger.rows(s.activities)[0].state == "FREE"


@pytest.mark.parametrize("namespace", [NAMESPACE, "other"])
def test_an_effect_that_is_not_there_is_said_to_be_missing(ledger: Ledger, namespace: str) -> None:
    """Nothing reads across namespaces."""
    id = unknown_effect(ledger)
    with pytest.raises(NotFound):
        ledger.do(decide_effect(id if namespace == "other" else "nothing", namespace=namespace))


def test_what_happened_needs_a_digest() -> None:
    """A DONE effect always has one, be it of no bytes."""
    with pytest.raises(InvalidRequest):
        decide_effect("anything", result_digest=None)


# Models without a price


def test_an_override_lets_an_unpriced_model_be_called(ledger: Ledger) -> None:
    """Before it the call is refused, after it counted as costing nothing; the override is on record."""
    unpriced = Ask(ask(total_tokens=10, cost=None).amounts, None, "model-x")
    fence = ledger.claim()
    with pytest.raises(PriceUnknown):
        ledger.start(fence, unpriced)
    decision = ledger.do(AllowUnpriced(NAMESPACE, "model-x", "ann", "free preview"))
    assert (decision.kind, decision.verdict, decision.target_id) == ("unpriced", "allow", "model-x")
    ledger.start(fence, unpriced)
    assert ledger.account("acme").held._replace(total_tokens=0, model_calls=0) == Amounts()


def test_an_override_is_for_one_model_of_one_namespace(ledger: Ledger) -> None:
    """Not for names that begin the same, and not for other tenants."""
    ledger.do(AllowUnpriced(NAMESPACE, "model", "ann", "free preview"))
    ledger.do(AllowUnpriced("other", "model-x", "ann", "free preview"))
    unpriced = Ask((*WANTED.amounts[:5], None, 0), None, "model-x")
    with pytest.raises(PriceUnknown):
        ledger.start(ledger.claim(), unpriced)


def test_allowing_again_returns_the_first_override(ledger: Ledger) -> None:
    """Nothing is added by repetition."""
    first = ledger.do(AllowUnpriced(NAMESPACE, "model-x", "ann", "free preview"))
    ledger.now += SECOND
    assert ledger.do(AllowUnpriced(NAMESPACE, "model-x", "bob", "still free")) == first
    with pytest.raises(InvalidRequest):
        AllowUnpriced(NAMESPACE, "model-x", "ann", "")
