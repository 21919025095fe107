"""The strict rules about what a record carries: tags, digests, envelopes, claims and risks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memoflow.canonical import Digester
from memoflow.causal.adapters import Terms, anthropic_messages, call_record, openai_chat, openai_responses
from memoflow.causal.classes import ClassRule
from memoflow.causal.ctag import ActionClass, Domain, encode
from memoflow.causal.record import CausalRecord
from memoflow.causal.strict import Audit, StrictRules
from tests.causal._records import AGENT, codes, rec, root

READ = encode(Domain.AGENT, ActionClass.READ, parent="root")
SEEN = {
    "responses": openai_responses.read(
        [
            {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"a": 1}'},
            {"type": "function_call_output", "call_id": "c", "output": "fine"},
        ]
    ),
    "messages": anthropic_messages.read(
        [
            {"type": "tool_use", "id": "c", "name": "look", "input": {"a": 1}},
            {"type": "tool_result", "tool_use_id": "c", "content": "fine"},
        ],
        stop_reason="tool_use",
    ),
    "chat": openai_chat.read(
        [
            {"tool_calls": [{"id": "c", "function": {"name": "look", "arguments": '{"a": 1}'}}]},
            {"role": "tool", "tool_call_id": "c", "content": "fine"},
        ]
    ),
}


def observed(api: str = "responses", **more: Any) -> CausalRecord:
    """The record of a call and its result, as the adapters make it."""
    seen = SEEN[api]
    terms = Terms(permitted_by="root", action="look")
    given = {"id": "a", "timestamp": 5, "actor": AGENT, "parent": "root", "payloads": True, **more}
    return call_record(seen.calls[0], seen.results[0], terms, **given)


def changed(record: CausalRecord, *path: str, to: object) -> CausalRecord:
    """The record with one member of its object changed, or removed with ``...``."""
    plain = record.to_dict()["object"]
    place = plain
    for key in path[:-1]:
        place = place[key]
    if to is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return replace(record, object=plain)


@pytest.mark.parametrize(
    ("tag", "found"),
    [
        (READ, []),
        (READ ^ 0b0010, ["CTAG_HINT"]),
        (READ | 1, ["CTAG_SEAL"]),
        (READ ^ 0x0010, ["CTAG_HINT"]),
        (0xF000 | READ & 0x0FFF, ["CTAG_RANGE"]),
        (0x10000, ["CTAG_RANGE"]),
        (-1, ["CTAG_RANGE"]),
    ],
)
def test_a_tag_goes_with_its_record(tag: int, found: list[str]) -> None:
    """Its hint with the parent, its seal with its class, its domain with those there are."""
    assert codes(root(), rec("a", ctag=tag)) == found


def test_a_tag_that_was_copied_is_found() -> None:
    """A hint belongs to a parent: elsewhere it is another, but for one in eight."""
    tags = {encode(Domain.AGENT, ActionClass.READ, parent=f"p{number}") for number in range(100)}
    assert len(tags) == 8


@pytest.mark.parametrize(
    ("action", "action_class", "found"),
    [
        ("send", ActionClass.NONE, ["CTAG_CLASS"]),
        ("exec", ActionClass.READ, ["CTAG_CLASS"]),
        ("write", ActionClass.READ, ["CTAG_CLASS"]),
        ("read", ActionClass.NONE, ["CTAG_CLASS"]),
        ("send", ActionClass.IPC, []),
        ("read", ActionClass.SECRET, []),
        ("look", ActionClass.NONE, []),
    ],
)
def test_a_tag_does_not_make_an_action_harmless(
    action: str, action_class: ActionClass, found: list[str]
) -> None:
    """It may say more than the name of the action, not less."""
    tag = encode(Domain.AGENT, action_class, parent="root")
    assert codes(root(), rec("a", action=action, ctag=tag)) == found


def test_a_tag_says_what_the_rules_say() -> None:
    """Where a rule classifies."""
    rules = StrictRules(classes=(ClassRule(action_class=ActionClass.WRITE, tool="look"),))
    assert codes(root(), rec("a", object={"tool": "look"}, ctag=READ), rules=rules) == ["CTAG_CLASS"]


@pytest.mark.parametrize("api", SEEN)
def test_what_the_adapters_write_is_consistent(api: str) -> None:
    """With and without the payloads, before and after the result."""
    assert codes(root(), observed(api)) == []
    assert codes(root(), observed(api, payloads=False)) == []
    proposed = call_record(
        SEEN[api].calls[0],
        None,
        Terms(permitted_by="root", action="look"),
        id="a",
        timestamp=5,
        actor=AGENT,
        parent="root",
    )
    assert codes(root(), proposed) == []


@pytest.mark.parametrize(
    ("path", "to", "found"),
    [
        (("request",), {"a": 2}, ["DIGEST_DIFFERS"]),
        (("result",), "other", ["DIGEST_DIFFERS"]),
        (("evidence_bundle", "request_digest"), "sha256:0", ["DIGEST_DIFFERS", "ENVELOPE_BROKEN"]),
        (("evidence_bundle", "result_digest"), "sha256:0", ["DIGEST_DIFFERS", "ENVELOPE_BROKEN"]),
        (("evidence_bundle",), ..., ["ENVELOPE_BROKEN"]),
        (("tool",), "other", ["ENVELOPE_BROKEN"]),
        (("provider_envelope",), "x", ["ENVELOPE_BROKEN"]),
        (("provider_envelope",), ..., []),
        (("provider_envelope", "provider"), "other", ["ENVELOPE_BROKEN"]),
        (("provider_envelope", "provider"), ["openai"], ["ENVELOPE_BROKEN"]),
        (("provider_envelope", "request_item"), ..., ["ENVELOPE_BROKEN"]),
        (("provider_envelope", "request_item", "call_id"), "d", ["ENVELOPE_BROKEN"]),
        (("provider_envelope", "request_item", "name"), "d", ["ENVELOPE_BROKEN"]),
        (("provider_envelope", "result_item", "call_id"), "d", ["ENVELOPE_BROKEN"]),
        (("provider_envelope", "result_item", "output_digest"), "d", ["ENVELOPE_BROKEN"]),
    ],
)
def test_what_contradicts_itself_is_found(path: tuple[str, ...], to: object, found: list[str]) -> None:
    """Digests beside their content, and the envelope in itself and beside the record."""
    assert codes(root(), changed(observed(), *path, to=to)) == found


def test_a_keyed_digest_is_checked_with_its_key_only() -> None:
    """Without it nothing can be said; with it everything."""
    keyed = Digester(b"k" * 32, "k1")
    record = observed(digester=keyed)
    wrong = changed(record, "request", to={"a": 2})
    assert codes(root(), wrong) == []
    assert codes(root(), record, rules=StrictRules(digester=keyed)) == []
    assert codes(root(), wrong, rules=StrictRules(digester=keyed)) == ["DIGEST_DIFFERS"]


def test_high_risk_without_a_class_is_pointed_out() -> None:
    """The rules about classes would miss it."""
    risky = {"risk_level": "high", "tool": "x"}
    assert codes(root(), rec("a", object=risky)) == ["UNCLASSIFIED", "APPROVAL_MISSING"]
    assert codes(root(), rec("a", object=risky, ctag=READ)) == ["APPROVAL_MISSING"]
    assert codes(root(), rec("a", object={"risk_level": ["high"]})) == []


def test_a_claim_that_disagrees_is_a_warning() -> None:
    """As its host noted it; what is noted otherwise is nothing."""
    audit = Audit()
    audit.append(root())
    (finding,) = audit.propose(rec("a", object={"claim": {"disagrees": ["risk", "parent"]}}))
    assert (finding.severity, finding.code) == ("WARN", "MEMOFLOW-CAUSAL-CLAIM_DISAGREES")
    assert finding.message.endswith("parent, risk.")
    for noted in ({"disagrees": []}, {"disagrees": "risk"}, "x", {}):
        assert audit.propose(rec("a", object={"claim": noted})) == ()
