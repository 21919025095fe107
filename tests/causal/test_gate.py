"""The gate and the audit of a whole log are the same: on every prefix of every log."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from memoflow.canonical import Digester
from memoflow.causal.classes import ClassRule
from memoflow.causal.compat.config import CustomRule
from memoflow.causal.ctag import ActionClass
from memoflow.causal.findings import review_required
from memoflow.causal.record import Actor, CausalRecord
from memoflow.causal.strict import Audit, Code, StrictRules, audit_strict
from tests.causal._records import ARGUMENTS, approval, rec, root, send

RULES = StrictRules(
    permissions=("task:*",),
    classes=(ClassRule(action_class=ActionClass.FIN_TX, tool="refund"),),
    custom_rules=(
        CustomRule("R", ActionClass.NET_OUT, code="R", require_class=ActionClass.OVERRIDE),
        CustomRule("S", ActionClass.FIN_TX, code="S", severity="WARN", require_prefix="human_approval:"),
    ),
)
ids = st.sampled_from("abcdefg")
actors = st.sampled_from([Actor(kind="human", name="h"), Actor(kind="agent", name="x"), Actor(pid=1, uid=1)])
permissions = st.sampled_from(
    [
        "root_event:x",
        "unobserved_parent",
        "task:x",
        "a",
        "b",
        "human_approval:1",
        "human_approval:2",
        "other",
        5,
    ]
)
approvals = st.fixed_dictionaries(
    {
        "status": st.sampled_from(["approved", "denied", "revoked"]),
        "tool": st.just("refund"),
        "arguments_digest": st.just(Digester().json(ARGUMENTS)),
        "expires_at": st.sampled_from([3, 100]),
    }
)
objects = st.one_of(
    st.none(),
    st.just("/secrets/x"),
    st.fixed_dictionaries(
        {"tool": st.just("refund"), "request": st.sampled_from([ARGUMENTS, {}])},
        optional={"risk_level": st.just("high"), "execution": st.just("refused")},
    ),
    st.fixed_dictionaries({"approval": approvals}),
)


@st.composite
def records(draw: st.DrawFn) -> CausalRecord:
    """Records that break and keep every rule."""
    return rec(
        draw(ids),
        draw(st.none() | ids),
        at=draw(st.integers(0, 9)),
        actor=draw(actors),
        action=draw(st.sampled_from(["look", "send", "exec"])),
        object=draw(objects),
        permitted_by=draw(permissions),
        joins=draw(st.lists(ids, max_size=2)),
        ctag=draw(st.none() | st.sampled_from([0xD100, 0x4E00, 0xDB00])),
    )


def plain(findings: Any) -> list[dict[str, Any]]:
    """Findings that a gate can make: the cycles are those of the whole log."""
    return [finding.to_dict() for finding in findings if "records" not in finding.context]


@settings(max_examples=200)
@given(st.lists(records(), max_size=8))
def test_a_proposal_finds_what_the_audit_would(log: list[CausalRecord]) -> None:
    """For every prefix: what is proposed after it, what is appended, and what the whole audit then says."""
    audit = Audit(RULES)
    expected: list[dict[str, Any]] = []
    for position, record in enumerate(log):
        proposed = audit.propose(record)
        whole = audit_strict(log[: position + 1], RULES)
        expected += plain(proposed)
        assert plain(whole.findings) == expected
        assert audit.append(record) == proposed
        assert audit.result() == whole


@settings(max_examples=100)
@given(st.lists(records(), max_size=8), records())
def test_proposing_changes_nothing(log: list[CausalRecord], proposal: CausalRecord) -> None:
    """However often, and whatever is proposed."""
    audit = Audit(RULES)
    for record in log:
        audit.propose(proposal)
        audit.append(record)
    before = audit.result()
    assert audit.propose(proposal) == audit.propose(proposal)
    assert audit.result() == before == audit_strict(log, RULES)


@given(st.lists(records(), max_size=8))
def test_what_closes_a_cycle_is_refused_at_the_gate(log: list[CausalRecord]) -> None:
    """Though only the whole log shows the cycle: the record that closes it descends from one that failed."""
    audit = Audit(RULES)
    for record in log:
        cycles = sum(finding.code == Code.CYCLE for finding in audit.result().findings)
        found = audit.append(record)
        if sum(finding.code == Code.CYCLE for finding in audit.result().findings) > cycles:
            assert any(finding.severity == "FAIL" for finding in found)


def test_the_gate_knows_what_was_appended() -> None:
    """Ids and how many."""
    audit = Audit()
    audit.append(root())
    assert len(audit) == 1
    assert "root" in audit
    assert "a" not in audit


def test_a_refused_call_is_told_to_the_model() -> None:
    """With codes and sentences, without figures for reviewers; what is only fine is left out."""
    audit = Audit()
    audit.append(root())
    told = review_required(audit.propose(send(parent="gone")))
    assert told["status"] == "causal_review_required"
    assert [finding["code"].removeprefix("MEMOFLOW-CAUSAL-") for finding in told["findings"]] == [
        "CAUSE_NOT_BEFORE",
        "APPROVAL_UNKNOWN",
    ]
    assert {frozenset(finding) for finding in told["findings"]} == {
        frozenset({"code", "severity", "message"})
    }
    assert review_required([]) == {"status": "causal_review_required", "findings": []}


def test_the_loop_of_a_host() -> None:
    """Propose, be refused; have it approved, propose again, execute, append."""
    audit = Audit()
    audit.append(root())
    assert any(finding.severity == "FAIL" for finding in audit.propose(send(parent="root")))
    audit.append(approval())
    assert audit.propose(send()) == ()
    assert audit.append(send()) == ()
    assert audit.result().passed
