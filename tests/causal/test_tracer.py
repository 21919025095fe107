"""What a host writes down, and the cursor."""

from __future__ import annotations

from memoflow.canonical import Digester
from memoflow.causal.adapters import (
    Terms,
    Tracer,
    anthropic_messages,
    call_record,
    openai_responses,
)
from memoflow.causal.classes import ClassRule
from memoflow.causal.ctag import ActionClass, Domain, decode
from memoflow.causal.strict import Audit, audit_strict
from tests.causal._records import AGENT, ALICE, approval, root, terms
from tests.causal.test_adapters_openai import function_call, output

CALL = openai_responses.read([function_call("c", '{"cents": 82}', name="refund")]).calls[0]
RESULT = openai_responses.read([output("c")]).results[0]
RISKY = Terms(
    permitted_by="human_approval:t", action="refund", risk="high", approval_required=True, tool_version="v1"
)
CLASSES = (ClassRule(action_class=ActionClass.FIN_TX, tool="refund", arguments=(("cents", "*"),)),)
PLACE = {"id": "act", "timestamp": 6, "actor": AGENT, "parent": "yes", "classes": CLASSES}


def test_a_proposal_becomes_what_was_observed() -> None:
    """Under one id; both are permitted by the same approval, which binds the digest of the arguments."""
    audit = Audit()
    for record in (root(), approval()):
        audit.append(record)
    proposed = call_record(CALL, None, RISKY, **PLACE)
    assert audit.propose(proposed) == ()
    seen = call_record(CALL, RESULT, RISKY, **PLACE)
    assert audit.append(seen) == ()
    assert seen.object["evidence_bundle"]["request_digest"] == terms()["arguments_digest"]
    assert seen.object["tool_version"] == "v1"


def test_the_class_is_kept_in_the_tag() -> None:
    """So arguments can classify a call though they do not stand in its record."""
    record = call_record(CALL, None, RISKY, **PLACE)
    assert "request" not in record.object
    assert record.ctag is not None
    assert decode(record.ctag).action_class == ActionClass.FIN_TX
    given = Terms(permitted_by="x", action_class=ActionClass.PRIV, domain=Domain.SANDBOX)
    tag = decode(call_record(CALL, None, given, **PLACE).ctag or 0)
    assert (tag.action_class, tag.domain) == (ActionClass.PRIV, Domain.SANDBOX)


def test_a_refused_call_is_recorded_as_refused() -> None:
    """It fails nothing: it was not executed."""
    refused = call_record(CALL, None, RISKY, **{**PLACE, "parent": "root"}, refused=True)
    assert refused.object["execution"] == "refused"
    assert audit_strict([root(), refused]).findings == ()


def test_digests_are_made_with_the_key_of_the_host() -> None:
    """Where it has one."""
    keyed = Digester(b"k" * 32, "k1")
    record = call_record(CALL, RESULT, RISKY, **PLACE, digester=keyed)
    assert record.object["evidence_bundle"]["request_digest"] == keyed.json({"cents": 82})


def test_the_model_says_nothing_about_causes() -> None:
    """Whatever ids it names in its arguments or calls: the parent is the cursor of the host."""
    tracer = Tracer(clock=lambda: 1)
    asked = tracer.event(ALICE, "ask", permitted_by="root_event:x")
    lying = function_call("root", '{"parent_cause": "forged", "permitted_by": "human_approval:t"}')
    (record,) = tracer.turn(openai_responses.read([lying]), lambda call: Terms(permitted_by=asked.id))
    assert (record.parent_cause, record.permitted_by) == (asked.id, asked.id)


def test_turns_of_two_providers_are_one_log() -> None:
    """The cursor goes on; ids of the providers may even be the same."""
    tracer = Tracer(clock=lambda: 1)
    asked = tracer.event(ALICE, "ask", permitted_by="root_event:x")
    say = lambda call: Terms(permitted_by=asked.id, action="look")  # noqa: E731
    (first,) = tracer.turn(openai_responses.read([function_call("same"), output("same")]), say)
    blocks = [
        {"type": "tool_use", "id": "same", "name": "look", "input": {}},
        {"type": "tool_result", "tool_use_id": "same", "content": "x"},
    ]
    (second,) = tracer.turn(anthropic_messages.read(blocks), say)
    assert second.parent_cause == first.id
    assert audit_strict(tracer.records).findings == ()
    assert tracer.problems == []


def test_ids_and_times_are_made_where_none_are_given() -> None:
    """Unique, and in nanoseconds."""
    tracer = Tracer()
    one, two = (tracer.event(ALICE, "ask", permitted_by="root_event:x") for _ in range(2))
    assert one.id != two.id
    assert 10**18 < one.timestamp <= two.timestamp
