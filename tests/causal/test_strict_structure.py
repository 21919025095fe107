"""The strict rules about the log itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from memoflow.causal.record import Actor, CausalRecord
from memoflow.causal.strict import MEANINGS, Audit, Code, StrictRules, audit_strict
from tests.causal._records import AGENT, ALICE, audited, codes, rec, root
from tests.causal.test_lineage import logs


def test_a_clean_log_passes() -> None:
    """A root, what it permits, parallel branches and their join."""
    log = [
        root(),
        rec("a"),
        rec("b"),
        rec("j", "root", joins=("a", "b"), at=6),
        rec("c", "j", permitted_by="j", at=7),
    ]
    result = audit_strict(log)
    assert result.to_dict() == {
        "summary": {"total": 5, "ok": 5, "warnings": 0, "failures": 0, "passed": True},
        "findings": [],
    }


def test_an_empty_log_passes() -> None:
    """There is nothing in it that was not permitted."""
    assert audit_strict([]).passed


@pytest.mark.parametrize("cause", ["gone", "later"])
def test_a_cause_stands_before_its_effect(cause: str) -> None:
    """One that is missing, or comes later, is none."""
    log = [root(), rec("a", cause), rec("later")]
    assert audited(*log) == [("a", "CAUSE_NOT_BEFORE")]
    assert audited(root(), rec("a", joins=(cause,)), rec("later")) == [("a", "CAUSE_NOT_BEFORE")]


def test_a_record_is_not_its_own_cause() -> None:
    """Neither as parent nor as join."""
    assert codes(root(), rec("a", "a")) == ["CYCLE"]
    assert codes(root(), rec("a", joins=("a",))) == ["CYCLE"]


def test_a_cycle_is_found_once_with_its_records() -> None:
    """By the first of them; who only descends from it is not in it."""
    log = [root(), rec("a", "c"), rec("b", "a"), rec("c", "root", joins=("b",)), rec("d", "c")]
    result = audit_strict(log)
    (cycle,) = [finding for finding in result.findings if finding.code == Code.CYCLE]
    assert (cycle.record_id, cycle.chain_ids, cycle.context) == ("a", ("a", "b", "c"), {"records": 3})
    assert result.findings.index(cycle) == 1


@given(logs())
def test_every_cycle_is_found(log: list[CausalRecord]) -> None:
    """Beside an oracle: a record is in a cycle if it can be reached from itself."""
    firsts: dict[str, CausalRecord] = {}
    for record in log:
        firsts.setdefault(record.id, record)
    causes = {id: [c for c in (r.parent_cause, *r.joins) if c in firsts] for id, r in firsts.items()}
    if len(log) != len(firsts):
        return
    reach = {id: set(found) for id, found in causes.items()}
    for _ in firsts:
        reach = {id: found.union(*(reach[str(cause)] for cause in found)) for id, found in reach.items()}
    in_cycles = {id for id in firsts if id in reach[id]}
    found = {
        member
        for finding in audit_strict(log).findings
        if finding.code == Code.CYCLE
        for member in finding.chain_ids or (finding.record_id,)
    }
    assert found == in_cycles


def test_an_id_is_taken_once() -> None:
    """The first record keeps it: what comes later cannot hide it, nor become the parent of others."""
    other = rec("a", "root", actor=Actor(kind="agent", name="other"))
    assert audited(root(), rec("a"), other, rec("b", "a")) == [("a", "DUPLICATE_ID")]


def test_time_does_not_run_backwards() -> None:
    """An effect is not earlier than its cause; at the same time is allowed."""
    assert codes(root(), rec("a", at=5), rec("b", "a", at=5)) == []
    assert codes(root(), rec("a", at=5), rec("b", "a", at=4)) == ["TIME_INVERSION"]
    assert codes(root(), rec("a", at=5), rec("b", at=4, joins=("a",))) == ["TIME_INVERSION"]
    assert codes(root(at=2**90), rec("a", at=2**91)) == []
    assert codes(root(at=-(2**90)), rec("a", at=-(2**91))) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"permitted_by": "root_event:"}, ["UNTRUSTED_ROOT"]),
        ({"permitted_by": "root_event"}, ["NO_CAUSE"]),
        ({"permitted_by": "task:x"}, ["NO_CAUSE"]),
        ({"permitted_by": None}, ["NO_CAUSE"]),
        ({"permitted_by": "human_approval:x"}, ["NO_CAUSE", "APPROVAL_UNKNOWN"]),
        ({"permitted_by": "unobserved_parent"}, ["MARKED_GAP"]),
        ({"actor": AGENT}, ["UNTRUSTED_ROOT"]),
        ({"actor": Actor(kind="model", name="m")}, ["UNTRUSTED_ROOT"]),
        ({"actor": Actor(pid=1, uid=0)}, []),
    ],
)
def test_what_has_no_parent_is_a_trusted_root(change: dict[str, Any], found: list[str]) -> None:
    """Neither the label of a root alone nor an agent makes one."""
    assert codes(root(**change)) == found


def test_roots_are_of_a_list() -> None:
    """And by those who may begin one."""
    rules = StrictRules(roots=("root_event:ticket", "root_event:cron:*"), root_actors=("human:alice",))
    assert codes(root(), rules=rules) == []
    assert codes(root(permitted_by="root_event:cron:daily"), rules=rules) == []
    assert codes(root(permitted_by="root_event:other"), rules=rules) == ["UNTRUSTED_ROOT"]
    assert codes(root(actor=Actor(kind="human", name="eve")), rules=rules) == ["UNTRUSTED_ROOT"]
    assert (
        codes(root(permitted_by="begin:x"), rules=replace(rules, root_prefix="begin:", roots=("begin:*",)))
        == []
    )


def test_what_permits_a_record_is_there_or_known() -> None:
    """A record before it, or a permission of the rules; a word alone is a warning."""
    rules = StrictRules(permissions=("task:*",))
    assert codes(root(), rec("a", permitted_by="root"), rules=rules) == []
    assert codes(root(), rec("a", permitted_by="task:7"), rules=rules) == []
    assert codes(root(), rec("a", permitted_by="fs:read"), rules=rules) == ["UNRESOLVED_PERMISSION"]
    assert codes(root(), rec("a", permitted_by="a"), rules=rules) == ["UNRESOLVED_PERMISSION"]
    assert codes(root(), rec("a", permitted_by=5), rules=rules) == ["UNRESOLVED_PERMISSION"]


def test_failure_is_inherited() -> None:
    """By parents, joins and permissions alike, from the first that failed; warnings are not."""
    bad = rec("bad", "gone")
    for heir in (rec("x", "bad"), rec("x", joins=("bad",)), rec("x", permitted_by="bad")):
        result = audit_strict([root(), bad, heir, rec("y", "x")])
        heirs = [(f.record_id, f.chain_ids) for f in result.findings if f.code == Code.INVALID_ANCESTOR]
        assert heirs[0] == ("x", ("bad",))
        assert [id for id, _ in heirs] == ["x", "y"]
    gap = rec("gap", None, permitted_by="unobserved_parent")
    assert codes(root(), gap, rec("x", "gap")) == []


def test_a_failure_elsewhere_refuses_nothing() -> None:
    """Only the ancestry of a proposal decides: one bad record does not stop all that comes after it."""
    audit = Audit()
    for record in (root(), rec("bad", "gone"), rec("good")):
        audit.append(record)
    assert audit.propose(rec("next", "good")) == ()
    assert [finding.code for finding in audit.propose(rec("next", "bad"))] == [Code.INVALID_ANCESTOR]


def test_severities_are_the_rules_to_say() -> None:
    """A rule that is off finds nothing, and what only warns makes nothing invalid."""
    log = [root(), rec("a", "gone"), rec("b", "a")]
    off = StrictRules(severities={Code.CAUSE_NOT_BEFORE: "OFF"})
    warn = StrictRules(severities={Code.CAUSE_NOT_BEFORE: "WARN"})
    assert audited(*log, rules=off) == []
    assert audited(*log, rules=warn) == [("a", "CAUSE_NOT_BEFORE")]
    assert audit_strict(log, warn).passed
    cyclic = [rec("a", "b"), rec("b", "a")]
    assert "CYCLE" not in dict.fromkeys(
        code for _, code in audited(*cyclic, rules=StrictRules(severities={Code.CYCLE: "OFF"}))
    )


def test_ok_counts_records() -> None:
    """A record with two findings is one record with findings."""
    result = audit_strict([root(), rec("a", "gone", permitted_by="b"), rec("c")])
    assert (result.total, result.ok, result.failures, result.warnings) == (3, 2, 1, 1)


def test_every_code_has_a_meaning() -> None:
    """And every meaning is a sentence."""
    assert MEANINGS.keys() == set(Code)
    assert [meaning for meaning in MEANINGS.values() if not meaning.text.endswith(".")] == []
    assert [code for code in Code if code != f"MEMOFLOW-CAUSAL-{code.name}"] == []


def test_actors_of_processes_are_told_apart() -> None:
    """Two processes are two actors, so what one has seen is not what the other has."""
    assert ALICE.key != Actor(pid=1, uid=0).key
    one, two = Actor(pid=1, uid=0), Actor(pid=2, uid=0)
    secret = rec("s", actor=one, object="/secrets/k")
    assert codes(root(), secret, rec("o", actor=two, action="send")) == []
    assert codes(root(), secret, rec("o", actor=one, action="send")) == ["SECRET_EXPOSED"]
