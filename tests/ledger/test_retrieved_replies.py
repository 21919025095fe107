"""Decisions that bring the reply: it becomes the record of its round, unless another did."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memoflow.budget import Budget, Money
from memoflow.errors import ActivityBusy
from memoflow.ledger import schema as s
from memoflow.ledger.verify import verify
from tests.ledger._calls import (
    LEASE,
    NAMESPACE,
    Ledger,
    bound,
    open_ledger,
    output,
    settle,
    start,
)
from tests.ledger._decisions import WANTED, decide, retrieved


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """A ledger with one account; when the test is over, every fact in it must hold."""
    with open_ledger(database_url) as opened:
        opened.put("acme", Budget(total_tokens=1_000, cost=Money.of(1)))
        yield opened
        assert opened.read(verify) == []


def test_a_retrieved_reply_becomes_the_record_of_its_round(ledger: Ledger) -> None:
    """The invocation ends as the reply says, with usage and the reply kept, so that a retry restores it."""
    id = ledger.unknown(WANTED, binding=bound())
    usage = Budget(input_tokens=12, output_tokens=20, cost=Money(77), tool_calls=0)
    ledger.do(decide(id, usage=usage, retrieved=retrieved(reply=output(id, "reply"))))
    row = ledger.row(s.invocations, id)
    assert (row.state, row.reason, row.finish_reason, row.response_digest) == (
        "SUCCEEDED",
        "RETRIEVED",
        "stop",
        "sha256:reply",
    )
    assert (row.input_tokens, row.cached_input_tokens, row.cache_write_tokens) == (12, 3, 2)
    assert (row.output_tokens, row.reasoning_tokens, row.cost) == (20, 5, 77)
    assert (row.reply_model, row.service_tier) == ("model-1-0125", "default")
    (kept,) = ledger.rows(s.outputs)
    assert (kept.owner_id, kept.kind, kept.namespace) == (id, "reply", NAMESPACE)


def test_a_retrieved_failure_is_recorded_as_such(ledger: Ledger) -> None:
    """A reply that failed is spent, and nothing is there to restore."""
    id = ledger.unknown(WANTED, binding=bound())
    usage = Budget(input_tokens=12, output_tokens=20, cost=Money(77))
    ledger.do(decide(id, usage=usage, retrieved=retrieved("FAILED")))
    row = ledger.row(s.invocations, id)
    assert (row.state, row.reason, row.output_tokens) == ("FAILED", "RETRIEVED", 20)


@pytest.mark.parametrize("first_is_settled", [True, False])
def test_a_round_has_one_reply_on_record(ledger: Ledger, first_is_settled: bool) -> None:
    """When a retry has answered the round, the late reply is paid for and used by nobody."""
    binding = bound()
    lost = ledger.unknown(WANTED, binding=binding)
    fence = ledger.claim()
    again = start(fence, WANTED, binding=binding)
    usage = Budget(input_tokens=12, output_tokens=20, cost=Money(77))
    late = decide(lost, usage=usage, retrieved=retrieved(reply=output(lost, "reply")))
    ledger.do(again)
    if first_is_settled:
        ledger.settle(fence, again.id, 1, 2)
        ledger.do(late)
    else:
        # In one batch the retry's reply is not in the database yet when the decision looks for it.
        ledger.do_all(settle(fence, again.id, 1, 2), late)
    row = ledger.row(s.invocations, lost)
    assert (row.state, row.reason, row.output_tokens) == ("FAILED", "RETRIEVED_UNUSED", 20)
    assert ledger.rows(s.outputs) == []
    assert ledger.account("acme").settled.total_tokens == 32 + 3


def test_another_round_or_turn_does_not_take_the_place(ledger: Ledger) -> None:
    """Places are compared by turn and round."""
    binding = bound()
    fence = ledger.claim()
    ledger.settle(fence, ledger.start(fence, WANTED, binding=binding), 1, 2)
    ledger.settle(fence, ledger.start(fence, WANTED, binding=bound("another turn"), round=1), 1, 2)
    id = ledger.start(fence, WANTED, binding=binding, round=1)
    ledger.lose_reply(fence, id)
    ledger.end(fence)
    usage = Budget(input_tokens=12, output_tokens=20, cost=Money(77))
    ledger.do(decide(id, usage=usage, retrieved=retrieved(reply=output(id, "reply"))))
    assert ledger.row(s.invocations, id).state == "SUCCEEDED"


def test_a_reply_is_not_put_on_record_under_a_running_attempt(ledger: Ledger) -> None:
    """The attempt has read the record already and may be about to ask again for the same round."""
    id = ledger.unknown(WANTED, binding=bound())
    ledger.claim()
    usage = Budget(input_tokens=12, output_tokens=20, cost=Money(77))
    late = decide(id, usage=usage, retrieved=retrieved(reply=output(id, "reply")))
    with pytest.raises(ActivityBusy):
        ledger.do(late)
    assert ledger.row(s.reservations, id).state == "RECONCILE"
    ledger.now += LEASE
    ledger.do(late)
    assert ledger.row(s.invocations, id).state == "SUCCEEDED"
    (activity,) = ledger.rows(s.activities)
    assert (activity.state, activity.attempt) == ("FREE", 2)


def test_a_call_without_a_replay_key_is_decided_at_any_time(ledger: Ledger) -> None:
    """Nothing is ever restored from it."""
    id = ledger.unknown(WANTED)
    ledger.claim()
    usage = Budget(input_tokens=12, output_tokens=20, cost=Money(77))
    ledger.do(decide(id, usage=usage, retrieved=retrieved()))
    assert ledger.row(s.invocations, id).state == "SUCCEEDED"
