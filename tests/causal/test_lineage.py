"""Lines of parents and ancestries, beside an oracle that is too slow to be wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoflow.causal.lineage import REFERENCE_CAP, Lineage, view_chain
from memoflow.causal.record import Actor, CausalRecord
from memoflow.causal.strict.index import NOWHERE, Index, Node
from tests.causal._records import rec

ids = st.sampled_from("abcdefgh")


@st.composite
def logs(draw: st.DrawFn) -> list[CausalRecord]:
    """Small logs with everything that can go wrong: missing parents, cycles, joins, one id twice."""
    joins = st.lists(ids, max_size=2)
    return [rec(draw(ids), draw(st.none() | ids), joins=draw(joins)) for _ in range(draw(st.integers(0, 8)))]


def reachable(log: list[CausalRecord], start: str, joins: bool) -> set[str]:
    """What can be reached from a record, by repeating one step until nothing is new."""
    by_id = {record.id: record for record in log}
    found: set[str] = set()
    while True:
        causes = {
            cause
            for id in {start, *found}
            if id in by_id
            for cause in (by_id[id].parent_cause, *(by_id[id].joins if joins else ()))
            if cause in by_id
        }
        if causes <= found:
            return found - {start}
        found |= causes  # type: ignore[arg-type]


@given(logs(), ids)
def test_ancestors_are_what_can_be_reached(log: list[CausalRecord], start: str) -> None:
    """Through parents and joins; through parents alone for the line."""
    lineage = Lineage(log)
    assert lineage.ancestors(start) == reachable(log, start, joins=True)
    assert lineage.line_ids(start) == reachable(log, start, joins=False)
    assert {record.id for record in lineage.line(start)} == {start, *lineage.line_ids(start)} & {
        r.id for r in log
    }


@given(st.lists(st.integers(-1, 60), max_size=60), st.data())
def test_the_search_along_a_line_is_right(parents: list[int], data: st.DataObject) -> None:
    """The index finds with jumps what walking finds."""
    index = Index()
    for position, parent in enumerate(parents):
        index.add(str(position), Node(parent=parent if parent < position else position - 1))
    if not parents:
        assert not index.in_line(NOWHERE, NOWHERE)
        return
    above, below = (data.draw(st.integers(0, len(parents) - 1)) for _ in range(2))
    walked = below
    while walked not in (above, NOWHERE):
        walked = index.parents[walked]
    assert index.in_line(above, below) == (walked == above)


@pytest.mark.parametrize(("cap", "seen"), [(None, 300), (REFERENCE_CAP, 255), (1, 0)])
def test_only_the_reference_ends_a_chain(cap: int | None, seen: int) -> None:
    """It looks at 256 records with the first; without a cap every ancestor is seen."""
    log = [rec(str(number), str(number - 1) if number else None) for number in range(301)]
    assert len(Lineage(log, cap=cap).line_ids("300")) == seen


@pytest.mark.parametrize(
    ("target", "chain", "gap"),
    [
        ("leaf", "top leaf", None),
        ("nobody", "", "is not in the log"),
        ("orphan", "orphan", "The parent 'gone' of 'orphan' is not in the log."),
        ("x", "y x", "form a cycle"),
        ("gap", "gap", "was not observed"),
        ("bare", "bare", "neither a root nor a marked gap"),
    ],
)
def test_a_chain_says_how_it_begins(target: str, chain: str, gap: str | None) -> None:
    """With a root, or why not."""
    log = [
        rec("top", None, permitted_by="root_event:x"),
        rec("leaf", "top"),
        rec("orphan", "gone"),
        rec("x", "y"),
        rec("y", "x"),
        rec("gap", None, permitted_by="unobserved_parent"),
        rec("bare", None),
    ]
    shown = view_chain(Lineage(log), target)
    assert [record.id for record in shown.records] == chain.split()
    assert shown.gap is None if gap is None else gap in (shown.gap or "")
    assert shown.to_dict()["has_gap"] is (gap is not None)


def test_a_chain_points_out_a_secret_that_is_not_in_it() -> None:
    """Of the same process or actor, and only for what goes out."""
    one, other = Actor(pid=1, uid=1), Actor(pid=2, uid=1)
    log = [
        rec("top", None, permitted_by="root_event:x", actor=one),
        rec("theirs", "top", action="read", object="/secrets/a", actor=other),
        rec("seen", "top", action="look", object="/secrets/a", actor=one),
        rec("s1", "top", action="read", object="/secrets/a", actor=Actor(pid=1, uid=9)),
        rec("s2", "s1", action="open", object="/secrets/b", actor=one),
        rec("beside", "top", action="send", actor=one),
        rec("below", "s2", action="connect", actor=one),
        rec("inside", "s2", action="write", actor=one),
    ]
    found = {
        id: view_chain(Lineage(log), id).to_dict()["r3_context"]
        for id in ("beside", "below", "inside", "gone")
    }
    assert found == {
        "beside": {
            "secret_record": log[3].to_dict(),
            "note": "Its actor accessed the secret 's1', which is not in this chain.",
        },
        "below": None,
        "inside": None,
        "gone": None,
    }
    logical = [rec("top", None), rec("s", action="read", object="/secrets/a"), rec("o", "top", action="send")]
    assert view_chain(Lineage(logical), "o").secret == logical[1]


def test_a_chain_that_is_cut_off_says_so() -> None:
    """It is not taken for one that begins there."""
    log = [rec(str(number), str(number - 1) if number else None) for number in range(300)]
    assert "longer than the 256 records" in (view_chain(Lineage(log, cap=REFERENCE_CAP), "299").gap or "")
