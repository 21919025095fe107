"""A batch as a unit of work: loading, deciding, writing in sets, and all or nothing."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from memoflow.budget import Amounts, Budget
from memoflow.errors import InvalidBudget, LeaseLost, ReservationConflict
from memoflow.ledger import schema as s
from memoflow.ledger.activities import ClaimActivity, EndAttempt
from memoflow.ledger.transaction import BatchSpoiled, Needs, Refused, Transaction
from memoflow.ledger.verify import verify
from tests.ledger._calls import Ledger, ask, bound, effect, identity, open_ledger, output, put, settle, start
from tests.ledger._notes import Line, Note, Refuse, Spoil, trouble
from tests.ledger._tables import Statements, changed, tables

EVERYTHING = ask(
    total_tokens=70, input_tokens=40, output_tokens=30, tool_calls=2, cost=9_000_000, wall_clock_ms=500
)


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """A fresh ledger on each kind of database."""
    with open_ledger(database_url) as opened:
        yield opened


def within(ledger: Ledger, action: Callable[[Transaction], Any]) -> Any:
    """Do something in a transaction that commits."""
    with ledger.database.write() as connection:
        return action(Transaction(connection, ledger.now))


# Cost


def test_a_batch_costs_the_same_number_of_statements_whatever_its_size(ledger: Ledger) -> None:
    """Rows are loaded, inserted and changed in sets."""
    ledger.put("acme", Budget(total_tokens=1_000_000))
    ledger.put("acme/support")
    fences = [ledger.claim(identity(f"activity-{i}")) for i in range(30)]
    ledger.start(fences[0], EVERYTHING, "acme/support", binding=bound())
    statements = Statements(ledger)
    costs = []
    for group in (fences[1:2], fences[2:]):
        starts = [start(fence, EVERYTHING, "acme/support", binding=bound()) for fence in group]
        assert not any(isinstance(result, Exception) for result in ledger.do_all(*starts))
        reserved = len(statements.take())
        settles = [
            settle(fence, op.id, 5, 5, outputs=(output(op.id, "reply"),), effects=(effect(op.id),))
            for fence, op in zip(group, starts, strict=True)
        ]
        assert ledger.do_all(*settles) == [None] * len(group)
        costs.append((reserved, len(statements.take())))
    assert costs[0] == costs[1]
    assert max(costs[0]) < 20


# Looking


def test_rows_are_loaded_once_and_absence_is_remembered(ledger: Ledger) -> None:
    """Looking again asks the database nothing, neither for what is there nor for what is not."""
    fence = ledger.claim()
    statements = Statements(ledger)

    def look(tx: Transaction) -> None:
        activity = tx.get(s.activities, fence.activity_id)
        assert activity is not None
        assert (activity.state, activity.attempt) == ("RUNNING", 1)
        assert tx.get(s.activities, "nobody") is None
        before = len(statements.texts)
        assert tx.get(s.activities, fence.activity_id) is activity
        assert tx.get(s.activities, "nobody") is None
        assert len(statements.texts) == before

    within(ledger, look)


def test_what_a_batch_adds_and_changes_is_seen_by_the_rest_of_it(ledger: Ledger) -> None:
    """Operations of a batch see each other's rows before anything is written."""
    fence = ledger.claim()

    def act(tx: Transaction) -> None:
        needs = Needs(turns={(fence.activity_id, "key")}, activities={fence.activity_id})
        tx._load(needs)
        assert tx.turn(fence.activity_id, "key") is None
        values = {"api": "api", "request_digest": "r", "executors_digest": "e", "created_at": 1}
        turn = tx.insert(
            s.turns, id="t1", namespace="tests", activity_id=fence.activity_id, replay_key="key", **values
        )
        assert tx.turn(fence.activity_id, "key") is turn
        assert tx.get(s.turns, "t1") is turn
        activity = tx.get(s.activities, fence.activity_id)
        assert activity is not None
        tx.change(s.activities, activity, state="FREE")
        assert activity.state == "FREE"
        tx.flush()

    within(ledger, act)
    assert ledger.row(s.turns, "t1").replay_key == "key"
    assert ledger.row(s.activities, fence.activity_id).state == "FREE"


def test_a_row_added_and_changed_in_one_batch_is_written_as_it_ended(ledger: Ledger) -> None:
    """The database sees one row, in its last state; further changes after a flush reach it too."""
    ledger.put("acme")
    fence = ledger.claim()
    begin = start(fence, ask(total_tokens=9), "acme")
    statements = Statements(ledger)
    ledger.do_all(begin, settle(fence, begin.id, 1, 2))
    assert not any(text.startswith("UPDATE invocations") for text in statements.take())
    assert ledger.row(s.invocations, begin.id).state == "SUCCEEDED"
    assert ledger.row(s.reservations, begin.id).state == "SETTLED"

    def act(tx: Transaction) -> None:
        row = tx.insert(s.writers, id="w", batches=0, started_at=0)
        tx.change(s.writers, row, batches=1)
        tx.flush()
        tx.change(s.writers, row, batches=2)
        tx.flush()

    within(ledger, act)
    assert ledger.row(s.writers, "w").batches == 2


def test_only_columns_that_changed_are_written(ledger: Ledger) -> None:
    """A change names its columns; the others are left to whoever else may write them."""
    fence = ledger.claim()
    statements = Statements(ledger)
    ledger.end(fence)
    (text,) = [text for text in statements.take() if text.startswith("UPDATE activities")]
    assert "state" in text
    assert "attempt" not in text
    assert "lease_expires_at" not in text


def test_a_column_that_does_not_exist_is_a_mistake(ledger: Ledger) -> None:
    """Neither a row nor a look at one takes a name that the table does not have."""

    def act(tx: Transaction) -> None:
        with pytest.raises(TypeError, match="colour"):
            tx.insert(s.writers, id="w", batches=0, started_at=0, colour="red")
        row = tx.insert(s.writers, id="w", batches=0, started_at=0)
        with pytest.raises(AttributeError):
            row.colour  # noqa: B018

    within(ledger, act)


# Refusing


@dataclass(frozen=True)
class RefuseAndKeep(Note):
    """Leave a row and refuse, with the row to be kept."""

    def apply(self, tx: Transaction) -> Any:
        """Refuse."""
        super().apply(tx)
        return Refused(InvalidBudget("Refused, and noted."))


def test_a_refusal_before_any_change_leaves_the_batch(ledger: Ledger) -> None:
    """Each operation has an outcome of its own: a value, or the error it raised."""
    outcomes = within(ledger, lambda tx: tx.run([Note("a"), Refuse("b"), Note("c")]))
    assert [outcome.value for outcome in outcomes] == ["a", None, "c"]
    assert [type(outcome.error) for outcome in outcomes] == [type(None), InvalidBudget, type(None)]
    assert [row.subject_id for row in ledger.rows(s.evidence)] == ["a", "c"]


def test_a_refusal_may_keep_what_it_wrote(ledger: Ledger) -> None:
    """Evidence of a refused write is committed with the rest of the batch."""
    (outcome,) = within(ledger, lambda tx: tx.run([RefuseAndKeep("a")]))
    assert isinstance(outcome.error, InvalidBudget)
    assert [row.subject_id for row in ledger.rows(s.evidence)] == ["a"]


def test_an_error_after_a_change_spoils_the_batch(ledger: Ledger) -> None:
    """What was half done cannot be told apart from what its neighbours did, so nothing of it is kept."""
    with pytest.raises(BatchSpoiled) as spoiled:
        within(ledger, lambda tx: tx.run([Note("a"), Spoil("b"), Note("c")]))
    assert isinstance(spoiled.value.__cause__, InvalidBudget)
    assert ledger.rows(s.evidence) == []


def test_a_balance_that_was_moved_counts_as_a_change(ledger: Ledger) -> None:
    """Posting to a balance is a change like any other: an error behind it spoils the batch."""
    ledger.put("acme")

    class ReserveThenRaise(Note):
        def needs(self, needs: Needs) -> None:
            needs.accounts.add(("tests", "acme"))

        def apply(self, tx: Transaction) -> str:
            tx.book.reserve("tests", ["acme"], "r1", Amounts(total_tokens=1))
            raise InvalidBudget("Too late.")

    with pytest.raises(BatchSpoiled):
        within(ledger, lambda tx: tx.run([ReserveThenRaise("a")]))
    assert ledger.account("acme").held == Amounts()


def test_an_error_of_the_database_is_not_taken_for_a_refusal(ledger: Ledger) -> None:
    """The transaction is over for all operations, even for those that changed nothing."""

    class Broken(Note):
        def apply(self, tx: Transaction) -> str:
            tx.connection.exec_driver_sql("SELECT * FROM no_such_table")
            raise AssertionError

    with pytest.raises(DBAPIError):
        within(ledger, lambda tx: tx.run([Note("a"), Broken("b")]))
    assert ledger.rows(s.evidence) == []


# All or nothing


def _failing_at(line: Line, statement: int) -> None:
    # A fault is not tried again.
    line.statements = [*[None] * statement, line.error(sqlite3.SQLITE_ERROR, "XX000")]


def _try_each_statement(ledger: Ledger, operation: Any, name: str) -> int:
    """Let each statement of a batch fail in turn, until none does; returns how many there were."""
    line = Line(ledger.database)
    before = tables(ledger)
    for number in range(40):
        _failing_at(line, number)
        (result,) = ledger.do_all(operation)
        if not isinstance(result, DBAPIError):
            line.statements = []
            assert not isinstance(result, Exception), name
            return number
        assert changed(before, tables(ledger)) == set(), (name, number)
    raise AssertionError("it never succeeds")


def test_a_reservation_is_all_or_nothing(ledger: Ledger) -> None:
    """Whichever statement fails, no account, dimension or row has anything of it; then all have all of it."""
    for path in ("acme", "acme/a", "acme/b"):
        ledger.put(path, Budget(total_tokens=1000))
    fence = ledger.claim()
    begin = start(fence, EVERYTHING, "acme/a", "acme/b", binding=bound())
    assert _try_each_statement(ledger, begin, "start") > 8
    for path in ("acme", "acme/a", "acme/b"):
        assert ledger.account(path).held == EVERYTHING.hold()
    assert ledger.row(s.invocations, begin.id).state == "STARTED"
    assert ledger.row(s.reservations, begin.id).state == "HELD"


def test_a_settlement_is_all_or_nothing(ledger: Ledger) -> None:
    """Money, state, reply and tool effects change together or not at all."""
    ledger.put("acme")
    ledger.put("acme/a")
    fence = ledger.claim()
    id = ledger.start(fence, EVERYTHING, "acme/a")
    done = settle(fence, id, 3, 4, outputs=(output(id, "reply"),), effects=(effect(id),))
    assert _try_each_statement(ledger, done, "settle") > 8
    assert ledger.row(s.reservations, id).state == "SETTLED"
    assert ledger.account("acme").settled == Amounts(7, 3, 4, 1)
    assert len(ledger.rows(s.outputs)) == len(ledger.rows(s.effects)) == 1
    assert ledger.read(verify) == []


def test_a_lost_attempt_is_taken_over_whole(ledger: Ledger) -> None:
    """A new attempt and the fate of what the old one left open are one transaction."""
    ledger.put("acme")
    fence = ledger.claim()
    id = ledger.start(fence, EVERYTHING, "acme")
    ledger.settle(fence, id, 1, 1, effects=(effect(id),))
    open_id = ledger.start(fence, EVERYTHING, "acme")
    ledger.now += 3_600_000_000
    again = ClaimActivity(identity(), "sha256:input", 60_000_000, "worker-2")
    assert _try_each_statement(ledger, again, "claim") > 8
    assert ledger.row(s.invocations, open_id).state == "OUTCOME_UNKNOWN"
    assert [row.state for row in ledger.rows(s.effects)] == ["OUTCOME_UNKNOWN"]
    assert ledger.account("acme").unknown == EVERYTHING.hold()
    assert ledger.read(verify) == []


# Locks


@pytest.mark.postgres
def test_batches_that_touch_the_same_accounts_in_another_order_never_deadlock(postgres_url: str) -> None:
    """Balances are locked in the order of their ids, whatever the order in which they were named."""
    with open_ledger(postgres_url) as one, open_ledger(postgres_url) as two, trouble() as met:
        for path in ("a", "b", "c"):
            one.put(path, Budget(total_tokens=10_000))
        ready = threading.Barrier(2)

        def spend(ledger: Ledger, name: str, paths: tuple[str, ...]) -> None:
            fence = ledger.claim(identity(name))
            ready.wait()
            for _ in range(25):
                id = ledger.start(fence, ask(total_tokens=7), *paths)
                ledger.settle(fence, id, 2, 1)

        threads = [
            threading.Thread(target=spend, args=(one, "one", ("a", "b", "c"))),
            threading.Thread(target=spend, args=(two, "two", ("c", "b", "a"))),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not met.is_set()
        for path in ("a", "b", "c"):
            assert one.account(path).settled == Amounts(150, 100, 50, 50)
        assert one.read(verify) == []


# Order


def test_later_operations_of_a_batch_rest_on_earlier_ones(ledger: Ledger) -> None:
    """A batch is what its operations would have been one after the other."""
    fence = ledger.claim()
    begin = start(fence, ask(total_tokens=60), "acme")
    second = start(fence, ask(total_tokens=60), "acme")
    results = ledger.do_all(
        put("acme", Budget(total_tokens=100)),
        begin,
        second,
        settle(fence, begin.id, 10, 10),
        settle(fence, begin.id, 10, 11),
        start(fence, ask(total_tokens=60), "acme"),
        EndAttempt(fence, "FAILED", "Error"),
        settle(fence, begin.id, 10, 10),
    )
    kinds = [type(result) if isinstance(result, Exception) else None for result in results]
    assert [kind.__name__ if kind else None for kind in kinds] == [
        None,
        None,
        "BudgetDenied",
        None,
        "ReservationConflict",
        None,
        None,
        "LeaseLost",
    ]
    assert {ReservationConflict, LeaseLost} <= set(kinds)
    assert ledger.account("acme").settled.total_tokens == 20
    assert ledger.account("acme").held.total_tokens == 60
    assert ledger.read(verify) == []
