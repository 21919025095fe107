"""The strict rules about approvals: each of the ways in which one is worth nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memoflow.canonical import Digester
from memoflow.causal.classes import ClassRule
from memoflow.causal.codes import Code
from memoflow.causal.compat.config import CustomRule
from memoflow.causal.ctag import ActionClass, Domain, encode
from memoflow.causal.record import Actor
from memoflow.causal.strict import Audit, StrictRules
from tests.causal._records import (
    AGENT,
    ALICE,
    ARGUMENTS,
    FAR,
    approval,
    audited,
    codes,
    decision,
    rec,
    root,
    send,
    tagged,
    terms,
)

EVE = Actor(kind="agent", name="eve")


def test_a_valid_approval_permits_exactly_its_action() -> None:
    """Given, by a human, for this tool and these arguments, in time, in the line of parents, once."""
    assert audited(root(), approval(), send()) == []


def test_an_action_of_high_risk_needs_an_approval() -> None:
    """By its risk, its class, or because its host asks for one; a word as permission is none."""
    rules = StrictRules(permissions=("task:*",))
    plain = {"permitted_by": "task:x", "parent": "root"}
    assert codes(root(), send(**plain), rules=rules) == ["APPROVAL_MISSING"]
    low = {"risk_level": "low"}
    assert codes(root(), send(**plain, payload=low), rules=rules) == ["APPROVAL_MISSING"]
    harmless = replace(rules, approval_classes=frozenset())
    assert codes(root(), send(**plain, payload=low), rules=harmless) == []
    asked = {**low, "human_approval": {"required": True}}
    assert codes(root(), send(**plain, payload=asked), rules=harmless) == ["APPROVAL_MISSING"]


def test_the_rule_fires_without_a_tag() -> None:
    """A written rule classifies by the tool's name, and the approval is missed."""
    rules = StrictRules(
        permissions=("task:*",), classes=(ClassRule(action_class=ActionClass.DATA_EGRESS, tool="send_*"),)
    )
    mail = rec("m", action="send", permitted_by="task:x", object={"tool": "send_mail"})
    assert codes(root(), mail, rules=rules) == ["APPROVAL_MISSING"]
    assert codes(root(), mail, rules=replace(rules, classes=())) == []


@pytest.mark.parametrize(
    "status", ["denied", "rejected", "pending", "revoked", "Approved", "approved:t", "", None, 1]
)
def test_only_what_was_approved_is(status: object) -> None:
    """A rejection never permits, nor anything that only looks like an approval."""
    assert codes(
        root(),
        decision("yes", "root", terms(status=status), actor=ALICE, permitted_by="human_approval:t"),
        send(),
    ) == ["APPROVAL_DENIED"]


def test_a_status_of_its_own_is_not_repeated() -> None:
    """It may be any text."""
    audit = Audit()
    for record in (root(), approval()):
        audit.append(record)
    audit = Audit()
    audit.append(root())
    audit.append(
        decision("yes", "root", terms(status="SECRET TEXT"), actor=ALICE, permitted_by="human_approval:t")
    )
    (finding,) = audit.propose(send())
    assert "SECRET" not in finding.message


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"tool": "pay"}, "tool"),
        ({"arguments_digest": Digester().json({"cents": 820})}, "arguments_digest"),
        ({"tool_version": "v2"}, "tool_version"),
        ({"tool_namespace": "bank"}, "tool_namespace"),
        ({"run": "run-2"}, "run"),
        ({"tool": "pay", "run": "run-2"}, "tool, run"),
    ],
)
def test_an_approval_is_for_one_thing(other: dict[str, Any], said: str) -> None:
    """Tool, version, namespace, run and arguments that it names must be those of the action."""
    audit = Audit()
    audit.append(root())
    audit.append(decision("yes", "root", terms(**other), actor=ALICE, permitted_by="human_approval:t"))
    act = send(payload={"tool_version": "v1", "run": "run-1"})
    (finding,) = audit.propose(act)
    assert finding.code == "MEMOFLOW-CAUSAL-APPROVAL_MISMATCH"
    assert finding.message == f"The approval 'human_approval:t' is for another {said}."


def test_approve_82_execute_820() -> None:
    """What is executed is what was approved, also where the record states the digest of what was."""
    assert codes(root(), approval(), send(arguments={"cents": 820})) == ["APPROVAL_MISMATCH"]
    stated = {"evidence_bundle": {"request_digest": Digester().json(ARGUMENTS)}}
    assert codes(root(), approval(), send(arguments={"cents": 820}, payload=stated)) == [
        "DIGEST_DIFFERS",
        "APPROVAL_MISMATCH",
    ]


def test_a_record_without_arguments_is_bound_by_their_digest() -> None:
    """As memoflow records calls; without either it is not bound at all."""
    act = send()
    payload = {key: value for key, value in act.object.items() if key != "request"}
    stated = {**payload, "evidence_bundle": {"request_digest": Digester().json(ARGUMENTS)}}
    assert codes(root(), approval(), replace(act, object=stated)) == []
    assert codes(root(), approval(), replace(act, object=payload)) == ["APPROVAL_MISMATCH"]


@pytest.mark.parametrize("lacking", ["tool", "arguments_digest", "expires_at"])
def test_an_approval_says_what_for_and_how_long(lacking: str) -> None:
    """One that does not say it is unbound, and permits nothing."""
    said = {key: value for key, value in terms().items() if key != lacking}
    given = decision("yes", "root", said, actor=ALICE, permitted_by="human_approval:t")
    assert codes(root(), given, send()) == ["APPROVAL_UNBOUND"]


@pytest.mark.parametrize("expires", ["2027-01-01", 1.5, True, None])
def test_an_expiry_is_a_number_of_nanoseconds(expires: object) -> None:
    """Anything else is as good as none."""
    given = decision("yes", "root", terms(expires_at=expires), actor=ALICE, permitted_by="human_approval:t")
    assert codes(root(), given, send()) == ["APPROVAL_UNBOUND"]


@pytest.mark.parametrize(
    ("at", "found"), [(FAR - 1, []), (FAR, ["APPROVAL_EXPIRED"]), (FAR + 1, ["APPROVAL_EXPIRED"])]
)
def test_an_approval_ends(at: int, found: list[str]) -> None:
    """At its expiry, not after it."""
    assert codes(root(), approval(), send(at=at)) == found


def test_an_approval_is_used_once() -> None:
    """By the first action; one that its host refused did not use it."""
    assert audited(root(), approval(), send("one"), send("two")) == [("two", "APPROVAL_REUSED")]
    refused = send("one", payload={"execution": "refused"})
    assert audited(root(), approval(), refused, send("two")) == []


def test_executions_under_one_idempotency_key_are_one_use() -> None:
    """Another key, none at all, or one that is no text, is another use."""
    same, other = ({"idempotency_key": key} for key in ("mf1_a", "mf1_b"))
    one = send("one", payload=same)
    assert audited(root(), approval(), one, send("two", payload=same), send("three", payload=same)) == []
    for payload in (other, {}):
        found = audited(root(), approval(), one, send("two", payload=payload))
        assert found == [("two", "APPROVAL_REUSED")]
    for key in (None, "", 7):
        twice = [send(name, payload={"idempotency_key": key}) for name in ("one", "two")]
        assert audited(root(), approval(), *twice) == [("two", "APPROVAL_REUSED")]


def test_a_proposal_uses_nothing() -> None:
    """It can be made again; only what is appended counts."""
    audit = Audit()
    for record in (root(), approval()):
        audit.append(record)
    assert audit.propose(send()) == audit.propose(send()) == ()
    assert audit.append(send()) == ()
    assert [f.code for f in audit.propose(send("again"))] == ["MEMOFLOW-CAUSAL-APPROVAL_REUSED"]


def test_nobody_approves_what_they_ask_for() -> None:
    """Neither the actor of the action nor who asked for the approval."""
    assert audited(root(), approval(), send(actor=ALICE)) == [("act", "APPROVAL_BY_REQUESTER")]
    twice = approval(actor=Actor(kind="human", name="\uff21gent-7"))
    assert ("act", "APPROVAL_BY_REQUESTER") in audited(
        root(), twice, send(actor=Actor(kind="human", name="agent-7"))
    )
    asked = decision(
        "yes", "root", terms(requested_by=ALICE.key), actor=ALICE, permitted_by="human_approval:t"
    )
    assert audited(root(), asked, send()) == [
        ("yes", "APPROVAL_BY_REQUESTER"),
        ("act", "INVALID_ANCESTOR"),
        ("act", "APPROVAL_BY_REQUESTER"),
    ]


def test_only_those_who_may_approve() -> None:
    """An agent's approval is none, whatever it says."""
    forged = approval(actor=EVE)
    assert audited(root(), forged, send()) == [
        ("yes", "APPROVAL_UNTRUSTED"),
        ("act", "INVALID_ANCESTOR"),
        ("act", "APPROVAL_UNTRUSTED"),
    ]
    rules = StrictRules(approvers={"human_approval:": ("human:alice",)})
    assert audited(root(), approval(), send(), rules=rules) == []
    bob = approval(actor=Actor(kind="human", name="bob"))
    assert ("yes", "APPROVAL_UNTRUSTED") in audited(root(), bob, send(), rules=rules)


def test_a_forged_decision_does_not_occupy_the_name() -> None:
    """Those who may decide still can."""
    log = [root(), approval("forged", actor=EVE), approval(), send()]
    assert audited(*log) == [("forged", "APPROVAL_UNTRUSTED")]


def test_what_was_decided_is_decided() -> None:
    """A second decision is found and changes nothing; only a revocation by those who may does."""
    denied = decision("no", "root", terms(status="denied"), actor=ALICE, permitted_by="human_approval:t")
    assert audited(root(), denied, approval("yes", "no"), send()) == [
        ("yes", "APPROVAL_DUPLICATE"),
        ("act", "INVALID_ANCESTOR"),
        ("act", "APPROVAL_DENIED"),
    ]
    revoked = decision("back", "yes", terms(status="revoked"), actor=ALICE, permitted_by="human_approval:t")
    assert audited(root(), approval(), revoked, send(parent="back")) == [("act", "APPROVAL_DENIED")]
    by_eve = replace(revoked, actor=EVE)
    assert audited(root(), approval(), by_eve, send()) == [("back", "APPROVAL_UNTRUSTED")]


def test_an_approval_is_in_the_line_of_parents() -> None:
    """One of another branch permits nothing here, not even where the branches are joined."""
    elsewhere = [root(), rec("branch"), approval(), rec("j", "branch", joins=("yes",))]
    assert codes(*elsewhere, send(parent="branch")) == ["APPROVAL_ELSEWHERE"]
    assert codes(*elsewhere, send(parent="j")) == ["APPROVAL_ELSEWHERE"]


def test_an_approval_far_above_permits() -> None:
    """There is no depth at which it is forgotten."""
    line = [rec(str(n), str(n - 1) if n else "yes") for n in range(1_000)]
    assert audited(root(), approval(), *line, send(parent="999")) == []


def test_an_approval_that_is_not_there_is_unknown() -> None:
    """Also one that comes later."""
    assert codes(root(), send(parent="root")) == ["APPROVAL_UNKNOWN"]
    assert audited(root(), send(parent="root"), approval()) == [("act", "APPROVAL_UNKNOWN")]


def test_an_action_does_not_pass_for_a_decision() -> None:
    """By carrying one: a decision has no tool, and is of no other class."""
    carrying = send(payload={"approval": terms()})
    assert codes(root(), replace(carrying, parent_cause="root", ctag=None)) == [
        "UNCLASSIFIED",
        "APPROVAL_UNKNOWN",
    ]
    sending = rec("s", action="send", object={"approval": terms()}, permitted_by="human_approval:t")
    assert codes(root(), sending) == ["APPROVAL_UNKNOWN"]


def test_a_decision_without_terms_is_unbound() -> None:
    """As the guide of the reference makes them: a tag and a word."""
    bare = tagged(
        rec("yes", actor=ALICE, action="approve", permitted_by="human_approval:t"),
        ActionClass.OVERRIDE,
        Domain.USER,
    )
    assert codes(root(), bare, send()) == ["APPROVAL_UNBOUND"]


def test_a_custom_rule_about_approvals_takes_valid_ones_only() -> None:
    """Not the word on an ancestor, as the reference does."""
    rule = CustomRule(
        "R8",
        ActionClass.FIN_TX,
        code="NEEDS",
        require_class=ActionClass.OVERRIDE,
        require_prefix="human_approval:",
    )
    rules = StrictRules(custom_rules=(rule,))
    tag = encode(Domain.USER, ActionClass.OVERRIDE, parent="root")
    assert audited(root(), approval(ctag=tag), send(), rules=rules) == []
    assert audited(root(), approval(), send(), rules=rules) == [("act", "NEEDS")]
    denied = decision(
        "yes", "root", terms(status="denied"), actor=ALICE, permitted_by="human_approval:t", ctag=tag
    )
    assert codes(root(), denied, send(), rules=rules) == ["APPROVAL_DENIED", "NEEDS"]
    policy = replace(rule, require_prefix="policy_approval:")
    assert codes(root(), approval(ctag=tag), send(), rules=StrictRules(custom_rules=(policy,))) == ["NEEDS"]


def test_what_only_warns_takes_nothing_from_an_approval() -> None:
    """The rules say what an approval must be; one that is not there is none, whatever they say."""
    secret = rec("s", object="/secrets/k")
    sending = StrictRules(
        outgoing=frozenset({ActionClass.FIN_TX}), severities={Code.APPROVAL_MISMATCH: "WARN"}
    )
    other = send(arguments={"cents": 1})
    assert codes(root(), secret, approval(parent="s"), other, rules=sending) == ["APPROVAL_MISMATCH"]
    off = replace(sending, severities={Code.APPROVAL_UNKNOWN: "OFF"})
    assert codes(root(), secret, send(parent="s"), rules=off) == ["SECRET_EGRESS"]


def test_refused_calls_need_nothing() -> None:
    """Nothing was done; what the host refused must not fail the log in which it says so."""
    refused = send(parent="root", payload={"execution": "refused"}, permitted_by="root")
    assert audited(root(), refused, rec("after", "act", at=7)) == []


def test_approver_and_requester_are_compared_as_actors() -> None:
    """The agent that acts may be another process with the same name, and is then the same actor."""
    twin = replace(AGENT, pid=7, uid=7)
    rules = StrictRules(approvers={"human_approval:": ("agent:*",)})
    assert "APPROVAL_BY_REQUESTER" in codes(root(), approval(actor=twin), send(), rules=rules)
