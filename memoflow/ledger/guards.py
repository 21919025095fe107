"""Rules the database itself keeps, whoever writes to it: append-only tables, one-way states, identities.

A guard is a trigger named ``memoflow_guard_…`` that refuses one kind of statement. It holds against
mistakes in this package, in scripts and at a prompt; it does not hold against a superuser, or
against somebody who may write the SQLite file, because both can drop it. `memoflow verify` tells
when a guard is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from memoflow.budget import DIMENSIONS

__all__ = ["GUARDS", "TIMED", "Guard", "install", "missing", "uninstall", "violated"]

PREFIX: Final = "memoflow_guard_"
_FUNCTION: Final = "memoflow_refuse"


@dataclass(frozen=True, slots=True)
class Guard:
    """One refusal: on a table, for a kind of statement, where a condition on the row holds.

    The condition is written once for both databases: ``<>`` stands for their own
    comparison in which NULL equals NULL, ``{now}`` for UTC microseconds by the database's clock.

    ``among`` is a further condition, one that looks at other rows.
    """

    name: str
    table: str
    event: str
    rule: str
    condition: str | None = None
    among: str | None = None

    @property
    def trigger(self) -> str:
        """The trigger's name."""
        return PREFIX + self.name


_APPEND_ONLY: Final = {
    "journal": "balance_id seq",
    "policies": "account_id version",
    "decisions": "id",
    "evidence": "id",
    "approval_requests": "id",
    "approval_decisions": "id",
    "approval_uses": "id",
    "virtual_keys": "id",
    "virtual_key_revocations": "key_id",
    "reply_owners": "invocation_id",
    "inspections": "id",
}
_KEPT: Final = (
    "accounts",
    "balances",
    "activities",
    "attempts",
    "turns",
    "invocations",
    "reservations",
    "effects",
    "outputs",
    "writers",
)
_IDENTITY: Final = {
    "accounts": "id namespace path parent_id period time_zone created_at",
    "balances": "id account_id period_start period_end",
    "activities": (
        "id namespace workflow_id run_id activity_id activity_type activity_version input_digest created_at "
        "cause"
    ),
    "attempts": "id activity_id number worker claimed_at",
    "invocations": (
        "id namespace activity_id attempt turn_id round provider api model request_digest input_basis "
        "input_measured output_cap price_version metadata started_at cause"
    ),
    "reservations": "id namespace account created_at " + " ".join(f"reserved_{name}" for name in DIMENSIONS),
    "effects": (
        "id namespace activity_id invocation_id ordinal execution call_id kind tool_namespace "
        "tool_name tool_version effect_class idempotency_key arguments_digest claim"
    ),
    "outputs": "owner_id kind namespace binding created_at",
    "writers": "id started_at",
}

_FINAL: Final = {
    "activities": "OLD.state = 'COMPLETED'",
    "attempts": "OLD.state != 'RUNNING'",
    "invocations": "OLD.state IN ('SUCCEEDED', 'FAILED', 'CANCELLED')",
    "reservations": "OLD.state IN ('SETTLED', 'RELEASED')",
    "effects": "OLD.state NOT IN ('AWAITING_APPROVAL', 'STARTED', 'OUTCOME_UNKNOWN')",
    "outputs": "OLD.purged_at IS NOT NULL",
}

_ONE_WAY: Final = {
    "invocations": "OLD.state = 'OUTCOME_UNKNOWN' AND NEW.state = 'STARTED'",
    "reservations": "OLD.state = 'RECONCILE' AND NEW.state = 'HELD'",
    "effects": (
        "OLD.state = 'AWAITING_APPROVAL' AND NEW.state NOT IN ('AWAITING_APPROVAL', 'STARTED', 'DENIED') "
        "OR OLD.state = 'STARTED' AND NEW.state IN ('AWAITING_APPROVAL', 'DENIED') "
        "OR OLD.state = 'OUTCOME_UNKNOWN' "
        "AND NEW.state IN ('AWAITING_APPROVAL', 'STARTED', 'REFUSED', 'DENIED', 'PROVIDER_SIDE')"
    ),
}

_GROWTH: Final = (
    Guard("balances_seq", "balances", "UPDATE", "the sequence number grows", "NEW.seq <= OLD.seq"),
    Guard("writers_batches", "writers", "UPDATE", "the batch number grows", "NEW.batches <= OLD.batches"),
    Guard("activities_attempt", "activities", "UPDATE", "attempts only go up", "NEW.attempt < OLD.attempt"),
    Guard(
        "accounts_policy_version",
        "accounts",
        "UPDATE",
        "policy versions only go up",
        "NEW.policy_version < OLD.policy_version",
    ),
    Guard(
        "accounts_currency",
        "accounts",
        "UPDATE",
        "a currency once set stays",
        "OLD.currency IS NOT NULL AND (OLD.currency) <> (NEW.currency)",
    ),
    Guard(
        "outputs_purge",
        "outputs",
        "UPDATE",
        "a purge removes nonce and ciphertext together and says when",
        "(NEW.purged_at IS NULL) <> (NEW.ciphertext IS NOT NULL) OR "
        "(NEW.nonce IS NULL) <> (NEW.ciphertext IS NULL)",
    ),
)

_ASKED: Final = [
    "namespace",
    "activity_id",
    "invocation_id",
    "ordinal",
    "tool_namespace",
    "tool_name",
    "tool_version",
    "arguments_digest",
    "idempotency_key",
]
"""What an approval is asked, given and used for: a request has it from its effect."""


def _same(one: str, other: str) -> str:
    return " AND ".join(f"{one}.{name} = {other}.{name}" for name in _ASKED)


_APPROVALS: Final = (
    Guard(
        "effects_begun",
        "effects",
        "UPDATE",
        "who begins an effect, and when, is said once",
        "OLD.state != 'AWAITING_APPROVAL' AND "
        "(OLD.attempt, OLD.started_at, OLD.judgement) <> (NEW.attempt, NEW.started_at, NEW.judgement)",
    ),
    Guard(
        "effects_approved",
        "effects",
        "UPDATE",
        "what awaits an approval begins only with one",
        "OLD.state = 'AWAITING_APPROVAL' AND NEW.state = 'STARTED'",
        "NOT EXISTS (SELECT 1 FROM approval_uses u WHERE u.id = NEW.id)",
    ),
    Guard(
        "effects_approved_again",
        "effects",
        "INSERT",
        "what an approval was asked for begins only with one",
        "NEW.execution > 1 AND NEW.state NOT IN ('AWAITING_APPROVAL', 'DENIED', 'REFUSED')",
        "EXISTS (SELECT 1 FROM approval_requests r "
        "WHERE r.namespace = NEW.namespace AND r.idempotency_key = NEW.idempotency_key) "
        "AND NOT EXISTS (SELECT 1 FROM approval_requests r JOIN approval_decisions d ON d.id = r.id "
        "JOIN approval_uses u ON u.id = r.id WHERE r.namespace = NEW.namespace "
        "AND r.idempotency_key = NEW.idempotency_key AND d.expires_at > {now})",
    ),
    Guard(
        "approval_requests_bound",
        "approval_requests",
        "INSERT",
        "a request says what its waiting effect says",
        None,
        "NOT EXISTS (SELECT 1 FROM effects e WHERE e.id = NEW.id "
        f"AND e.state = 'AWAITING_APPROVAL' AND {_same('e', 'NEW')})",
    ),
    Guard(
        "approval_decisions_bound",
        "approval_decisions",
        "INSERT",
        "a decision is about a request that has not expired",
        None,
        "NOT EXISTS (SELECT 1 FROM approval_requests r WHERE r.id = NEW.id AND r.namespace = NEW.namespace "
        "AND r.requester = NEW.requester AND r.expires_at > {now})",
    ),
    Guard(
        "approval_uses_allowed",
        "approval_uses",
        "INSERT",
        "only an approval that is still valid, for this very effect, can be used",
        None,
        "NOT EXISTS (SELECT 1 FROM approval_decisions d JOIN approval_requests r ON r.id = d.id "
        "JOIN effects e ON e.id = d.id WHERE d.id = NEW.id AND d.verdict = 'approved' "
        "AND d.expires_at > {now} AND d.namespace = NEW.namespace AND d.binding_digest = NEW.binding_digest "
        f"AND e.state = 'AWAITING_APPROVAL' AND {_same('e', 'r')})",
    ),
)


def _guards() -> Iterator[Guard]:
    for table, key in _APPEND_ONLY.items():
        yield Guard(f"{table}_update", table, "UPDATE", "rows are never changed")
        same = " AND ".join(f"{name} = NEW.{name}" for name in key.split())
        present = f"EXISTS (SELECT 1 FROM {table} WHERE {same})"
        yield Guard(f"{table}_replace", table, "INSERT", "rows are never replaced", present)
    yield Guard("turns_update", "turns", "UPDATE", "rows are never changed")
    for table in (*_APPEND_ONLY, *_KEPT):
        yield Guard(f"{table}_delete", table, "DELETE", "rows are never deleted")
        yield Guard(f"{table}_truncate", table, "TRUNCATE", "rows are never deleted")
    for table, columns in _IDENTITY.items():
        old, new = (", ".join(f"{side}.{name}" for name in columns.split()) for side in ("OLD", "NEW"))
        rule = "what identifies a row is never changed"
        yield Guard(f"{table}_identity", table, "UPDATE", rule, f"({old}) <> ({new})")
    for table, condition in _FINAL.items():
        yield Guard(f"{table}_final", table, "UPDATE", "a row in a final state is never changed", condition)
    for table, condition in _ONE_WAY.items():
        yield Guard(f"{table}_state", table, "UPDATE", "states do not go back", condition)
    yield from _GROWTH
    yield from _APPROVALS


GUARDS: Final = tuple(_guards())
"""Every guard. Only PostgreSQL has TRUNCATE; only SQLite has REPLACE, which passes by guards on DELETE, so
that a plain guard on INSERT is for it alone."""

TIMED: Final = frozenset(guard.name for guard in GUARDS if "{now}" in (guard.among or ""))
"""Those that ask the clock: what an operation saw in time may be too late when it is written."""


def install(connection: Connection) -> None:
    """Create every guard. Part of a migration: guards follow the code's version, not a revision's."""
    if connection.dialect.name == "sqlite":
        statements = [_sqlite_trigger(guard) for guard in _of(connection)]
    else:
        functions = [_postgresql_function(guard) for guard in _of(connection) if guard.among is not None]
        triggers = [_postgresql_trigger(guard) for guard in _of(connection)]
        statements = [_POSTGRESQL_FUNCTION, *functions, *triggers]
    for statement in statements:
        connection.exec_driver_sql(statement)


def uninstall(connection: Connection) -> None:
    """Take every guard away, those of other versions too: a migration may change what they protect."""
    for trigger, table in _present(connection):
        on = "" if connection.dialect.name == "sqlite" else f" ON {table}"
        connection.exec_driver_sql(f"DROP TRIGGER {trigger}{on}")


def missing(connection: Connection) -> list[Guard]:
    """The guards that this database does not have, or has switched off."""
    present = {trigger for trigger, _ in _present(connection, enabled=True)}
    return [guard for guard in _of(connection) if guard.trigger not in present]


def _of(connection: Connection) -> list[Guard]:
    if connection.dialect.name == "sqlite":
        return [guard for guard in GUARDS if guard.event != "TRUNCATE"]
    return [guard for guard in GUARDS if guard.event != "INSERT" or guard.among is not None]


def _present(connection: Connection, *, enabled: bool = False) -> list[tuple[str, str]]:
    query = _SQLITE_TRIGGERS if connection.dialect.name == "sqlite" else _POSTGRESQL_TRIGGERS
    rows = connection.execute(text(query))
    ours = [row for row in rows if row.name.startswith(PREFIX)]
    return [(row.name, row.tbl) for row in ours if row.active or not enabled]


_SQLITE_TRIGGERS: Final = (
    "SELECT name, tbl_name AS tbl, 1 AS active FROM sqlite_master WHERE type = 'trigger' ORDER BY name"
)
_POSTGRESQL_TRIGGERS: Final = (
    "SELECT tgname AS name, relname AS tbl, tgenabled IN ('O', 'A') AS active "
    "FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid "
    "WHERE pg_table_is_visible(tgrelid) ORDER BY tgname"
)


# To the millisecond, and so never later than the clock itself; whole seconds and the rest apart, as integers.
_SQLITE_NOW: Final = (
    "(CAST(strftime('%s', 'now') AS INTEGER) * 1000000 "
    "+ CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000)"
)
_POSTGRESQL_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


def _in_sqlite(condition: str) -> str:
    return condition.replace("<>", "IS NOT").replace("{now}", _SQLITE_NOW)


def _in_postgresql(condition: str) -> str:
    return condition.replace("<>", "IS DISTINCT FROM").replace("{now}", _POSTGRESQL_NOW)


def _sqlite_trigger(guard: Guard) -> str:
    conditions = [f"({_in_sqlite(one)})" for one in (guard.condition, guard.among) if one is not None]
    when = f"WHEN {' AND '.join(conditions)} " if conditions else ""
    return (
        f"CREATE TRIGGER {guard.trigger} BEFORE {guard.event} ON {guard.table} FOR EACH ROW {when}"
        f"BEGIN SELECT RAISE(ABORT, '{guard.trigger}: {guard.table}: {guard.rule}'); END"
    )


_REFUSE: Final = """
    RAISE EXCEPTION USING
        ERRCODE = 'integrity_constraint_violation',
        MESSAGE = TG_NAME || ': ' || TG_TABLE_NAME || ': ' || TG_ARGV[0],
        CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
""".strip()

# One function for all: the conditions stand in the triggers, where they cost no function call.
_POSTGRESQL_FUNCTION: Final = f"""
CREATE OR REPLACE FUNCTION {_FUNCTION}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    {_REFUSE}
END $$
""".strip()


def _postgresql_function(guard: Guard) -> str:
    """A function of a guard's own: the condition of a trigger cannot look at other rows."""
    assert guard.among is not None
    return (
        f"CREATE OR REPLACE FUNCTION {guard.trigger}() RETURNS trigger LANGUAGE plpgsql AS $$ "
        f"BEGIN IF {_in_postgresql(guard.among)} THEN {_REFUSE} END IF; RETURN NEW; END $$"
    )


def _postgresql_trigger(guard: Guard) -> str:
    each = "STATEMENT" if guard.event == "TRUNCATE" else "ROW"
    when = "" if guard.condition is None else f"WHEN ({_in_postgresql(guard.condition)}) "
    function = _FUNCTION if guard.among is None else guard.trigger
    return (
        f"CREATE TRIGGER {guard.trigger} BEFORE {guard.event} ON {guard.table} FOR EACH {each} {when}"
        f"EXECUTE FUNCTION {function}('{guard.rule}')"
    )


def violated(error: DBAPIError) -> str | None:
    """The name of the guard that refused a statement (without its prefix), or None for any other error."""
    diagnostics = getattr(error.orig, "diag", None)
    # SQLite hands over nothing but the text, and this part of it is ours.
    name = str(error.orig).partition(":")[0] if diagnostics is None else diagnostics.constraint_name or ""
    return name.removeprefix(PREFIX) if name.startswith(PREFIX) else None
