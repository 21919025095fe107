"""Logs that were made to hurt: findings or typed errors, in time that grows with the log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

from memoflow.causal.compat import audit_compat
from memoflow.causal.compat.config import CompatConfig, CustomRule
from memoflow.causal.ctag import ActionClass
from memoflow.causal.lineage import Lineage, view_chain
from memoflow.causal.record import Actor, CausalRecord
from memoflow.causal.strict import Audit, StrictRules, audit_strict
from memoflow.causal.strict.index import Index, Node
from tests.causal._records import ALICE, approval, audited, decision, rec, root, send, terms

LONG = 20_000


def ring(length: int) -> Iterator[CausalRecord]:
    """One cycle: every record's parent is the next, the last one's the first."""
    return (rec(str(n), str((n + 1) % length)) for n in range(length))


def test_a_very_long_cycle_is_one_finding() -> None:
    """Without recursion, in both profiles."""
    result = audit_strict(ring(LONG))
    (cycle,) = [finding for finding in result.findings if finding.code.endswith("-CYCLE")]
    assert cycle.context == {"records": LONG}
    assert len(cycle.chain_ids) == 16
    assert audit_compat(rec(record.id, record.parent_cause) for record in ring(1_000)).passed


def test_a_very_long_line_is_one_chain() -> None:
    """Root first, without recursion."""
    assert sys.getrecursionlimit() < LONG
    lineage = Lineage([root(), *(rec(str(n), str(n - 1) if n else "root") for n in range(LONG))])
    assert len(view_chain(lineage, str(LONG - 1)).records) == LONG + 1


def test_records_that_are_their_own_parents() -> None:
    """Each is found once, and the log is gone through once."""
    assert {code for _, code in audited(root(), *(rec(str(n), str(n)) for n in range(1_000)))} == {"CYCLE"}


class Counting(Index):
    """An index that counts how often an edge is followed."""

    steps = 0

    def in_line(self, ancestor: int, descendant: int) -> bool:
        walked = type(self.parents)("q", self.parents)
        outer = self

        class Counted:
            def __getitem__(self, position: int) -> int:
                outer.steps += 1
                return walked[position]

        real, self.parents = self.parents, Counted()  # type: ignore[assignment]
        try:
            return super().in_line(ancestor, descendant)
        finally:
            self.parents = real


def test_looking_for_an_approval_far_above_takes_few_steps() -> None:
    """A line is searched in steps like its logarithm, so many approvals and actions do not multiply."""
    index = Counting()
    for position in range(10_000):
        index.add(str(position), Node(parent=position - 1))
    for ancestor in (0, 1, 5_000, 9_998):
        index.steps = 0
        assert index.in_line(ancestor, 9_999)
        assert index.steps <= 2 * (10_000).bit_length()


@pytest.mark.parametrize(
    "target",
    [
        {"provider_envelope": []},
        {"provider_envelope": {"provider": {}, "api": []}},
        {
            "provider_envelope": {
                "provider": "openai",
                "api": "responses",
                "request_item": 5,
                "result_item": "x",
            }
        },
        {"evidence_bundle": "x", "request": {}},
        {"evidence_bundle": {"request_digest": 5}, "request": "x"},
        {"evidence_bundle": {"request_digest": "hmac-sha256:"}, "request": {}},
        {"evidence_bundle": {"request_digest": "sha256:"}, "request": 10**4000},
        {"tool": ["x"], "risk_level": {"a": 1}, "human_approval": [], "request": []},
        {"approval": "yes"},
        {"claim": ["disagrees"]},
        {"claim": {"disagrees": [[], {}, 5]}},
        {"classification": {"a": 1}, "path": {"b": 2}},
        [[[]]],
        10**4000,
    ],
)
@pytest.mark.parametrize("permitted_by", ["root", "human_approval:t"])
def test_objects_of_any_shape_are_no_error(target: object, permitted_by: str) -> None:
    """Whatever stands where something else should: findings at most."""
    audit = Audit(StrictRules(custom_rules=(CustomRule("R", ActionClass.EXEC, code="R"),)))
    audit.append(root())
    for action in ("send", "exec", "look"):
        audit.append(rec(action, action=action, object=target, permitted_by=permitted_by))
    audit_compat([rec("a", object=target, permitted_by=permitted_by, actor=Actor(pid=1, uid=1))])


@pytest.mark.parametrize("name", ["status", "tool", "arguments_digest", "expires_at", "requested_by", "run"])
@pytest.mark.parametrize("value", [[], {}, ["x"], 10**400, True, "\0", -1.5])
def test_terms_of_any_shape_permit_nothing(name: str, value: object) -> None:
    """An approval with something odd in it is none, and no error; who asked for it only has to differ."""
    given = decision("yes", "root", terms(**{name: value}), actor=ALICE, permitted_by="human_approval:t")
    found = audited(root(), given, send())
    if name == "requested_by" or (name == "expires_at" and value == 10**400):
        assert found == []
    else:
        assert found != []


def operations(run: Callable[[], object]) -> int:
    """How many calls something makes and returns from: a measure of work that no load disturbs."""
    counted = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal counted
        counted += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(before)
    return counted


def chained_approvals(length: int) -> Iterator[CausalRecord]:
    """Approvals in one long line, then as many actions at its end, each with another of them."""
    parent = "root"
    yield root()
    for n in range(length):
        yield approval(f"y{n}", parent, permitted_by=f"human_approval:{n}")
        parent = f"y{n}"
    for n in range(length):
        yield send(f"s{n}", parent, permitted_by=f"human_approval:{n}")


def secrets_and_sendings(length: int) -> Iterator[CausalRecord]:
    """As many secrets as sendings, of one actor."""
    yield root()
    yield from (rec(f"s{n}", object="/secrets/x") for n in range(length))
    yield from (rec(f"o{n}", action="send") for n in range(length))


def awaited_at_the_end_of_a_line(length: int) -> Iterator[CausalRecord]:
    """Records that name what comes later, and then all that comes, each at the end of one long line."""
    yield from (rec(f"c{n}", f"c{n - 1}" if n else "gone", joins=(f"late{n}",)) for n in range(length))
    yield from (rec(f"late{n}", f"c{length - 1}") for n in range(length))


def joins_of_joins(length: int) -> Iterator[CausalRecord]:
    """Each record joins the two before it: there are more ways than could ever be walked."""
    yield root()
    yield rec("0", object="/secrets/x")
    yield rec("1", "0")
    yield from (rec(str(n), str(n - 1), joins=(str(n - 2),)) for n in range(2, length))


@pytest.mark.parametrize(
    "log", [chained_approvals, secrets_and_sendings, awaited_at_the_end_of_a_line, joins_of_joins, ring]
)
def test_twice_the_log_is_twice_the_work(log: Callable[[int], Iterator[CausalRecord]]) -> None:
    """Counted in calls, not in time: nothing in the strict audit grows with the square."""
    small, large = ([*log(size)] for size in (60, 240))
    audit_strict(small)
    ratio = operations(lambda: audit_strict(large)) / operations(lambda: audit_strict(small))
    assert ratio < 4 * 1.6


def test_the_reference_ends_after_256_records() -> None:
    """So do its custom rules in the compatibility profile, on a cycle too."""
    rule = CustomRule("R", ActionClass.EXEC, code="R", require_class=ActionClass.CONFIG)
    log = [rec(record.id, record.parent_cause, action="exec") for record in ring(2_000)]
    assert audit_compat(log, CompatConfig(custom_rules=(rule,))).failures == 2_000
