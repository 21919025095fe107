"""`verify` finds every fact that does not hold, and nothing in a ledger that is whole."""

from __future__ import annotations

import tracemalloc
from contextlib import closing

import pytest
from sqlalchemy import Connection, select, text, update

from memoflow.budget import Amounts
from memoflow.ledger import guards
from memoflow.ledger.journal import GENESIS, Entry, entry_hash
from memoflow.ledger.schema import balances, journal, read_amounts
from memoflow.ledger.verify import _finding, findings, verify
from tests.ledger._corrupt import check, ledger, shared_ledger
from tests.ledger._rows import Rows, whole_ledger
from tests.ledger._support import connect

__all__ = ["ledger", "shared_ledger"]


def test_a_whole_ledger_has_no_findings(database_url: str) -> None:
    """Rows in every state that agree with each other are in order, in all namespaces together and in each."""
    with connect(database_url) as connection:
        for namespace in ("default", "other"):
            whole_ledger(connection, namespace)
    for scope in (None, "default", "other", "third"):
        with connect(database_url) as connection:
            assert verify(connection, scope) == []


# What `verify` says first of a kind and about which row, and the statements that make it say so.
BROKEN = {
    "POLICY_VERSIONS accounts 1": [
        "UPDATE accounts SET policy_version = 2 WHERE path = 'acme'",
    ],
    "ACCOUNT_STATE accounts 1": [
        "UPDATE accounts SET state = 'CLOSED' WHERE path = 'acme'",
    ],
    "ACCOUNT_PARENT accounts 2": [
        "UPDATE accounts SET parent_id = NULL WHERE path = 'acme/support'",
    ],
    "POLICY_VERSIONS accounts 2": [
        "DELETE FROM policies WHERE account_id = 2",
    ],
    "CHAIN_BROKEN journal 1/2": [
        "UPDATE journal SET at = at + 1 WHERE balance_id = 1 AND seq = 2",
        "UPDATE journal SET hash = 'x' WHERE balance_id = 1 AND seq = 2",
    ],
    "CHAIN_BROKEN journal 2/1": [
        "UPDATE journal SET held_cost = 0 WHERE balance_id = 2 AND seq = 1",
    ],
    "JOURNAL_GAP journal 1/4": [
        "DELETE FROM journal WHERE balance_id = 1 AND seq = 3",
    ],
    "JOURNAL_GAP journal 1/2": [
        "DELETE FROM journal WHERE balance_id = 1 AND seq = 1",
    ],
    "BALANCE_DIFFERS balances 1": [
        "UPDATE balances SET held_total_tokens = 1 WHERE id = 1",
        "UPDATE balances SET seq = 99 WHERE id = 1",
        "UPDATE balances SET head = 'x' WHERE id = 1",
    ],
    "BALANCE_DIFFERS balances 2": [
        "UPDATE balances SET settled_cost = 0 WHERE id = 2",
        "UPDATE balances SET unknown_model_calls = 9 WHERE id = 2",
    ],
    "LIMIT_EXCEEDED journal 1/1": [
        "UPDATE policies SET hard_total_tokens = 99 WHERE account_id = 1",
    ],
    "LIMIT_EXCEEDED journal 2/2": [
        "UPDATE policies SET hard_cost = 7 WHERE account_id = 2",
    ],
    "ACCOUNT_CLOSED journal 1/1": [
        "UPDATE policies SET state = 'CLOSED' WHERE account_id = 1",
    ],
    "AMOUNTS_DIFFER journal 1/1": [
        "UPDATE reservations SET reserved_tool_calls = 3 WHERE id = 'held'",
    ],
    "EVENTS_DIFFER journal 1/1": [
        "UPDATE reservations SET state = 'RECONCILE' WHERE id = 'held'",
    ],
    "ACCOUNTS_DIFFER reservations held": [
        "UPDATE reservations SET account = 'acme' WHERE id = 'held'",
        "UPDATE reservations SET account = 'acme/support/x' WHERE id = 'held'",
    ],
    "PERIOD_DIFFERS journal 2/1": [
        "UPDATE balances SET period_start = 1790000000000001 WHERE id = 2",
        "UPDATE balances SET period_end = 1790000000000000 WHERE id = 2",
    ],
    "RESERVATION_MISSING invocations held": [
        "DELETE FROM reservations WHERE id = 'held'",
    ],
    "STATES_DIFFER invocations held": [
        "UPDATE invocations SET state = 'SUCCEEDED' WHERE id = 'held'",
        "UPDATE invocations SET state = 'OUTCOME_UNKNOWN' WHERE id = 'held'",
    ],
    "STATES_DIFFER invocations settled": [
        "UPDATE invocations SET state = 'STARTED' WHERE id = 'settled'",
    ],
    "STATES_DIFFER invocations unknown": [
        "UPDATE invocations SET state = 'FAILED' WHERE id = 'unknown'",
    ],
    "DECISION_MISSING reservations settled": [
        "UPDATE invocations SET state = 'OUTCOME_UNKNOWN' WHERE id = 'settled'",
    ],
    "ACTUAL_DIFFERS reservations settled": [
        "UPDATE invocations SET input_tokens = 31 WHERE id = 'settled'",
        "UPDATE invocations SET output_tokens = 31 WHERE id = 'settled'",
        "UPDATE invocations SET cost = 6 WHERE id = 'settled'",
        "UPDATE reservations SET actual_model_calls = 0 WHERE id = 'settled'",
        "UPDATE reservations SET actual_total_tokens = 51 WHERE id = 'settled'",
        "UPDATE reservations SET actual_cost = NULL WHERE id = 'settled'",
    ],
    "ACTUAL_DIFFERS reservations released": [
        "UPDATE reservations SET actual_cost = 1 WHERE id = 'released'",
    ],
    "AMOUNTS_DIFFER journal 1/3": [
        "UPDATE reservations SET actual_tool_calls = 1 WHERE id = 'settled'",
    ],
    "ATTEMPT_UNKNOWN invocations settled": [
        "UPDATE invocations SET attempt = 4 WHERE id = 'settled'",
    ],
    "NAMESPACE_DIFFERS invocations held": [
        "UPDATE invocations SET namespace = 'x' WHERE id = 'held'",
    ],
    "NAMESPACE_DIFFERS reservations held": [
        "UPDATE reservations SET namespace = 'x' WHERE id = 'held'",
    ],
    "DECISION_MISSING reservations proven": [
        "UPDATE reservations SET decision_id = NULL WHERE id = 'proven'",
    ],
    "REFERENCE_BROKEN reservations proven": [
        "UPDATE reservations SET decision_id = 'x' WHERE id = 'proven'",
    ],
    "DECISION_DIFFERS reservations proven": [
        "UPDATE reservations SET decision_id = 'd2' WHERE id = 'proven'",
        "UPDATE decisions SET verdict = 'release' WHERE id = 'd1'",
        "UPDATE decisions SET namespace = 'x' WHERE id = 'd1'",
        "UPDATE decisions SET actual_total_tokens = 1 WHERE id = 'd1'",
        "UPDATE decisions SET actual_cost = NULL WHERE id = 'd1'",
    ],
    "DECISION_DIFFERS effects e5": [
        "UPDATE decisions SET target_id = 'e4' WHERE id = 'd3'",
        "UPDATE effects SET decision_id = 'd1' WHERE id = 'e5'",
    ],
    "DECISION_UNUSED decisions d3": [
        "UPDATE effects SET decision_id = NULL WHERE id = 'e5'",
    ],
    "EXECUTIONS_DIFFER effects e2": [
        "DELETE FROM effects WHERE id = 'e1'",
    ],
    "EXECUTIONS_DIFFER effects e3": [
        "DELETE FROM effects WHERE id = 'e2'",
    ],
    "RUN_AGAIN effects e1": [
        "UPDATE effects SET state = 'OUTCOME_UNKNOWN' WHERE id = 'e1'",
    ],
    "RUN_AGAIN effects e2": [
        "UPDATE effects SET state = 'DONE', result_digest = 'x' WHERE id = 'e2'",
    ],
    "RESULT_DIGEST_MISSING effects e3": [
        "UPDATE effects SET result_digest = NULL WHERE id = 'e3'",
    ],
    "ROUND_ANSWERED_TWICE invocations settled": [
        "UPDATE invocations SET turn_id = 'turn' WHERE id IN ('proven', 'settled')",
    ],
    "LEFT_OPEN effects e4": [
        "UPDATE effects SET state = 'STARTED' WHERE id = 'e4'",
    ],
    "ATTEMPT_UNKNOWN effects e4": [
        "UPDATE effects SET attempt = 0 WHERE id = 'e4'",
    ],
    "NAMESPACE_DIFFERS effects e4": [
        "UPDATE effects SET namespace = 'x' WHERE id = 'e4'",
        "UPDATE effects SET activity_id = 'open' WHERE id = 'e4'",
    ],
    "ATTEMPTS_DIFFER activities done": [
        "DELETE FROM attempts WHERE id = 'done/2'",
    ],
    "ATTEMPTS_DIFFER activities free": [
        "DELETE FROM attempts WHERE id = 'free/1'",
    ],
    "ATTEMPTS_DIFFER activities open": [
        "UPDATE activities SET attempt = 2 WHERE id = 'open'",
    ],
    "ATTEMPT_RUNNING attempts done/1": [
        "UPDATE attempts SET state = 'RUNNING' WHERE id = 'done/1'",
    ],
    "ACTIVITY_STATE activities free": [
        "UPDATE attempts SET state = 'RUNNING' WHERE id = 'free/1'",
        "UPDATE activities SET state = 'COMPLETED' WHERE id = 'free'",
    ],
    "ACTIVITY_STATE activities open": [
        "UPDATE attempts SET state = 'LOST' WHERE id = 'open/1'",
    ],
    "ACTIVITY_STATE activities done": [
        "UPDATE attempts SET state = 'FAILED' WHERE id = 'done/3'",
    ],
    "OUTPUT_DIGEST_MISSING activities done": [
        "UPDATE activities SET output_digest = NULL WHERE id = 'done'",
    ],
    "REFERENCE_BROKEN reservations undone": [
        "DELETE FROM invocations WHERE id = 'undone'",
    ],
    "REFERENCE_BROKEN attempts free/1": [
        "DELETE FROM activities WHERE id = 'free'",
    ],
    "REFERENCE_BROKEN effects e6": [
        "UPDATE effects SET invocation_id = 'x' WHERE id = 'e6'",
    ],
    "REFERENCE_BROKEN invocations held": [
        "UPDATE invocations SET turn_id = 'x' WHERE id = 'held'",
    ],
    "REFERENCE_BROKEN journal 1/1": [
        "DELETE FROM balances WHERE id = 1",
    ],
}


@pytest.mark.parametrize(
    ("finding", "statement"), [(finding, broken) for finding, all in BROKEN.items() for broken in all]
)
def test_a_broken_fact_is_found(ledger: Connection, finding: str, statement: str) -> None:
    """One statement that breaks one fact gives a finding about that row, the first of its kind."""
    assert ledger.execute(text(statement)).rowcount > 0
    code = finding.split()[0]
    found = [f"{f.code} {f.table} {f.id}" for f in check(ledger) if f.code == code]
    assert found[:1] == [finding]
    assert check(ledger, "default") != []


def test_a_consistent_forgery_is_found(ledger: Connection) -> None:
    """Figures changed with the whole chain and the sums made to fit still do not fit the reservation."""
    j, b = journal.c, balances.c
    for balance in (1, 2):
        rows = ledger.execute(select(journal).where(j.balance_id == balance).order_by(j.seq)).all()
        head, sums = GENESIS, Amounts()
        for row in rows:
            settled = read_amounts(row, "settled")
            if row.reservation_id == "settled" and row.event == "settle":
                settled = settled._replace(cost=0)
            sums = sums.plus(settled)
            held, unknown = read_amounts(row, "held"), read_amounts(row, "unknown")
            fixed = (row.balance_id, row.seq, row.at, row.event, row.reservation_id, row.policy_version)
            head = entry_hash(head, Entry(*fixed, settled, held, unknown))
            change = {"hash": head, "settled_cost": settled.cost}
            here = (j.balance_id == balance, j.seq == row.seq)
            ledger.execute(update(journal).where(*here).values(**change))
        ledger.execute(update(balances).where(b.id == balance).values(head=head, settled_cost=sums.cost))
    assert {f.code for f in check(ledger)} == {"AMOUNTS_DIFFER"}


def test_each_tampered_row_is_named_once(ledger: Connection) -> None:
    """Two rows of one balance that were changed are two findings, not one for every row behind them."""
    ledger.execute(text("UPDATE journal SET at = at - 1 WHERE balance_id = 1 AND seq IN (2, 5)"))
    assert [f.id for f in check(ledger) if f.code == "CHAIN_BROKEN"] == ["1/2", "1/5"]


def test_a_journal_row_without_a_reservation_is_found(ledger: Connection) -> None:
    """What a reservation that does not exist has moved is named, in its namespace too."""
    ledger.execute(text("DELETE FROM reservations WHERE id = 'held'"))
    for scope in (None, "default"):
        found = [f.id for f in check(ledger, scope) if f.code == "REFERENCE_BROKEN"]
        assert found == ["1/1", "2/1"]
    assert check(ledger, "other") == []


def test_findings_have_the_figures(ledger: Connection) -> None:
    """A message names the row, the account and both figures."""
    ledger.execute(text("UPDATE policies SET hard_total_tokens = 99 WHERE account_id = 1"))
    assert check(ledger)[0].message == (
        "Journal row 1/1 (held) brought account 'acme' to 100 total_tokens; the hard limit was 99."
    )
    ledger.execute(text("UPDATE balances SET held_total_tokens = 1 WHERE id = 2"))
    assert "has held_total_tokens 1, its journal says 200." in next(
        f.message for f in check(ledger) if f.id == "2"
    )


def test_a_missing_guard_is_a_finding(database_url: str) -> None:
    """A ledger whose rows are in order but whose guards are gone is not in order."""
    with connect(database_url) as connection:
        guards.uninstall(connection)
        found = verify(connection)
    assert {f.code for f in found} == {"GUARD_MISSING"}
    assert "memoflow_guard_journal_update" in {f.id for f in found}


def test_all_tables_are_read_from_one_snapshot(database_url: str) -> None:
    """What others commit while the check runs is not seen in half."""
    with connect(database_url) as connection:
        whole_ledger(connection)
        guards.uninstall(connection)
        connection.execute(text("UPDATE accounts SET state = 'CLOSED' WHERE path = 'acme'"))
    with connect(database_url) as connection:
        found = findings(connection)
        assert next(found).code == "ACCOUNT_STATE"
        with connect(database_url) as other:
            other.execute(text("UPDATE activities SET state = 'FREE' WHERE id = 'open'"))
        assert {f.code for f in found} == {"GUARD_MISSING"}
    with connect(database_url) as connection:
        assert "ACTIVITY_STATE" in {f.code for f in verify(connection)}


@pytest.mark.postgres
def test_rows_are_fetched_from_the_server_in_batches(postgres_url: str) -> None:
    """On PostgreSQL the queries are cursors on the server; a plain one would load every row at once."""
    with connect(postgres_url) as connection:
        whole_ledger(connection)
        connection.execute(text("SELECT 1"))
        opened = text("SELECT count(*) FROM pg_cursors")
        with closing(_finding.stream(connection, select(journal))) as rows:
            next(rows)
            assert connection.execute(opened).scalar_one() == 1
        assert connection.execute(opened).scalar_one() == 0


def test_memory_does_not_grow_with_the_journal(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times as many rows of one balance take no more memory at once."""
    monkeypatch.setattr(_finding, "BATCH", 20)
    with connect(sqlite_url) as connection:
        rows = Rows(connection)
        rows.account("acme")
        rows.activity("open")
        peaks = []
        # The first round fills caches.
        for count in (1, 100, 900):
            rows.calls([f"{count}-{number}" for number in range(count)], "open", "acme")
            tracemalloc.start()
            assert verify(connection) == []
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[2] < 1.5 * peaks[1]
