"""`verify` finds every fact that does not hold, and nothing in a ledger that is whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, text

from memoflow.ledger import guards
from memoflow.ledger.verify import Finding, verify
from tests._databases import PostgresServer
from tests.conftest import BACKENDS
from tests.ledger._rows import whole_ledger
from tests.ledger._support import connect


@pytest.fixture(scope="module", params=BACKENDS)
def shared_ledger(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Connection]:
    """A whole ledger without guards or checked references, once for all tests."""
    server: PostgresServer | None = None
    if request.param == "sqlite":
        url = request.getfixturevalue("sqlite_files").create(tmp_path_factory.mktemp("ledger"))
    else:
        server = request.getfixturevalue("postgres")
        url = server.create()
    with connect(url) as connection:
        whole_ledger(connection)
        guards.uninstall(connection)
        if server is not None:
            # Rows that break a reference get in only this way.
            connection.execute(text("SET LOCAL session_replication_role = replica"))
        yield connection
        connection.rollback()
    if server is not None:
        server.drop(url)


@pytest.fixture
def ledger(shared_ledger: Connection) -> Iterator[Connection]:
    """A whole ledger to be corrupted; what a test did to it is taken back."""
    shared_ledger.exec_driver_sql("SAVEPOINT whole")
    yield shared_ledger
    shared_ledger.exec_driver_sql("ROLLBACK TO SAVEPOINT whole")


def check(connection: Connection, namespace: str | None = None) -> list[Finding]:
    """The findings about rows; the guards are gone on purpose."""
    return [found for found in verify(connection, namespace) if found.code != "GUARD_MISSING"]


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
