"""What the database itself refuses, tried statement by statement, and what it must go on allowing."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, Integer, LargeBinary, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from memoflow.budget import DIMENSIONS
from memoflow.ledger import guards
from memoflow.ledger.schema import metadata
from tests.ledger import _guarded
from tests.ledger._guarded import refusal
from tests.ledger._rows import whole_ledger
from tests.ledger._support import connect, taken_back

TABLES = sorted(metadata.tables)
APPROVALS = ["approval_requests", "approval_decisions", "approval_uses"]
GATEWAY = ["virtual_keys", "virtual_key_revocations", "reply_owners", "inspections"]
APPEND_ONLY = ["journal", "policies", "decisions", "evidence", *APPROVALS, *GATEWAY]
BEGUN = ("attempt", "started_at", "judgement")
"""Columns of an effect that may change while it waits for a person."""


ledger, shared_ledger = _guarded.ledger, _guarded.shared_ledger


@pytest.mark.parametrize("table", TABLES)
def test_no_row_of_any_table_can_be_deleted(ledger: Connection, table: str) -> None:
    """DELETE is refused on every table, whatever the state of the row."""
    assert refusal(ledger, f"DELETE FROM {table}") == f"{table}_delete"


@pytest.mark.parametrize("table", TABLES)
def test_no_table_can_be_emptied(ledger: Connection, table: str) -> None:
    """Emptying a table as a whole is refused too: PostgreSQL's TRUNCATE deletes no rows one by one."""
    if ledger.dialect.name == "sqlite":
        assert refusal(ledger, f"DELETE FROM {table} WHERE true") == f"{table}_delete"
    else:
        assert str(refusal(ledger, f"TRUNCATE {table} CASCADE")).endswith("_truncate")


@pytest.mark.parametrize("table", [*APPEND_ONLY, "turns"])
def test_rows_of_append_only_tables_never_change(ledger: Connection, table: str) -> None:
    """UPDATE is refused even where it changes nothing."""
    column = metadata.tables[table].primary_key.columns[0].name
    assert refusal(ledger, f"UPDATE {table} SET {column} = {column}") == f"{table}_update"


@pytest.mark.parametrize("table", APPEND_ONLY)
def test_rows_of_append_only_tables_are_not_replaced(ledger: Connection, table: str) -> None:
    """An insert that takes the place of a row is refused: SQLite's REPLACE passes by DELETE triggers."""
    if ledger.dialect.name == "sqlite":
        told = refusal(ledger, f"REPLACE INTO {table} SELECT * FROM {table}")
        assert told == f"{table}_replace" or (table in APPROVALS and str(told).startswith(table))
        return
    names = [column.name for column in metadata.tables[table].primary_key.columns]
    upsert = f"ON CONFLICT ({', '.join(names)}) DO UPDATE SET {names[0]} = excluded.{names[0]}"
    told = refusal(ledger, f"INSERT INTO {table} SELECT * FROM {table} {upsert}")
    assert told == f"{table}_update" or (table in APPROVALS and str(told).startswith(table))


# Columns that may change, by table; every other column of these tables is what identifies the row. A column
# added to the schema must be put here or be guarded.
OPEN_ROW = {
    "accounts": "path = 'acme/support'",
    "balances": "id = 1",
    "activities": "id = 'open'",
    "attempts": "id = 'open/1'",
    "invocations": "id = 'held'",
    "reservations": "id = 'held'",
    "effects": "id = 'e6'",
    "outputs": "owner_id = 'kept'",
    "writers": "id = 'writer'",
}
SUMS = [f"{kind}_{name}" for kind in ("settled", "held", "unknown") for name in DIMENSIONS]
MUTABLE = {
    "accounts": {"currency", "state", "policy_version"},
    "balances": {
        "seq",
        "head",
        *(f"{kind}_{d}" for kind in ("settled", "held", "unknown") for d in DIMENSIONS),
    },
    "activities": {"state", "attempt", "lease_expires_at", "output_digest"},
    "attempts": {"state", "error_type", "ended_at"},
    "invocations": {
        *("state", "reason", "finish_reason", "http_status", "error_code", "error_type", "response_digest"),
        *("reply_model", "service_tier", "input_tokens", "cached_input_tokens", "cache_write_tokens"),
        *("output_tokens", "reasoning_tokens", "cost", "finished_at"),
    },
    "reservations": {"state", "reason", "resolved_at", "decision_id", *(f"actual_{d}" for d in DIMENSIONS)},
    "effects": {
        "state",
        "reason",
        "result_digest",
        "result_bytes",
        "error_type",
        "decision_id",
        "finished_at",
    },
    "outputs": {"key_id", "nonce", "ciphertext", "expires_at", "purged_at"},
    "writers": {"batches"},
}
GROWS = {"balances": ", seq = seq + 1", "writers": ", batches = batches + 1"}
"""What must grow with every update, so that only the column under test can be the reason of a refusal."""


def other_value(table: str, column: str) -> str:
    """An expression that differs from the column's value."""
    kind = metadata.tables[table].columns[column].type
    if isinstance(kind, LargeBinary):
        return "CAST('z' AS BLOB)"
    return f"coalesce({column}, 0) + 1" if isinstance(kind, Integer) else f"coalesce({column}, '') || 'x'"


FIXED = [
    (table, column.name)
    for table, mutable in MUTABLE.items()
    for column in metadata.tables[table].columns
    if column.name not in mutable
]


@pytest.mark.parametrize(("table", "column"), FIXED)
def test_what_identifies_a_row_never_changes(ledger: Connection, table: str, column: str) -> None:
    """Every column that is not among those that may change is fixed from the moment the row is written."""
    change = f"{column} = {other_value(table, column)}{GROWS.get(table, '')}"
    guard = f"{table}_begun" if table == "effects" and column in BEGUN else f"{table}_identity"
    assert refusal(ledger, f"UPDATE {table} SET {change} WHERE {OPEN_ROW[table]}") == guard


ALLOWED = [
    ("accounts", "state = 'CLOSED', policy_version = policy_version + 1"),
    ("accounts", "policy_version = policy_version"),
    ("balances", "seq = seq + 1, head = 'x', held_cost = 1"),
    ("balances", "seq = seq + 5"),
    ("activities", "lease_expires_at = lease_expires_at + 1"),
    ("activities", "state = 'FREE'"),
    ("activities", "attempt = attempt + 1"),
    ("activities", "state = 'COMPLETED', output_digest = 'x'"),
    ("attempts", "state = 'FAILED', error_type = 'x', ended_at = 1"),
    ("invocations", "state = 'SUCCEEDED', input_tokens = 1, cost = 2, finished_at = 3"),
    ("reservations", "state = 'SETTLED', actual_cost = 1, resolved_at = 2"),
    ("effects", "state = 'DONE', result_digest = 'x', finished_at = 2"),
    ("outputs", "nonce = NULL, ciphertext = NULL, purged_at = 1"),
    ("outputs", "key_id = 'k2', nonce = ciphertext, ciphertext = nonce"),
    ("outputs", "expires_at = 1"),
    ("writers", "batches = batches + 1"),
]


@pytest.mark.parametrize(("table", "change"), ALLOWED)
def test_what_a_runtime_does_is_allowed(ledger: Connection, table: str, change: str) -> None:
    """The updates the runtime makes on open rows go through."""
    assert refusal(ledger, f"UPDATE {table} SET {change} WHERE {OPEN_ROW[table]}") is None


REFUSED = [
    ("balances", "head = 'x'", "balances_seq"),
    ("balances", "seq = seq - 1", "balances_seq"),
    ("writers", "batches = batches", "writers_batches"),
    ("activities", "attempt = attempt - 1", "activities_attempt"),
    ("accounts", "policy_version = policy_version - 1", "accounts_policy_version"),
    ("accounts", "currency = 'EUR'", "accounts_currency"),
    ("accounts", "currency = NULL", "accounts_currency"),
    ("outputs", "ciphertext = NULL", "outputs_purge"),
    ("outputs", "nonce = NULL", "outputs_purge"),
    ("outputs", "purged_at = 1", "outputs_purge"),
    ("outputs", "nonce = NULL, ciphertext = NULL", "outputs_purge"),
]


@pytest.mark.parametrize(("table", "change", "guard"), REFUSED)
def test_what_must_grow_or_stay_whole_is_kept(
    ledger: Connection, table: str, change: str, guard: str
) -> None:
    """Counters only grow, a currency stays, and a purge is whole."""
    assert refusal(ledger, f"UPDATE {table} SET {change} WHERE {OPEN_ROW[table]}") == guard


def test_a_currency_can_be_set_once(ledger: Connection) -> None:
    """An account without a currency may get one; that one stays."""
    ledger.execute(
        text(
            "INSERT INTO accounts (namespace, path, period, time_zone, state, policy_version, created_at) "
            "VALUES ('default', 'new', 'none', 'UTC', 'OPEN', 1, 1)"
        )
    )
    assert refusal(ledger, "UPDATE accounts SET currency = 'EUR' WHERE path = 'new'") is None
    assert refusal(ledger, "UPDATE accounts SET currency = 'USD' WHERE path = 'new'") == "accounts_currency"


@pytest.mark.parametrize("verdict", ["release", "did_not_happen", "settle", "happened"])
def test_what_frees_something_has_proof(ledger: Connection, verdict: str) -> None:
    """A decision that gives budget back, or lets a call run again, is refused without a digest of proof."""
    columns = "id, namespace, kind, target_id, verdict, actor, reason, at"
    row = f"'proofless', 'default', 'invocation', 'any', '{verdict}', 'ann', 'why', 1"
    told = refusal(ledger, f"INSERT INTO decisions ({columns}) VALUES ({row})")
    if verdict in ("settle", "happened"):
        assert told is None
    else:
        assert "ck_decisions_freed_with_proof" in str(told)


def test_a_purged_output_is_final(ledger: Connection) -> None:
    """What was purged cannot be filled again, nor purged at another time."""
    purge = "UPDATE outputs SET nonce = NULL, ciphertext = NULL, purged_at = 1"
    assert refusal(ledger, purge) is None
    assert refusal(ledger, purge) == "outputs_final"
    assert refusal(ledger, "UPDATE outputs SET expires_at = 1") == "outputs_final"


# The state machines, from the initial state on: what each state may become.
MACHINES: dict[str, dict[str, set[str]]] = {
    "reservations": {
        "HELD": {"HELD", "SETTLED", "RELEASED", "RECONCILE"},
        "RECONCILE": {"RECONCILE", "SETTLED", "RELEASED"},
        "SETTLED": set(),
        "RELEASED": set(),
    },
    "invocations": {
        "STARTED": {"STARTED", "SUCCEEDED", "FAILED", "CANCELLED", "OUTCOME_UNKNOWN"},
        "OUTCOME_UNKNOWN": {"OUTCOME_UNKNOWN", "SUCCEEDED", "FAILED", "CANCELLED"},
        "SUCCEEDED": set(),
        "FAILED": set(),
        "CANCELLED": set(),
    },
    "effects": {
        "STARTED": {"STARTED", "DONE", "FAILED", "REFUSED", "OUTCOME_UNKNOWN", "SUPERSEDED", "PROVIDER_SIDE"},
        "OUTCOME_UNKNOWN": {"OUTCOME_UNKNOWN", "DONE", "FAILED", "SUPERSEDED"},
        "DONE": set(),
        "FAILED": set(),
        "REFUSED": set(),
        "SUPERSEDED": set(),
        "PROVIDER_SIDE": set(),
    },
    "activities": {
        "RUNNING": {"RUNNING", "FREE", "COMPLETED"},
        "FREE": {"RUNNING", "FREE", "COMPLETED"},
        "COMPLETED": set(),
    },
    "attempts": {
        "RUNNING": {"RUNNING", "COMPLETED", "FAILED", "CANCELLED", "PARKED", "LOST"},
        "COMPLETED": set(),
        "FAILED": set(),
        "CANCELLED": set(),
        "PARKED": set(),
        "LOST": set(),
    },
}


@pytest.mark.parametrize(
    ("table", "before"), [(table, before) for table, machine in MACHINES.items() for before in machine]
)
def test_states_go_one_way(ledger: Connection, table: str, before: str) -> None:
    """From each state exactly the allowed states can be reached; a final row takes no change at all."""
    machine = MACHINES[table]
    change = f"UPDATE {table} SET state = '{{}}' WHERE {OPEN_ROW[table]}"
    if before != next(iter(machine)):
        assert refusal(ledger, change.format(before)) is None
    reached = set()
    for after in machine:
        with taken_back(ledger):
            guard = refusal(ledger, change.format(after))
        assert guard in {None, f"{table}_final", f"{table}_state"}
        reached |= {after} if guard is None else set()
    assert reached == machine[before]


# The guards themselves


def test_every_guard_is_named_after_its_table() -> None:
    """Guards have names of their own that fit PostgreSQL's 63 bytes and tell the table."""
    names = [guard.trigger for guard in guards.GUARDS]
    assert len(set(names)) == len(names)
    assert all(len(name) < 64 for name in names)
    assert all(guard.name.startswith(f"{guard.table}_") for guard in guards.GUARDS)
    assert {guard.table for guard in guards.GUARDS} == set(TABLES)


def test_a_refusal_tells_table_and_rule(ledger: Connection) -> None:
    """The database's own message names the guard, the table and the rule."""
    with pytest.raises(IntegrityError) as caught:
        ledger.execute(text("DELETE FROM journal"))
    assert "memoflow_guard_journal_delete: journal: rows are never deleted" in str(caught.value.orig)


def test_other_errors_are_no_refusals(ledger: Connection) -> None:
    """A constraint of the schema, or an error of another kind, is not taken for a guard."""
    statements = ["INSERT INTO writers SELECT * FROM writers", "SELECT * FROM nothing"]
    for statement in statements:
        with taken_back(ledger), pytest.raises(DBAPIError) as caught:
            ledger.execute(text(statement))
        assert guards.violated(caught.value) is None


def test_a_missing_guard_is_told(database_url: str) -> None:
    """A migrated database has every guard; one that was dropped or switched off is named."""
    with connect(database_url) as connection:
        assert guards.missing(connection) == []
        where = " ON journal" if connection.dialect.name == "postgresql" else ""
        connection.execute(text(f"DROP TRIGGER memoflow_guard_journal_update{where}"))
        names = ["journal_update"]
        if connection.dialect.name == "postgresql":
            connection.execute(text("ALTER TABLE journal DISABLE TRIGGER memoflow_guard_journal_delete"))
            names.append("journal_delete")
        assert sorted(guard.name for guard in guards.missing(connection)) == sorted(names)


def test_guards_can_be_taken_away_and_put_back(database_url: str) -> None:
    """Without guards a row can be repaired; putting them back makes all of them, and they work."""
    with connect(database_url) as connection:
        whole_ledger(connection)
        guards.uninstall(connection)
        assert guards.missing(connection) != []
        connection.execute(text("UPDATE journal SET event = event"))
        guards.install(connection)
        assert guards.missing(connection) == []
        assert refusal(connection, "UPDATE journal SET event = event") == "journal_update"
