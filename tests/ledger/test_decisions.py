"""Decisions about unknown invocations: what each does, and that it is final and may be repeated."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from memoflow.budget import Amounts, Budget, Money
from memoflow.errors import (
    ActivityBusy,
    InvalidBudget,
    InvalidRequest,
    LeaseLost,
    NotFound,
    ReservationConflict,
)
from memoflow.ledger import schema as s
from memoflow.ledger.decisions import (
    actual_amounts,
)
from memoflow.ledger.invocations import SettleInvocation
from memoflow.ledger.verify import verify
from tests.ledger._calls import (
    LEASE,
    NAMESPACE,
    SECOND,
    START,
    Ledger,
    ask,
    effect,
    identity,
    open_ledger,
    settle,
)
from tests.ledger._decisions import RESERVED, WANTED, decide


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """A ledger with one account; when the test is over, every fact in it must hold."""
    with open_ledger(database_url) as opened:
        opened.put("acme", Budget(total_tokens=1_000, cost=Money.of(1)))
        yield opened
        assert opened.read(verify) == []


# What a settlement charges


@pytest.mark.parametrize(
    ("usage", "charged"),
    [
        (None, {}),
        (Budget(), {}),
        (
            Budget(input_tokens=10, output_tokens=5),
            {"total_tokens": 15, "input_tokens": 10, "output_tokens": 5},
        ),
        (
            Budget(input_tokens=10, output_tokens=5, total_tokens=15, model_calls=1),
            {"total_tokens": 15, "input_tokens": 10, "output_tokens": 5},
        ),
        (Budget(total_tokens=50), {"total_tokens": 50, "input_tokens": 30, "output_tokens": 50}),
        (Budget(total_tokens=20), {"total_tokens": 20, "input_tokens": 20, "output_tokens": 20}),
        (Budget(total_tokens=500), {"total_tokens": 500, "input_tokens": 500, "output_tokens": 500}),
        (Budget(cost=Money(1)), {"cost": 1}),
        (Budget(tool_calls=0, wall_clock_ms=1), {"tool_calls": 0, "wall_clock_ms": 1}),
        (Budget(input_tokens=0, output_tokens=0), {"total_tokens": 0, "input_tokens": 0, "output_tokens": 0}),
    ],
)
def test_what_is_not_said_is_charged_as_reserved(usage: Budget | None, charged: dict[str, int]) -> None:
    """An unknown is never free by omission, and is always one model call."""
    assert actual_amounts(usage, RESERVED) == RESERVED._replace(**charged)
    assert actual_amounts(usage, Amounts()).model_calls == 1


@pytest.mark.parametrize(
    ("usage", "sentence"),
    [
        (Budget(input_tokens=10), "together"),
        (Budget(output_tokens=10, total_tokens=20), "together"),
        (
            Budget(input_tokens=10, output_tokens=5, total_tokens=16),
            "16 is not the sum of input_tokens 10 and",
        ),
        (Budget(model_calls=2), "cannot be settled as 2"),
        (Budget(model_calls=0), "cannot be settled as 0"),
    ],
)
def test_figures_that_contradict_each_other_are_refused(usage: Budget, sentence: str) -> None:
    """The refusal names the figures."""
    with pytest.raises(InvalidBudget, match=sentence):
        actual_amounts(usage, RESERVED)


# Invocations


def test_settling_replaces_the_unknown_by_actual_usage(ledger: Ledger) -> None:
    """The hold leaves the account, the figures enter it, and the invocation is FAILED / DECIDED_SPENT."""
    id = ledger.unknown(WANTED)
    assert ledger.account("acme").unknown == RESERVED
    ledger.now += 5 * SECOND
    decision = ledger.do(
        decide(id, usage=Budget(input_tokens=12, output_tokens=20), evidence_digest="sha256:e")
    )
    actual = RESERVED._replace(total_tokens=32, input_tokens=12, output_tokens=20)
    assert (decision.kind, decision.verdict, decision.actual, decision.at) == (
        "invocation",
        "settle",
        actual,
        ledger.now,
    )
    info = ledger.account("acme")
    assert (info.settled, info.held, info.unknown) == (actual, Amounts(), Amounts())
    invocation, reservation = ledger.row(s.invocations, id), ledger.row(s.reservations, id)
    assert (invocation.state, invocation.reason, invocation.finished_at) == ("FAILED", "DECIDED_SPENT", START)
    assert invocation.input_tokens is None
    assert (reservation.state, reservation.reason, reservation.resolved_at) == (
        "SETTLED",
        "READ_TIMEOUT",
        START + 5 * SECOND,
    )
    assert s.read_amounts(reservation, "actual") == actual
    assert reservation.decision_id == decision.id
    (row,) = ledger.rows(s.decisions)
    assert (row.actor, row.reason, row.evidence_digest) == ("ann", "asked the provider", "sha256:e")


def test_settling_above_the_reservation_records_it_in_full(ledger: Ledger) -> None:
    """Actual usage is never cut to what was reserved, and the account is flagged."""
    id = ledger.unknown(WANTED)
    ledger.do(decide(id, usage=Budget(input_tokens=900, output_tokens=400)))
    info = ledger.account("acme")
    assert (info.settled.total_tokens, info.over_limit) == (1_300, ("total_tokens",))


def test_releasing_returns_the_whole_hold(ledger: Ledger) -> None:
    """With proof that nothing happened the account is as before and the invocation CANCELLED."""
    id = ledger.unknown(WANTED)
    decision = ledger.do(decide(id, "release"))
    info = ledger.account("acme")
    assert decision.actual is None
    assert info.used == Amounts()
    invocation, reservation = ledger.row(s.invocations, id), ledger.row(s.reservations, id)
    assert (invocation.state, invocation.reason) == ("CANCELLED", "NOT_PERFORMED")
    assert (reservation.state, reservation.actual_total_tokens) == ("RELEASED", None)


def test_a_decision_resolves_every_account_of_the_branch(ledger: Ledger) -> None:
    """The hold was charged to all of them, so it leaves all of them."""
    ledger.put("acme/support", Budget(total_tokens=200))
    id = ledger.unknown(WANTED, "acme/support")
    ledger.do(decide(id, usage=Budget(total_tokens=40)))
    for path in ("acme", "acme/support"):
        info = ledger.account(path)
        assert (info.settled.total_tokens, info.unknown) == (40, Amounts())


def test_a_late_decision_is_charged_to_the_period_that_reserved(ledger: Ledger) -> None:
    """A period rollover does not touch open holds."""
    ledger.put("daily", Budget(total_tokens=100), period="day")
    id = ledger.unknown(ask(total_tokens=60), "daily")
    ledger.now += 3 * 86_400 * SECOND
    ledger.do(decide(id, usage=Budget(total_tokens=50)))
    assert ledger.account("daily").used == Amounts()
    (old,) = [row for row in ledger.rows(s.balances) if row.settled_total_tokens]
    assert (old.settled_total_tokens, old.unknown_total_tokens) == (50, 0)
    assert old.period_start <= START < old.period_end


def test_repeating_a_decision_by_its_id_is_a_no_op(ledger: Ledger) -> None:
    """It returns the first, with its time, and leaves one decision and one settlement."""
    id = ledger.unknown(WANTED)
    operation = decide(id, usage=Budget(total_tokens=40))
    first = ledger.do(operation)
    ledger.now += SECOND
    assert ledger.do(operation) == first
    assert ledger.do_all(operation, operation) == [first, first]
    assert len(ledger.rows(s.decisions)) == 1
    assert ledger.account("acme").settled.total_tokens == 40


@pytest.mark.parametrize(
    "change",
    [
        {"usage": Budget(total_tokens=41)},
        {"verdict": "release", "evidence_digest": "sha256:proof"},
        {"actor": "bob"},
        {"reason": "guessed"},
        {"evidence_digest": "sha256:other"},
    ],
)
def test_a_decision_id_stands_for_one_decision(ledger: Ledger, change: dict[str, Any]) -> None:
    """The same id with other content is a conflict, and nothing changes."""
    id = ledger.unknown(WANTED)
    first = ledger.do(decide(id, usage=Budget(total_tokens=40)))
    values: dict[str, Any] = {"usage": Budget(total_tokens=40), "decision_id": first.id} | change
    with pytest.raises(ReservationConflict) as refusal:
        ledger.do(decide(id, **values))
    assert (refusal.value.what, refusal.value.id) == ("decision", first.id)
    assert ledger.account("acme").settled.total_tokens == 40


def test_a_decision_id_is_not_moved_to_another_target(ledger: Ledger) -> None:
    """One id, one target."""
    one = ledger.unknown(WANTED)
    two = ledger.unknown(WANTED, who=identity("other"))
    first = ledger.do(decide(one, "release"))
    with pytest.raises(ReservationConflict):
        ledger.do(decide(two, "release", decision_id=first.id))
    assert ledger.row(s.reservations, two).state == "RECONCILE"


def test_the_same_verdict_under_another_id_is_a_no_op(ledger: Ledger) -> None:
    """Two operators who agree do not conflict; the first one's decision stands."""
    id = ledger.unknown(WANTED)
    first = ledger.do(decide(id))
    again = ledger.do(decide(id, usage=Budget(total_tokens=100), actor="bob", reason="I also looked"))
    assert again == first
    assert len(ledger.rows(s.decisions)) == 1


@pytest.mark.parametrize(
    "other", [{"verdict": "release"}, {"usage": Budget(total_tokens=41)}, {"usage": Budget(cost=Money(1))}]
)
def test_another_verdict_or_other_figures_are_a_conflict(ledger: Ledger, other: dict[str, Any]) -> None:
    """A reservation reaches exactly one terminal state."""
    id = ledger.unknown(WANTED)
    ledger.do(decide(id, usage=Budget(total_tokens=40)))
    with pytest.raises(ReservationConflict) as refusal:
        ledger.do(decide(id, **other))
    assert (refusal.value.id, refusal.value.state) == (id, "SETTLED")
    assert ledger.account("acme").settled.total_tokens == 40


def test_a_conflict_says_money_in_decimals(ledger: Ledger) -> None:
    """What was asked is told as people write it."""
    id = ledger.unknown(WANTED)
    ledger.do(decide(id))
    with pytest.raises(ReservationConflict) as refusal:
        ledger.do(decide(id, usage=Budget(total_tokens=41, cost=Money(250_000_000))))
    assert "total_tokens 41, " in refusal.value.asked
    assert "cost 0.25, " in refusal.value.asked


def test_opposite_decisions_in_one_batch_do_not_both_win(ledger: Ledger) -> None:
    """The second sees the first although nothing is committed yet."""
    id = ledger.unknown(WANTED)
    first, second = ledger.do_all(decide(id), decide(id, "release"))
    assert first.verdict == "settle"
    assert isinstance(second, ReservationConflict)
    assert ledger.row(s.reservations, id).state == "SETTLED"


def test_opposite_decisions_of_two_processes_do_not_both_win(ledger: Ledger, database_url: str) -> None:
    """One is recorded, the other is a conflict, whoever comes first."""
    ids = [ledger.unknown(ask(total_tokens=10), who=identity(f"a{n}")) for n in range(5)]
    gate = threading.Barrier(2)
    outcomes: dict[str, list[Any]] = {}

    def run(verdict: str) -> None:
        with open_ledger(database_url) as own:
            gate.wait(timeout=30)
            outcomes[verdict] = own.do_all(*[decide(id, verdict) for id in ids])

    threads = [threading.Thread(target=run, args=(verdict,)) for verdict in ("settle", "release")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for settled, released in zip(outcomes["settle"], outcomes["release"], strict=True):
        assert [isinstance(one, ReservationConflict) for one in (settled, released)].count(True) == 1
    assert len(ledger.rows(s.decisions)) == 5


@pytest.mark.parametrize(
    "what_happened",
    ["settled", "released", "rejected"],
)
def test_what_was_never_unknown_cannot_be_decided(ledger: Ledger, what_happened: str) -> None:
    """The worker's own settlement is final, even where a decision would say the same."""
    fence = ledger.claim()
    id = ledger.start(fence, WANTED)
    ends = {
        "settled": settle(fence, id, 10, 20),
        "released": SettleInvocation(fence, id, "FAILED", "release", "PROVIDER_CALL_NOT_STARTED"),
        "rejected": SettleInvocation(
            fence, id, "FAILED", "settle", "PROVIDER_REJECTED", actual=Amounts(0, 0, 0, 1)
        ),
    }
    ledger.do(ends[what_happened])
    for verdict in ("settle", "release"):
        with pytest.raises(ReservationConflict):
            ledger.do(decide(id, verdict))
    assert ledger.rows(s.decisions) == []


@pytest.mark.parametrize("namespace", [NAMESPACE, "other"])
def test_a_target_that_is_not_there_is_said_to_be_missing(ledger: Ledger, namespace: str) -> None:
    """Another namespace's invocation is not there either."""
    id = ledger.unknown(WANTED)
    wrong = id if namespace == "other" else id[:-1] + "?"
    with pytest.raises(NotFound) as refusal:
        ledger.do(decide(wrong, namespace=namespace))
    assert (refusal.value.what, refusal.value.id) == ("invocation", wrong)
    assert ledger.row(s.reservations, id).state == "RECONCILE"


@pytest.mark.parametrize(
    "bad",
    [
        {"decision_id": "not-a-uuid"},
        {"decision_id": "{12345678-1234-5678-1234-567812345678}"},
        {"decision_id": "ABCDEFAB-1234-5678-1234-567812345678"},
        {"decision_id": None},
        {"actor": ""},
        {"reason": ""},
        {"reason": "two\nlines"},
    ],
)
def test_a_decision_says_who_and_why(bad: dict[str, Any]) -> None:
    """Id, actor and reason are checked before anything else."""
    with pytest.raises(InvalidRequest):
        decide("anything", **bad)


def test_a_call_that_may_be_running_is_not_decided(ledger: Ledger) -> None:
    """While its attempt holds the lease, a STARTED invocation is the attempt's to end."""
    fence = ledger.claim()
    id = ledger.start(fence, WANTED)
    for verdict in ("settle", "release"):
        with pytest.raises(ActivityBusy) as refusal:
            ledger.do(decide(id, verdict))
    assert refusal.value.attempt == 1
    assert ledger.row(s.reservations, id).state == "HELD"
    ledger.settle(fence, id, 10, 20)


def test_deciding_about_a_lost_attempt_ends_it_first(ledger: Ledger) -> None:
    """When the lease ran out, all it left open becomes unknown, and it can write no more: it may be alive."""
    fence = ledger.claim()
    id, sibling = ledger.start(fence, WANTED), ledger.start(fence, WANTED)
    ledger.settle(fence, sibling, 1, 1, effects=(effect(sibling),))
    third = ledger.start(fence, WANTED)
    ledger.now += LEASE
    ledger.do(decide(id, usage=Budget(total_tokens=40)))
    (activity,), (attempt,) = ledger.rows(s.activities), ledger.rows(s.attempts)
    assert (activity.state, attempt.state, attempt.ended_at) == ("FREE", "LOST", ledger.now)
    assert ledger.row(s.invocations, id).reason == "DECIDED_SPENT"
    assert ledger.row(s.invocations, third).reason == "ATTEMPT_LOST"
    assert ledger.rows(s.effects)[0].state == "OUTCOME_UNKNOWN"
    events = [row.event for row in ledger.rows(s.journal) if row.reservation_id == id]
    assert events == ["reserve", "unknown", "settle"]
    with pytest.raises(LeaseLost):
        ledger.settle(fence, id, 10, 20)
    assert ledger.claim().attempt == 2


def test_an_attempt_that_ended_without_its_call_can_be_decided(ledger: Ledger) -> None:
    """A free activity has nobody who would finish a STARTED invocation."""
    fence = ledger.claim()
    id = ledger.start(fence, WANTED)
    ledger.end(fence)
    ledger.do(decide(id, "release"))
    assert ledger.row(s.invocations, id).state == "CANCELLED"
    assert ledger.rows(s.activities)[0].state == "FREE"


def test_a_reply_without_usage_is_settled_and_stays_what_it_was(ledger: Ledger) -> None:
    """Only the figures were missing: the invocation keeps its state, and cannot be called "not performed"."""
    fence = ledger.claim()
    id = ledger.start(fence, WANTED)
    ledger.settle(fence, id, resolution="unknown", reason="USAGE_MISSING", usage=None, actual=Amounts())
    with pytest.raises(ReservationConflict, match="SUCCEEDED with a reply"):
        ledger.do(decide(id, "release"))
    ledger.do(decide(id, usage=Budget(input_tokens=1, output_tokens=2)))
    invocation = ledger.row(s.invocations, id)
    assert (invocation.state, invocation.reason) == ("SUCCEEDED", "USAGE_MISSING")
    assert ledger.account("acme").settled.total_tokens == 3
