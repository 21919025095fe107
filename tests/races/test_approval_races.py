"""Many processes on one approval: it is decided in one way, and used once."""

from __future__ import annotations

import pytest

from memoflow import Budget, Runtime
from memoflow.budget import Amounts
from memoflow.ledger import schema as s
from memoflow.ledger.verify import verify
from tests._processes import together
from tests.races.racers import Place, approve, ask_first, come_back, notes

RACERS = 8


@pytest.fixture
def request_id(place: Place) -> str:
    """A call that waits for a person."""
    with place.open() as runtime:
        runtime.budgets.put("acme", Budget(total_tokens=100_000))
    return ask_first(place)


def check(runtime: Runtime, uses: int) -> None:
    """So many approvals were used, nothing is held, and the ledger is in order."""
    database = runtime.ledger.database
    used = database.read(lambda connection: connection.execute(s.approval_uses.select()).all())
    assert len(used) == uses
    assert runtime.budgets.show("acme").held == Amounts()
    assert database.read(verify) == []


def test_one_approval_runs_one_call_once(place: Place, request_id: str) -> None:
    """Of eight processes that come back to an approved call one runs it; others are busy or restore it."""
    with place.open() as runtime:
        runtime.approvals.approve(request_id, approver="ann", reason="fine")
    outcomes = together(come_back, RACERS, place)
    assert set(outcomes) in ({"Done."}, {"Done.", "busy"})
    assert len(notes(place)) == 1
    assert together(come_back, RACERS, place) == ["Done."] * RACERS
    assert len(notes(place)) == 1
    with place.open() as runtime:
        check(runtime, uses=1)


def test_nobody_runs_what_nobody_allowed(place: Place, request_id: str) -> None:
    """Eight processes that come back too early find that it still waits, and nothing is charged for that."""
    with place.open() as runtime:
        before = runtime.budgets.show("acme").settled
    assert set(together(come_back, RACERS, place)) <= {"waits", "busy"}
    assert notes(place) == []
    with place.open() as runtime:
        assert runtime.budgets.show("acme").settled == before
        check(runtime, uses=0)


def test_one_decision_stands(place: Place, request_id: str) -> None:
    """Eight deciders in two ways: those who say what the first said are heard, the others are refused."""
    heard = together(approve, RACERS, place, request_id)
    (verdict,) = set(heard) - {"decided"}
    ways = ("denied", "approved")
    assert list(heard) == [verdict if ways[index % 2] == verdict else "decided" for index in range(RACERS)]
    outcomes = together(come_back, RACERS, place)
    assert "waits" not in outcomes
    assert len(notes(place)) == (verdict == "approved")
    with place.open() as runtime:
        check(runtime, uses=int(verdict == "approved"))
