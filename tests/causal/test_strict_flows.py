"""The strict rules about secrets and about what ancestors grant."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memoflow.causal.compat.config import CustomRule
from memoflow.causal.ctag import ActionClass
from memoflow.causal.record import Actor
from memoflow.causal.secrets import SecretPatterns
from memoflow.causal.strict import StrictRules, audit_strict
from tests.causal._records import approval, audited, codes, rec, root, send, tagged

OTHER = Actor(kind="agent", name="other")
SECRET = rec("s", object={"classification": "SECRET"})


def test_a_secret_does_not_leave_unapproved() -> None:
    """Along parents and joins, through any number of actors."""
    assert codes(root(), SECRET, rec("o", "s", action="send")) == ["SECRET_EGRESS"]
    handed = [root(), SECRET, rec("h", "s", actor=OTHER), rec("i", "h")]
    assert codes(*handed, rec("o", "i", actor=OTHER, action="connect")) == ["SECRET_EGRESS"]
    joined = [root(), SECRET, rec("b", actor=OTHER), rec("j", "b", joins=("s",), actor=OTHER)]
    assert codes(*joined, rec("o", "j", actor=OTHER, action="send")) == ["SECRET_EGRESS"]


def test_who_has_seen_a_secret_does_not_send_unapproved() -> None:
    """Also where the lineage leaves it out; who acted on what descends from a secret has seen it."""
    assert codes(root(), SECRET, rec("o", action="send")) == ["SECRET_EXPOSED"]
    handed = [root(), SECRET, rec("h", "s", actor=OTHER)]
    assert codes(*handed, rec("o", actor=OTHER, action="send")) == ["SECRET_EXPOSED"]
    assert codes(root(), SECRET, rec("o", actor=OTHER, action="send")) == []


def test_what_was_sent_before_is_not_exposed() -> None:
    """A secret cannot leave before it was seen."""
    assert audited(root(), rec("o", action="send"), SECRET) == []


@pytest.mark.parametrize("action", ["SEND", "Connect", "send"])
def test_leaving_is_known_in_any_case(action: str) -> None:
    """And by the class, whatever the action is called."""
    assert codes(root(), SECRET, rec("o", action=action)) == ["SECRET_EXPOSED"]
    called = tagged(rec("o", action="post"), ActionClass.NET_OUT)
    assert codes(root(), SECRET, called) == ["SECRET_EXPOSED"]


def test_an_approval_lets_a_secret_go() -> None:
    """If it is for exactly that; having one linked ancestor does not."""
    rules = StrictRules(outgoing=frozenset({ActionClass.FIN_TX}))
    assert audited(root(), SECRET, approval(parent="s"), send(), rules=rules) == []
    assert codes(root(), SECRET, approval(parent="s"), send(arguments={"cents": 1}), rules=rules) == [
        "APPROVAL_MISMATCH",
        "SECRET_EGRESS",
    ]


def test_a_secret_that_is_itself_sent_is_found() -> None:
    """It needs no ancestor."""
    (finding,) = audit_strict([root(), rec("o", action="send", object={"path": "/secrets/k"})]).findings
    assert finding.code == "MEMOFLOW-CAUSAL-SECRET_EGRESS"
    assert finding.chain_ids == ("o",)


def test_what_was_refused_did_not_leave() -> None:
    """Nothing was done."""
    assert codes(root(), SECRET, rec("o", "s", action="send", object={"execution": "refused"})) == []


@pytest.mark.parametrize(
    ("target", "secret"),
    [
        ({"classification": "SECRET"}, True),
        ({"classification": "secret"}, False),
        ({"classification": ["SECRET"]}, False),
        ({"path": "/secrets/x"}, True),
        ({"path": "/x.pem"}, True),
        ({"path": None}, False),
        ({"path": 5}, False),
        ("/secrets/x", True),
        ("/x.key", True),
        (None, False),
        (["/secrets/"], False),
        ({}, False),
    ],
)
def test_secrets_are_known_by_label_or_path(target: object, secret: bool) -> None:
    """Whatever else an object is, it is none, and no error."""
    assert SecretPatterns().match(rec("a", object=target).object) is secret


def test_one_finding_for_a_sending_however_many_secrets() -> None:
    """So that what is found grows with the log, not with its square."""
    secrets = [rec(f"s{n}", object="/secrets/x") for n in range(50)]
    sendings = [rec(f"o{n}", action="send") for n in range(50)]
    findings = audit_strict([root(), *secrets, *sendings]).findings
    assert len(findings) == 50
    assert {finding.chain_ids for finding in findings} == {("s49",)}


def test_a_custom_rule_wants_one_ancestor_that_is_all_of_it() -> None:
    """Class and permission on the same one, in the line of parents, however far; never the record itself."""
    rule = CustomRule(
        "R", ActionClass.EXEC, code="R", require_class=ActionClass.CONFIG, require_prefix="task:"
    )
    rules = StrictRules(custom_rules=(rule,), permissions=("*",))
    fit = tagged(rec("fit", permitted_by="task:x"), ActionClass.CONFIG)
    far = [rec(str(n), str(n - 1) if n else "fit") for n in range(500)]
    act = rec("act", "499", action="exec")
    assert codes(root(), fit, *far, act, rules=rules) == []
    assert codes(root(), replace(fit, permitted_by="other"), *far, act, rules=rules) == ["R"]
    split = [tagged(rec("fit", permitted_by="x"), ActionClass.CONFIG), rec("0", "fit", permitted_by="task:x")]
    assert codes(root(), *split, rec("act", "0", action="exec"), rules=rules) == ["R"]
    itself = tagged(rec("act", permitted_by="task:x"), ActionClass.CONFIG)
    own = StrictRules(custom_rules=(replace(rule, trigger_class=ActionClass.CONFIG),), permissions=("*",))
    assert codes(root(), itself, rules=own) == ["R"]
    assert codes(root(), fit, rec("b"), rec("act", "b", joins=("fit",), action="exec"), rules=rules) == ["R"]


def test_a_custom_rule_without_a_requirement_wants_any_parent() -> None:
    """As the reference has it."""
    rules = StrictRules(custom_rules=(CustomRule("R", ActionClass.EXEC, code="R"),))
    assert codes(root(action="exec"), rules=rules) == ["R"]
    assert codes(root(), rec("a", action="exec"), rules=rules) == []


def test_an_ancestor_that_failed_grants_nothing() -> None:
    """Of several rules each has its own bit."""
    first = CustomRule("A", ActionClass.EXEC, code="A", require_class=ActionClass.CONFIG)
    second = CustomRule("B", ActionClass.EXEC, code="B", require_class=ActionClass.PRIV)
    rules = StrictRules(custom_rules=(first, second))
    priv = tagged(rec("p"), ActionClass.PRIV)
    assert codes(root(), priv, rec("act", "p", action="exec"), rules=rules) == ["A"]
    early = tagged(rec("p", at=0), ActionClass.PRIV)
    assert codes(root(), early, rec("act", "p", action="exec"), rules=rules) == ["INVALID_ANCESTOR", "A", "B"]
