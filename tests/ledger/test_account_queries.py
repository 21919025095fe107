"""Looking at accounts: balances, lists, histories, and what remains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from memoflow.budget import Amounts, Budget, Money
from memoflow.errors import BudgetNotConfigured
from memoflow.ledger import schema as s
from memoflow.ledger.accounts import (
    SetAccountState,
    list_accounts,
    policy_history,
    remaining,
)
from tests.ledger._calls import NAMESPACE, SECOND, START, Ledger, ask, open_ledger, put

HOUR = 3600 * SECOND


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """A fresh ledger on each kind of database."""
    with open_ledger(database_url) as opened:
        yield opened


def close(path: str, state: str = "CLOSED") -> SetAccountState:
    """The operation that closes an account, or opens it again."""
    return SetAccountState(NAMESPACE, path, state, "tester", "moved")


def test_reading_opens_no_balance(ledger: Ledger) -> None:
    """A period without a reservation reads as zero and stays unwritten."""
    ledger.put("acme", Budget(total_tokens=10), period="hour")
    before = ledger.rows(s.balances)
    ledger.now += 5 * HOUR
    info = ledger.account("acme")
    assert info.used == Amounts()
    assert (info.period_start, info.period_end) == (START + 5 * HOUR, START + 6 * HOUR)
    assert ledger.read(lambda c: remaining(c, NAMESPACE, ["acme"], ledger.now)).total_tokens == 10
    assert ledger.rows(s.balances) == before


def test_a_list_has_parents_before_children_and_can_be_narrowed(ledger: Ledger) -> None:
    """Order is by segments, so a sibling whose name begins the same does not come between."""
    for path in ("b", "a", "a-b", "a/b", "a/b/c", "b/x"):
        ledger.put(path)

    def paths(**options: Any) -> list[str]:
        return [
            info.path for info in ledger.read(lambda c: list_accounts(c, NAMESPACE, ledger.now, **options))
        ]

    assert paths() == ["a", "a/b", "a/b/c", "a-b", "b", "b/x"]
    assert paths(under="a") == ["a", "a/b", "a/b/c"]
    assert paths(under="a/b") == ["a/b", "a/b/c"]
    assert paths(under="c") == []


def test_a_list_is_complete_beyond_one_page(ledger: Ledger) -> None:
    """Run accounts can be many; a list reads them in pages and loses none."""
    ledger.put("acme")
    ledger.do_all(*[put(f"acme/run-{n}", Budget(total_tokens=n)) for n in range(505)])
    found = ledger.read(lambda c: list_accounts(c, NAMESPACE, ledger.now))
    assert len(found) == 506
    assert sorted(info.hard.total_tokens or 0 for info in found[1:]) == list(range(505))


def test_alerts_and_over_limit_name_dimensions(ledger: Ledger) -> None:
    """More than the soft limit is an alert, more than the hard limit is over; equal is neither."""
    ledger.put(
        "acme", Budget(total_tokens=100, output_tokens=60), soft=Budget(total_tokens=80, input_tokens=40)
    )
    fence = ledger.claim()
    id = ledger.start(fence, ask(total_tokens=80, input_tokens=40, output_tokens=60), "acme")
    assert (ledger.account("acme").alerts, ledger.account("acme").over_limit) == ((), ())
    ledger.settle(fence, id, 41, 60)
    info = ledger.account("acme")
    assert (info.alerts, info.over_limit) == (("total_tokens", "input_tokens"), ("total_tokens",))


def test_the_history_of_a_missing_account_is_a_refusal(ledger: Ledger) -> None:
    """Nothing there is not "no changes"."""
    with pytest.raises(BudgetNotConfigured):
        ledger.read(lambda c: policy_history(c, NAMESPACE, "acme"))


def test_remaining_is_the_least_over_the_chain(ledger: Ledger) -> None:
    """Each dimension is bounded by whichever account leaves least of it; unlimited ones are None."""
    ledger.put("acme", Budget(total_tokens=100, cost=Money.of(2)))
    ledger.put("acme/a", Budget(total_tokens=80, model_calls=5))
    ledger.put("other", Budget(tool_calls=3))
    ledger.start(ledger.claim(), ask(total_tokens=30, cost=5 * 10**8), "acme")
    left = ledger.read(lambda c: remaining(c, NAMESPACE, ["acme/a", "other"], ledger.now))
    assert left == Budget(total_tokens=70, model_calls=5, tool_calls=3, cost=Money.of("1.5"))


def test_remaining_is_never_negative(ledger: Ledger) -> None:
    """An account over its limit leaves nothing."""
    ledger.put("acme", Budget(total_tokens=10))
    fence = ledger.claim()
    ledger.settle(fence, ledger.start(fence, ask(total_tokens=10), "acme"), 20, 5)
    assert ledger.read(lambda c: remaining(c, NAMESPACE, ["acme"], ledger.now)).total_tokens == 0


def test_nothing_remains_on_a_closed_or_missing_account(ledger: Ledger) -> None:
    """Closed leaves no model calls; missing is a refusal, never "unlimited"."""
    ledger.put("acme", Budget(total_tokens=10))
    ledger.put("acme/a")
    ledger.do(close("acme"))
    left = ledger.read(lambda c: remaining(c, NAMESPACE, ["acme/a"], ledger.now))
    assert left == Budget(total_tokens=10, model_calls=0)
    with pytest.raises(BudgetNotConfigured) as refusal:
        ledger.read(lambda c: remaining(c, NAMESPACE, ["acme/b"], ledger.now))
    assert refusal.value.account == "acme/b"
