"""What gives something back needs proof: budget that is spent again, calls that run again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memoflow.budget import Budget, Money
from memoflow.errors import InvalidRequest
from memoflow.ledger import schema as s
from memoflow.ledger.verify import verify
from tests.ledger._calls import Ledger, ask, open_ledger
from tests.ledger._decisions import WANTED, decide, decide_effect


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """A fresh ledger with one account on each kind of database."""
    with open_ledger(database_url) as opened:
        opened.put("acme")
        yield opened


def test_a_verdict_that_frees_something_needs_proof() -> None:
    """Budget given back is spent again, a call that did not happen runs again; a charge says neither."""
    for verdict, made in (("release", decide), ("did_not_happen", decide_effect)):
        with pytest.raises(InvalidRequest, match=f"'{verdict}' needs proof"):
            made("id", verdict, evidence_digest=None)
    decide("id", "settle", evidence_digest=None)
    decide_effect("id", "happened", evidence_digest=None)


@pytest.mark.parametrize(
    ("usage", "freed"),
    [
        (Budget(total_tokens=0), "total_tokens 0 gives back all 100"),
        (Budget(input_tokens=0, output_tokens=0, cost=Money(5)), "total_tokens 0 gives back all 100"),
        (Budget(total_tokens=40, cost=Money(0)), "cost 0 gives back all 0.0000005"),
    ],
)
def test_a_charge_of_nothing_needs_proof_like_a_release(ledger: Ledger, usage: Budget, freed: str) -> None:
    """Tokens or money held by an unknown call do not come back on somebody's word, whatever it is called."""
    id = ledger.unknown(WANTED)
    with pytest.raises(InvalidRequest, match=freed):
        ledger.do(decide(id, usage=usage))
    assert ledger.account("acme").unknown.total_tokens == 100
    assert ledger.rows(s.decisions) == []
    ledger.do(decide(id, usage=usage, evidence_digest="sha256:invoice"))
    assert ledger.row(s.reservations, id).state == "SETTLED"
    assert ledger.read(verify) == []


def test_a_charge_of_nothing_where_nothing_was_held_needs_no_proof(ledger: Ledger) -> None:
    """Where no cost was reserved none comes back, and calls and time may be settled at nothing."""
    id = ledger.unknown(ask(total_tokens=100, tool_calls=2, wall_clock_ms=9_000))
    decision = ledger.do(decide(id, usage=Budget(total_tokens=1, tool_calls=0, wall_clock_ms=0)))
    assert decision.actual is not None
    assert (decision.actual.cost, decision.actual.tool_calls) == (0, 0)
