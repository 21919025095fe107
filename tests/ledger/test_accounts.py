"""Budget accounts: creating, changing, closing and reading them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from memoflow.budget import Amounts, Budget, Money
from memoflow.errors import BudgetDenied, BudgetNotConfigured, InvalidBudget, InvalidRequest
from memoflow.ledger import schema as s
from memoflow.ledger.accounts import (
    SetAccountState,
    check_path,
    list_accounts,
    policy_history,
    read_account,
)
from memoflow.ledger.transaction import Transaction
from memoflow.ledger.verify import verify
from tests.ledger._calls import NAMESPACE, SECOND, START, Ledger, ask, open_ledger, put, start
from tests.ledger._postgres import alter_database, wait_for_lock
from tests.ledger._support import connect

HOUR = 3600 * SECOND
LOW = Budget(total_tokens=10)


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """A fresh ledger on each kind of database."""
    with open_ledger(database_url) as opened:
        yield opened


def close(path: str, state: str = "CLOSED") -> SetAccountState:
    """The operation that closes an account, or opens it again."""
    return SetAccountState(NAMESPACE, path, state, "tester", "moved")


def test_a_new_account_has_defaults_and_zero_balances(ledger: Ledger) -> None:
    """Without a word a period never ends, begins in UTC, and nothing is used."""
    info = ledger.put("acme", Budget(total_tokens=10, cost=Money.of("2.5")), soft=Budget(total_tokens=8))
    assert (info.path, info.state, info.period, info.time_zone) == ("acme", "OPEN", "none", "UTC")
    assert (info.currency, info.policy_version) == ("USD", 1)
    assert (info.hard, info.soft) == (
        Budget(total_tokens=10, cost=Money.of("2.5")),
        Budget(total_tokens=8),
    )
    assert (info.period_start, info.period_end) == (0, None)
    assert info.settled == info.held == info.unknown == info.used == Amounts()
    assert ledger.account("acme") == info


def test_a_missing_parent_is_refused_and_nothing_is_written(ledger: Ledger) -> None:
    """An account is created below an existing one only."""
    with pytest.raises(BudgetNotConfigured) as refusal:
        ledger.put("acme/support/tier-1")
    assert refusal.value.account == "acme"
    assert ledger.rows(s.accounts) == []
    assert ledger.rows(s.policies) == []


def test_a_child_names_its_parent(ledger: Ledger) -> None:
    """The tree is in the rows, not only in the paths."""
    ledger.put("acme")
    ledger.put("acme/support")
    parent, child = ledger.rows(s.accounts)
    assert (parent.parent_id, child.parent_id) == (None, parent.id)


def test_parent_child_and_call_may_travel_in_one_batch(ledger: Ledger) -> None:
    """What a batch creates is there for the operations behind it."""
    fence = ledger.claim()
    results = ledger.do_all(
        put("acme", Budget(total_tokens=100)),
        put("acme/run", Budget(total_tokens=50)),
        start(fence, ask(total_tokens=40), "acme/run"),
        start(fence, ask(total_tokens=40), "acme/run"),
    )
    assert isinstance(results[3], BudgetDenied)
    assert (results[3].account, results[3].held) == ("acme/run", 40)
    assert ledger.account("acme").held.total_tokens == 40


def test_new_limits_hold_for_operations_behind_them_in_the_batch(ledger: Ledger) -> None:
    """A lowered limit is in force at once, even inside one batch."""
    ledger.put("acme", Budget(total_tokens=100))
    fence = ledger.claim()
    results = ledger.do_all(
        start(fence, ask(total_tokens=60), "acme"),
        put("acme", Budget(total_tokens=70)),
        start(fence, ask(total_tokens=20), "acme"),
    )
    assert isinstance(results[2], BudgetDenied)
    assert (results[2].limit, results[2].held) == (70, 60)


def test_other_limits_are_a_further_version(ledger: Ledger) -> None:
    """Every version is kept with who and why, and the last is in force."""
    ledger.put("acme", Budget(total_tokens=10), actor="ann", reason="start")
    ledger.now += HOUR
    info = ledger.put("acme", Budget(model_calls=3), actor="bob", reason="calls, not tokens")
    assert (info.policy_version, info.hard) == (2, Budget(model_calls=3))
    first, second = ledger.read(lambda c: policy_history(c, NAMESPACE, "acme"))
    assert (first.version, first.hard, first.actor, first.reason, first.at) == (
        1,
        Budget(total_tokens=10),
        "ann",
        "start",
        START,
    )
    assert (second.version, second.hard, second.actor, second.at) == (
        2,
        Budget(model_calls=3),
        "bob",
        START + HOUR,
    )


@pytest.mark.parametrize("hard", [Budget(), Budget(total_tokens=5, cost=Money.of(1))])
def test_the_same_limits_again_change_nothing(ledger: Ledger, hard: Budget) -> None:
    """An application may put its accounts on every start."""
    soft = Budget(model_calls=5)
    ledger.put("acme", hard, soft=soft)
    info = ledger.put("acme", hard, soft=soft, actor="somebody else", period="none", time_zone="UTC")
    assert info.policy_version == 1
    assert len(ledger.rows(s.policies)) == 1


def test_leaving_soft_limits_out_takes_them_away(ledger: Ledger) -> None:
    """Limits are replaced whole."""
    ledger.put("acme", Budget(total_tokens=10), soft=Budget(total_tokens=5))
    info = ledger.put("acme", Budget(total_tokens=10))
    assert (info.policy_version, info.soft) == (2, Budget())


@pytest.mark.parametrize(
    ("change", "word"), [({"period": "day"}, "period"), ({"time_zone": "Europe/Berlin"}, "time zone")]
)
def test_period_and_zone_are_set_for_good(ledger: Ledger, change: dict[str, str], word: str) -> None:
    """They cannot change, because open holds belong to the periods there are; the refusal says so."""
    ledger.put("acme", Budget(total_tokens=10), period="month", time_zone="Asia/Tokyo")
    with pytest.raises(InvalidBudget, match=f"The {word} of budget account 'acme' .* cannot change"):
        ledger.put("acme", Budget(total_tokens=20), **change)
    assert ledger.account("acme").policy_version == 1


def test_a_later_money_limit_gives_the_account_its_currency(ledger: Ledger) -> None:
    """An account without money has no currency until a limit names one, hard or soft."""
    assert ledger.put("acme", Budget(total_tokens=10)).currency is None
    info = ledger.put("acme", Budget(total_tokens=10), soft=Budget(cost=Money.of(1, "EUR")))
    assert (info.currency, info.soft.cost) == ("EUR", Money.of(1, "EUR"))


def test_an_account_keeps_its_currency_when_money_is_no_longer_limited(ledger: Ledger) -> None:
    """What it holds was counted in it."""
    ledger.put("acme", Budget(cost=Money.of(1, "EUR")))
    info = ledger.put("acme", Budget(total_tokens=10))
    assert (info.policy_version, info.hard, info.currency) == (2, Budget(total_tokens=10), "EUR")


def test_a_soft_limit_may_equal_the_hard_one(ledger: Ledger) -> None:
    """Usage beyond the reservation can still reach it."""
    assert ledger.put("acme", Budget(total_tokens=5), soft=Budget(total_tokens=5)).policy_version == 1


def test_the_same_amount_in_another_currency_is_refused(ledger: Ledger) -> None:
    """Five euros are not five dollars, and not "the same limits again"."""
    ledger.put("acme", Budget(cost=Money.of(5, "USD")))
    with pytest.raises(InvalidBudget, match="counts cost in USD"):
        ledger.put("acme", Budget(cost=Money.of(5, "EUR")))
    assert ledger.account("acme").policy_version == 1


@pytest.mark.parametrize(
    ("first", "second"), [("acme", "acme/a/b"), ("acme/a/b", "acme"), ("acme/a", "acme/c")]
)
def test_a_tree_counts_in_one_currency(ledger: Ledger, first: str, second: str) -> None:
    """A call is charged to a whole branch, so another currency anywhere in the tree is refused."""
    for path in ("acme", "acme/a", "acme/a/b", "acme/c", "acme-2"):
        ledger.put(path)
    ledger.put("acme-2", Budget(cost=Money.of(1, "GBP")))
    ledger.put(first, Budget(cost=Money.of(1, "USD")))
    with pytest.raises(InvalidBudget, match="in USD"):
        ledger.put(second, Budget(cost=Money.of(1, "EUR")))


@pytest.mark.parametrize(
    ("hard", "soft", "sentence"),
    [
        (Budget(total_tokens=5), Budget(total_tokens=6), "The soft limit of total_tokens, 6, is above"),
        (Budget(cost=Money.of(5, "USD")), Budget(cost=Money.of(1, "EUR")), "hard limit is in USD"),
        ({"total_tokens": 5}, None, "Limits are a Budget"),
        (Budget(), {"total_tokens": 5}, "Limits are a Budget"),
    ],
)
def test_limits_that_contradict_each_other_are_refused(hard: Any, soft: Any, sentence: str) -> None:
    """A refusal names the figures, before anything reaches the database."""
    with pytest.raises(InvalidBudget, match=sentence):
        put("acme", hard or Budget(), soft=soft)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/a",
        "a/",
        "a//b",
        "a\nb",
        "a\x00b",
        "a\x7fb",
        "a\x85b",
        "a\ud800",
        "x" * 201,
        "/".join("abcdefghi"),
        7,
        None,
    ],
)
def test_a_path_that_cannot_name_an_account_is_refused(path: Any) -> None:
    """Segments have 1 to 200 characters without control characters, and there are at most 8."""
    with pytest.raises(InvalidBudget, match="account path"):
        check_path(path)


@pytest.mark.parametrize("path", ["a", "x" * 200, "/".join("abcdefgh"), "a b/ü/run:w%2F1:r", "💰"])
def test_a_path_may_hold_any_printable_text(ledger: Ledger, path: str) -> None:
    """Names of people's own systems need no translation."""
    parts = path.split("/")
    for i in range(len(parts)):
        info = ledger.put("/".join(parts[: i + 1]))
    assert info.path == path


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"period": "year"}, InvalidBudget),
        ({"time_zone": "Mars/Olympus"}, InvalidBudget),
        ({"actor": ""}, InvalidRequest),
        ({"actor": None}, InvalidRequest),
        ({"reason": "two\nlines"}, InvalidRequest),
        ({"reason": "x" * 1001}, InvalidRequest),
        ({"namespace": ""}, InvalidRequest),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(
    options: dict[str, Any], error: type[Exception]
) -> None:
    """An operation that exists is valid in itself."""
    with pytest.raises(error):
        put("acme", **options)


def test_closing_and_reopening_are_versions_too(ledger: Ledger) -> None:
    """The state is part of the policy; repeating a change of state is a no-op."""
    ledger.put("acme", Budget(total_tokens=10), soft=Budget(total_tokens=4))
    info = ledger.do(close("acme"))
    assert (info.state, info.policy_version, info.hard.total_tokens, info.soft.total_tokens) == (
        "CLOSED",
        2,
        10,
        4,
    )
    assert ledger.do(close("acme")).policy_version == 2
    assert ledger.do(close("acme", "OPEN")).policy_version == 3
    states = [version.state for version in ledger.read(lambda c: policy_history(c, NAMESPACE, "acme"))]
    assert states == ["OPEN", "CLOSED", "OPEN"]


def test_new_limits_leave_a_closed_account_closed(ledger: Ledger) -> None:
    """Putting limits is not a way to reopen by accident."""
    ledger.put("acme", Budget(total_tokens=10))
    ledger.do(close("acme"))
    assert ledger.put("acme", Budget(total_tokens=20)).state == "CLOSED"
    ledger.put("acme/child", Budget(total_tokens=1))
    with pytest.raises(BudgetDenied) as refusal:
        ledger.start(ledger.claim(), ask(total_tokens=1), "acme/child")
    assert (refusal.value.account, refusal.value.reason) == ("acme", "closed")


def test_only_an_existing_account_can_be_closed(ledger: Ledger) -> None:
    """And there are two states."""
    with pytest.raises(BudgetNotConfigured):
        ledger.do(close("acme"))
    with pytest.raises(InvalidBudget):
        close("acme", "PAUSED")


def test_namespaces_do_not_see_each_other(ledger: Ledger) -> None:
    """The same path in another namespace is another account."""
    ledger.put("acme", Budget(total_tokens=10))
    ledger.put("acme", Budget(total_tokens=99), namespace="other", period="day")
    assert ledger.account("acme").hard.total_tokens == 10
    assert len(ledger.read(lambda c: list_accounts(c, "other", ledger.now))) == 1
    assert ledger.read(lambda c: read_account(c, "third", "acme", ledger.now)) is None


@pytest.mark.postgres
@pytest.mark.parametrize("path", ["acme", "acme/team"])
@pytest.mark.parametrize("reason", ["limit", "closed"])
def test_limits_changed_while_a_reservation_waits_for_its_balance_count(
    postgres_url: str, reason: str, path: str
) -> None:
    """A reservation goes by the limits that are durable when it has its balance, its ancestors' included."""
    with open_ledger(postgres_url) as ledger:
        ledger.do_all(put("acme", Budget(total_tokens=1_000)), put("acme/team", Budget(total_tokens=1_000)))
        ledger.settle(fence := ledger.claim(), ledger.start(fence, ask(total_tokens=5), "acme/team"), 5)
        closing, lowering = SetAccountState(NAMESPACE, path, "CLOSED", "ann", ""), put(path, LOW)
        with connect(postgres_url) as other:
            Transaction(other, ledger.now).run([closing if reason == "closed" else lowering])
            (future,) = ledger.writer.submit(start(fence, ask(total_tokens=900), "acme/team"))
            wait_for_lock(postgres_url)
        with pytest.raises(BudgetDenied) as refused:
            future.result(30)
        assert (refused.value.account, refused.value.reason) == (path, reason)
        assert ledger.read(verify) == []


@pytest.mark.postgres
def test_a_snapshot_older_than_the_locks_is_not_used(postgres_url: str) -> None:
    """Where a database asks for repeatable reads, the ledger reads what is committed all the same."""
    alter_database(postgres_url, "SET default_transaction_isolation = 'repeatable read'")
    with open_ledger(postgres_url) as ledger:
        level = ledger.read(lambda c: c.exec_driver_sql("SHOW transaction_isolation").scalar_one())
    assert level == "read committed"


def test_processes_that_create_one_account_at_once_end_with_one(database_url: str) -> None:
    """A unique key taken meanwhile is looked at again, not reported as a fault."""
    gate = threading.Barrier(4)
    versions = []

    def create(limit: int) -> None:
        with open_ledger(database_url) as own:
            gate.wait(timeout=30)
            versions.append(own.put("acme", Budget(total_tokens=limit)).policy_version)

    threads = [threading.Thread(target=create, args=(limit,)) for limit in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(versions) == [1, 2, 3, 4]
    with open_ledger(database_url) as own:
        (account,) = own.rows(s.accounts)
        history = own.read(lambda c: policy_history(c, NAMESPACE, "acme"))
    assert account.policy_version == 4
    assert sorted(version.hard.total_tokens or 0 for version in history) == [1, 2, 3, 4]
