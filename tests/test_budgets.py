"""``rt.budgets``: what an application does with accounts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memoflow.budget import Budget, Money
from memoflow.budgets import Budgets
from memoflow.errors import BudgetDenied, BudgetNotConfigured, InvalidBudget, InvalidRequest
from tests.ledger._calls import NAMESPACE, Ledger, ask, open_ledger


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """A fresh ledger."""
    with open_ledger(database_url) as opened:
        yield opened


@pytest.fixture
def budgets(ledger: Ledger) -> Budgets:
    """The accounts of its namespace."""
    return Budgets(ledger.database, ledger.writer, NAMESPACE)


def test_an_account_is_put_and_shown(budgets: Budgets) -> None:
    """What put returns is what show says afterwards."""
    info = budgets.put(
        "acme",
        Budget(total_tokens=10),
        soft=Budget(total_tokens=5),
        period="month",
        time_zone="Europe/Berlin",
        actor="ann",
        reason="start",
    )
    assert (info.period, info.time_zone, info.soft.total_tokens) == ("month", "Europe/Berlin", 5)
    assert budgets.show("acme") == info
    assert [(one.actor, one.reason) for one in budgets.history("acme")] == [("ann", "start")]


def test_putting_is_done_by_the_application_unless_said_otherwise(budgets: Budgets) -> None:
    """Nobody else's name is taken."""
    budgets.put("acme", Budget())
    assert budgets.history("acme")[0].actor == "application"


def test_ensuring_creates_an_account_and_leaves_one_that_exists_alone(budgets: Budgets) -> None:
    """What a program says at its start does not undo what an operator raised, closed or chose since."""
    budgets.put("acme", Budget())
    given = {"soft": Budget(total_tokens=5), "period": "month", "time_zone": "Europe/Berlin"}
    made = budgets.ensure("acme/app", Budget(total_tokens=10), strict_input=True, **given)
    assert (made.hard, made.soft.total_tokens, made.period, made.strict_input) == (
        Budget(total_tokens=10),
        5,
        "month",
        True,
    )
    assert budgets.show("acme/app") == made
    raised = budgets.put("acme/app", Budget(total_tokens=99), actor="ann", reason="busy")
    closed = budgets.close("acme/app", actor="ann")
    assert raised.hard.total_tokens == closed.hard.total_tokens == 99
    for others in ({}, given, {"period": "day", "time_zone": "UTC"}):
        assert budgets.ensure("acme/app", Budget(total_tokens=10), **others) == closed
    assert [one.actor for one in budgets.history("acme/app")] == ["application", "ann", "ann"]
    with pytest.raises(BudgetNotConfigured):
        budgets.ensure("nowhere/app", Budget())
    with pytest.raises(InvalidBudget):
        budgets.ensure("acme/app", Budget(total_tokens=10), soft=Budget(total_tokens=11))


def test_closing_stops_reservations_until_it_is_reopened(budgets: Budgets, ledger: Ledger) -> None:
    """Both are durable when the method returns."""
    budgets.put("acme", Budget(total_tokens=10))
    fence = ledger.claim()
    assert budgets.close("acme").state == "CLOSED"
    with pytest.raises(BudgetDenied):
        ledger.start(fence, ask())
    assert budgets.reopen("acme", actor="ann", reason="paid").state == "OPEN"
    ledger.start(fence, ask())


def test_a_list_is_of_one_namespace(budgets: Budgets, ledger: Ledger) -> None:
    """Parents before children; another tenant's accounts are not there."""
    for path in ("b", "a", "a/x"):
        budgets.put(path, Budget())
    Budgets(ledger.database, ledger.writer, "other").put("a", Budget())
    assert [info.path for info in budgets.list()] == ["a", "a/x", "b"]
    assert [info.path for info in budgets.list(under="a")] == ["a", "a/x"]


def test_a_missing_account_is_a_refusal(budgets: Budgets) -> None:
    """Everywhere."""
    for look in (budgets.show, budgets.history, budgets.close, budgets.reopen):
        with pytest.raises(BudgetNotConfigured):
            look("acme")
    with pytest.raises(BudgetNotConfigured):
        budgets.put("acme/child", Budget())


def test_a_path_that_cannot_be_is_not_looked_up(budgets: Budgets) -> None:
    """A slip is told as such, not as a missing account."""
    for look in (budgets.show, budgets.history, budgets.close):
        with pytest.raises(InvalidBudget):
            look("acme//child")


def test_an_unpriced_model_is_allowed_by_name(budgets: Budgets, ledger: Ledger) -> None:
    """With an actor and a reason, both required."""
    budgets.put("acme", Budget(cost=Money.of(1)))
    decision = budgets.allow_unpriced("model-x", actor="ann", reason="preview")
    assert (decision.target_id, decision.actor) == ("model-x", "ann")
    with pytest.raises(InvalidRequest):
        budgets.allow_unpriced("model-x", actor="ann", reason="")
