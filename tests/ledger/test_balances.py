"""Admission and posting: what a limit lets through, and what each resolution does to a balance."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from memoflow.budget import DIMENSIONS, Amounts, Budget, Money
from memoflow.errors import (
    BudgetDenied,
    BudgetNotConfigured,
    BudgetUnbounded,
    InvalidBudget,
    PriceUnknown,
    ReservationConflict,
)
from memoflow.ledger import schema as s
from memoflow.ledger.accounts import SetAccountState
from memoflow.ledger.holdings import Ask, SoftLimit
from memoflow.ledger.invocations import SettleInvocation
from memoflow.ledger.verify import verify
from tests.ledger._calls import NAMESPACE, SECOND, START, Ledger, ask, identity, open_ledger, settle, start

DAY = 86_400 * SECOND


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """A fresh ledger; when the test is over, every fact in it must hold."""
    with open_ledger(database_url) as opened:
        yield opened
        assert opened.read(verify) == []


def limit(dimension: str, amount: int) -> Budget:
    """A limit of one dimension."""
    return Budget(**{dimension: Money(amount) if dimension == "cost" else amount})


def without(dimension: str) -> Ask:
    """An ask with no upper bound in one dimension."""
    return ask(**{dimension: None})


# Admission


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_a_limit_lets_exactly_its_amount_through(ledger: Ledger, dimension: str) -> None:
    """settled + held + unknown + requested may equal the limit, and not exceed it, in every dimension."""
    ledger.put("acme", limit(dimension, 4))
    fence = ledger.claim()
    used: dict[str, Any] = {"model_calls": 0, dimension: 1}
    settled = ledger.start(fence, ask(**used))
    ledger.settle(fence, settled, usage=None, actual=Amounts(**{dimension: 1} | {"model_calls": 1}))
    ledger.lose_reply(fence, ledger.start(fence, ask(**used)))
    ledger.start(fence, ask(**used))
    with pytest.raises(BudgetDenied) as refusal:
        ledger.start(fence, ask(**{**used, dimension: 2}))
    error = refusal.value
    assert (error.account, error.dimension, error.limit, error.requested) == ("acme", dimension, 4, 2)
    assert (error.settled, error.held, error.unknown, error.fits) == (1, 1, 1, 1)
    ledger.start(fence, ask(**used))
    with pytest.raises(BudgetDenied):
        ledger.start(fence, ask(**used))


def test_a_refusal_says_when_the_period_resets_and_what_output_would_fit(ledger: Ledger) -> None:
    """So that a caller can wait, or ask for less."""
    ledger.put("acme", Budget(total_tokens=100, output_tokens=50), period="day")
    fence = ledger.claim()
    ledger.start(fence, ask(total_tokens=30, input_tokens=20, output_tokens=10))
    with pytest.raises(BudgetDenied) as refusal:
        ledger.start(fence, ask(total_tokens=80, input_tokens=45, output_tokens=35))
    assert refusal.value.resets_at == datetime(2027, 1, 16, tzinfo=UTC)
    assert refusal.value.output_cap_fits == 25
    with pytest.raises(BudgetDenied) as refusal:
        ledger.start(fence, ask(total_tokens=60, input_tokens=5, output_tokens=55))
    assert (refusal.value.dimension, refusal.value.output_cap_fits) == ("output_tokens", 40)


def test_without_a_period_a_refusal_names_no_reset(ledger: Ledger) -> None:
    """There is none."""
    ledger.put("acme", Budget(total_tokens=0))
    with pytest.raises(BudgetDenied) as refusal:
        ledger.start(ledger.claim(), ask(total_tokens=1))
    assert refusal.value.resets_at is None
    assert refusal.value.output_cap_fits == 0


@pytest.mark.parametrize("refusing", ["acme", "acme/support", "acme/support/tier-1"])
def test_every_account_of_the_branch_must_agree(ledger: Ledger, refusing: str) -> None:
    """All or nothing: one refusal, and none of them holds anything."""
    for path in ("acme", "acme/support", "acme/support/tier-1"):
        ledger.put(path, Budget(total_tokens=10 if path == refusing else 100))
    with pytest.raises(BudgetDenied) as refusal:
        ledger.start(ledger.claim(), ask(total_tokens=11), "acme/support/tier-1")
    assert refusal.value.account == refusing
    for path in ("acme", "acme/support", "acme/support/tier-1"):
        assert ledger.account(path).used == Amounts()
    assert ledger.rows(s.journal) == ledger.rows(s.invocations) == ledger.rows(s.reservations) == []


def test_a_reservation_holds_on_its_whole_branch_once(ledger: Ledger) -> None:
    """Also where an account and its ancestor, or two accounts of one tree, are both named."""
    for path in ("acme", "acme/a", "acme/b", "other"):
        ledger.put(path, Budget(total_tokens=100))
    ledger.start(ledger.claim(), ask(total_tokens=30), "acme/a", "acme", "acme/b", "other")
    for path in ("acme", "acme/a", "acme/b", "other"):
        assert ledger.account(path).held == Amounts(total_tokens=30, model_calls=1)
    assert len(ledger.rows(s.journal)) == 4


@pytest.mark.parametrize("path", ["acme/missing", "missing", "acme/missing/child"])
def test_a_missing_account_is_a_refusal(ledger: Ledger, path: str) -> None:
    """Never "unlimited", wherever in the branch it is missing."""
    ledger.put("acme")
    with pytest.raises(BudgetNotConfigured):
        ledger.start(ledger.claim(), ask(), path)
    assert ledger.account("acme").used == Amounts()


def test_an_account_of_another_namespace_is_missing(ledger: Ledger) -> None:
    """Nothing is charged across namespaces."""
    ledger.put("acme", namespace="other")
    with pytest.raises(BudgetNotConfigured):
        ledger.start(ledger.claim(), ask(), "acme")


def test_a_closed_account_takes_nothing_and_settles_what_it_holds(ledger: Ledger) -> None:
    """Closing stops what is new only."""
    ledger.put("acme", Budget(total_tokens=100))
    fence = ledger.claim()
    id = ledger.start(fence, ask(total_tokens=10))
    ledger.do(SetAccountState(NAMESPACE, "acme", "CLOSED", "tester", ""))
    with pytest.raises(BudgetDenied) as refusal:
        ledger.start(fence, ask())
    assert refusal.value.reason == "closed"
    ledger.settle(fence, id, 3, 4)
    assert ledger.account("acme").settled.total_tokens == 7


def test_soft_limits_alert_and_let_through(ledger: Ledger) -> None:
    """An admitted reservation says which soft limits it goes over, and by what."""
    ledger.put("acme", Budget(total_tokens=100), soft=Budget(total_tokens=20, model_calls=1))
    ledger.put("acme/a", soft=Budget(total_tokens=15))
    fence = ledger.claim()
    first = ledger.do(start(fence, ask(total_tokens=15), "acme/a"))
    assert first.alerts == ()
    second = ledger.do(start(fence, ask(total_tokens=6), "acme/a"))
    assert set(second.alerts) == {
        SoftLimit("acme", "total_tokens", 20, 21),
        SoftLimit("acme", "model_calls", 1, 2),
        SoftLimit("acme/a", "total_tokens", 15, 21),
    }


@pytest.mark.parametrize("dimension", ["total_tokens", "input_tokens", "output_tokens", "wall_clock_ms"])
def test_a_limited_dimension_needs_an_upper_bound(ledger: Ledger, dimension: str) -> None:
    """What could be any amount is not admitted under a limit; without one it holds nothing."""
    ledger.put("free")
    ledger.put("acme", limit(dimension, 1_000))
    fence = ledger.claim()
    ledger.start(fence, without(dimension), "free")
    with pytest.raises(BudgetUnbounded) as refusal:
        ledger.start(fence, without(dimension), "acme")
    assert (refusal.value.account, refusal.value.dimension) == ("acme", dimension)


def test_money_needs_a_price_and_a_bound(ledger: Ledger) -> None:
    """An unpriced model is refused, and so is a priced one whose cost has no bound."""
    ledger.put("acme", Budget(cost=Money.of(1)))
    fence = ledger.claim()
    unpriced = Ask(without("cost").amounts, None, "model-x")
    with pytest.raises(PriceUnknown) as unknown:
        ledger.start(fence, unpriced)
    assert (unknown.value.model, unknown.value.account) == ("model-x", "acme")
    with pytest.raises(BudgetUnbounded):
        ledger.start(fence, without("cost"))


def test_another_currency_is_refused(ledger: Ledger) -> None:
    """Euros are not added to dollars."""
    ledger.put("acme", Budget(cost=Money.of(1, "EUR")))
    with pytest.raises(InvalidBudget, match="in EUR, but the call is priced in USD"):
        ledger.start(ledger.claim(), ask(cost=1))


def test_operations_of_a_batch_see_each_other_s_holds(ledger: Ledger) -> None:
    """Ten that come together share the limit as if they had come one by one; refusals spoil nothing."""
    ledger.put("acme", Budget(total_tokens=35))
    fence = ledger.claim()
    results = ledger.do_all(*[start(fence, ask(total_tokens=10)) for _ in range(10)])
    assert [isinstance(result, BudgetDenied) for result in results] == [False] * 3 + [True] * 7
    assert ledger.account("acme").held == Amounts(total_tokens=30, model_calls=3)


def test_processes_on_one_hot_account_never_exceed_its_limit(database_url: str) -> None:
    """Four writers of their own: exactly as many are admitted as fit."""
    with open_ledger(database_url) as ledger:
        ledger.put("acme", Budget(model_calls=21))
        ledger.put("acme/a", Budget(model_calls=8))
    gate = threading.Barrier(4)
    admitted: list[str] = []

    def work(n: int) -> None:
        with open_ledger(database_url) as own:
            fence = own.claim(identity(f"a{n}"))
            gate.wait(timeout=30)
            for i in range(8):
                path = "acme/a" if i % 2 else "acme"
                [result] = own.do_all(start(fence, ask(), path))
                if not isinstance(result, Exception):
                    admitted.append(path)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with open_ledger(database_url) as ledger:
        assert ledger.account("acme").held.model_calls == len(admitted) <= 21
        assert ledger.account("acme/a").held.model_calls == admitted.count("acme/a") <= 8
        assert len(admitted) == 21 or admitted.count("acme/a") == 8
        assert ledger.read(verify) == []


# Posting


def journal(ledger: Ledger, id: str) -> list[tuple[Any, ...]]:
    """Events of a reservation with the signed total tokens they add to settled, held and unknown."""
    return [
        (row.event, row.settled_total_tokens, row.held_total_tokens, row.unknown_total_tokens)
        for row in ledger.rows(s.journal, reservation_id=id)
    ]


def test_settling_replaces_the_hold_by_what_was_used(ledger: Ledger) -> None:
    """The journal has the hold, and its replacement."""
    ledger.put("acme", Budget(total_tokens=100))
    fence = ledger.claim()
    id = ledger.start(fence, ask(total_tokens=40))
    assert ledger.account("acme").held.total_tokens == 40
    ledger.settle(fence, id, 10, 15)
    info = ledger.account("acme")
    assert (info.settled, info.held) == (Amounts(25, 10, 15, 1), Amounts())
    assert journal(ledger, id) == [("reserve", 0, 40, 0), ("settle", 25, -40, 0)]


def test_releasing_leaves_no_trace_on_the_balance(ledger: Ledger) -> None:
    """But two rows in the journal."""
    ledger.put("acme")
    fence = ledger.claim()
    id = ledger.start(fence, ask(total_tokens=40))
    ledger.do(SettleInvocation(fence, id, "FAILED", "release", "PROVIDER_CALL_NOT_STARTED"))
    assert ledger.account("acme").used == Amounts()
    assert journal(ledger, id) == [("reserve", 0, 40, 0), ("release", 0, -40, 0)]


def test_an_unknown_outcome_keeps_the_whole_hold(ledger: Ledger) -> None:
    """It moves from held to unknown, and stays, however much time goes by."""
    ledger.put("acme", Budget(total_tokens=50))
    fence = ledger.claim()
    id = ledger.start(fence, ask(total_tokens=40))
    ledger.lose_reply(fence, id)
    ledger.now += 1_000 * DAY
    info = ledger.account("acme")
    assert (info.held.total_tokens, info.unknown.total_tokens) == (0, 40)
    assert journal(ledger, id) == [("reserve", 0, 40, 0), ("unknown", 0, -40, 40)]


def test_more_than_was_reserved_is_recorded_in_full_and_stops_the_account(ledger: Ledger) -> None:
    """Also for a call that does not use the dimension that is over."""
    ledger.put("acme", Budget(total_tokens=50))
    fence = ledger.claim()
    ledger.settle(fence, ledger.start(fence, ask(total_tokens=40)), 30, 30)
    info = ledger.account("acme")
    assert (info.settled.total_tokens, info.over_limit) == (60, ("total_tokens",))
    with pytest.raises(BudgetDenied) as refusal:
        ledger.start(fence, ask(total_tokens=0))
    assert (refusal.value.reason, refusal.value.fits) == ("over_limit", 0)


def test_a_new_period_starts_at_zero_and_leaves_open_holds_behind(ledger: Ledger) -> None:
    """A late settlement is charged to the period that reserved it, and does not take from the new one."""
    ledger.put("acme", Budget(total_tokens=50), period="day")
    fence = ledger.claim()
    late = ledger.start(fence, ask(total_tokens=50))
    ledger.now += DAY
    fresh = ledger.start(fence, ask(total_tokens=50))
    ledger.settle(fence, late, 20, 25)
    info = ledger.account("acme")
    assert (info.settled.total_tokens, info.held.total_tokens) == (0, 50)
    ledger.settle(fence, fresh, 1, 2)
    old, new = ledger.rows(s.balances)
    assert (old.settled_total_tokens, old.held_total_tokens) == (45, 0)
    assert (new.settled_total_tokens, new.held_total_tokens) == (3, 0)
    assert old.period_end == new.period_start == START - START % DAY + DAY


def test_accounts_of_a_branch_may_have_different_periods(ledger: Ledger) -> None:
    """Each balance is charged in its own."""
    ledger.put("acme", Budget(total_tokens=90))
    ledger.put("acme/daily", Budget(total_tokens=50), period="day")
    fence = ledger.claim()
    ledger.settle(fence, ledger.start(fence, ask(total_tokens=50), "acme/daily"), 20, 25)
    ledger.now += DAY
    ledger.start(fence, ask(total_tokens=40), "acme/daily")
    assert ledger.account("acme").used.total_tokens == 85
    assert ledger.account("acme/daily").used.total_tokens == 40
    with pytest.raises(BudgetDenied) as refusal:
        ledger.start(fence, ask(total_tokens=10), "acme/daily")
    assert refusal.value.account == "acme"


def test_starting_and_settling_twice_is_a_no_op(ledger: Ledger) -> None:
    """A commit whose answer was lost can be submitted again, in one batch or in two."""
    ledger.put("acme", Budget(total_tokens=50))
    fence = ledger.claim()
    begin = start(fence, ask(total_tokens=40))
    first, again = ledger.do_all(begin, begin)
    assert first.invocation_id == again.invocation_id == ledger.do(begin).invocation_id
    end = settle(fence, begin.id, 10, 15)
    assert ledger.do_all(end, end) == [None, None]
    assert ledger.do(end) is None
    assert journal(ledger, begin.id) == [("reserve", 0, 40, 0), ("settle", 25, -40, 0)]


@pytest.mark.parametrize(
    "other",
    [
        {"resolution": "release", "state": "FAILED"},
        {"resolution": "unknown", "state": "OUTCOME_UNKNOWN"},
        {"actual": Amounts(26, 10, 16, 1)},
    ],
)
def test_another_resolution_is_a_conflict(ledger: Ledger, other: dict[str, Any]) -> None:
    """A reservation reaches exactly one terminal state."""
    ledger.put("acme", Budget(total_tokens=50))
    fence = ledger.claim()
    id = ledger.start(fence, ask(total_tokens=40))
    ledger.settle(fence, id, 10, 15)
    with pytest.raises(ReservationConflict) as conflict:
        ledger.settle(fence, id, 10, 15, **other)
    assert (conflict.value.id, conflict.value.state) == (id, "SETTLED")
    assert ledger.account("acme").settled == Amounts(25, 10, 15, 1)


def test_every_change_of_a_balance_is_one_row_of_an_unbroken_chain(ledger: Ledger) -> None:
    """Sequence numbers have no gap, and the balance names the last row's hash."""
    ledger.put("acme")
    fence = ledger.claim()
    ids = [ledger.start(fence, ask(total_tokens=n)) for n in range(1, 5)]
    ledger.do_all(*[settle(fence, id, 1, 1) for id in ids])
    rows, (balance,) = ledger.rows(s.journal), ledger.rows(s.balances)
    assert [row.seq for row in rows] == list(range(1, 9))
    assert (balance.seq, balance.head) == (8, rows[-1].hash)
    assert len({row.hash for row in rows}) == 8
