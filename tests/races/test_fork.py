"""Forking while a ledger is open: the child starts anew, and the parent does not notice."""

from __future__ import annotations

from memoflow import Budget
from memoflow.budget import Amounts
from memoflow.ledger.verify import verify
from tests._processes import start
from tests.races.forkers import (
    CHILDREN,
    fork_in_activity,
    fork_while_writing,
    fork_with_streams,
    outlive_parent,
)
from tests.races.racers import NEED, Place


def test_an_attempt_does_not_go_on_in_a_child(place: Place) -> None:
    """A fork inside of an activity may run activities of its own, not the parent's; the parent goes on."""
    with place.open() as runtime:
        runtime.budgets.put("acme", Budget(total_tokens=100_000))
        told = start(fork_in_activity, place).result()
        assert told == {
            "call": "ConfigurationError",
            "heartbeat": "ConfigurationError",
            "own activity": "Yes.",
            "watched": "[]",
            "parent": "Yes.",
        }
        account = runtime.budgets.show("acme")
        assert (account.settled.model_calls, account.settled.total_tokens) == (2, 2 * NEED)
        assert account.held == account.unknown == Amounts()
        assert runtime.ledger.database.read(verify) == []


def test_a_call_does_not_go_on_in_a_child(place: Place) -> None:
    """A stream that was made, or begun, before the fork is read by the parent alone, undisturbed."""
    with place.open() as runtime:
        runtime.budgets.put("acme", Budget(total_tokens=100_000))
        told = start(fork_with_streams, place).result()
        assert told == {
            "made": "ConfigurationError",
            "begun": "ConfigurationError",
            "left": "ConfigurationError",
            "parent": "Yes. Yes. Yes.",
            "requests": "3",
        }
        account = runtime.budgets.show("acme")
        assert (account.settled.model_calls, account.settled.total_tokens) == (3, 3 * NEED)
        assert account.held == account.unknown == Amounts()
        assert runtime.ledger.database.read(verify) == []


def test_children_write_beside_a_parent_that_is_writing(place: Place) -> None:
    """Forked in the midst of commits, every child reopens its writer, and nothing of anybody is lost."""
    written = start(fork_while_writing, place).result()
    with place.open() as runtime:
        assert {account.path for account in runtime.budgets.list()} == set(written)
        assert len([path for path in written if path.startswith("child")]) == CHILDREN


def test_a_child_outlives_its_parent_s_runtime(place: Place) -> None:
    """What a child writes after the parent has closed its runtime stays: its log is not taken away."""
    assert start(outlive_parent, place).result() == 0
    with place.open() as runtime:
        assert [account.path for account in runtime.budgets.list()] == ["after", "before", "parent"]
        assert runtime.ledger.database.read(verify) == []
