"""Least-privilege roles for PostgreSQL, as SQL for an administrator to read and run.

Three roles without login, to be granted to the users that programs connect as. None of them may
delete, truncate, or change the schema; that stays with the owner, who runs `memoflow db upgrade`.

- **worker** runs activities. It starts and ends calls and moves balances, and opens run accounts, so it
  may insert accounts and policies. It cannot change the limits of an account, because a policy comes into
  force only by an update of its account; nor close or reopen one, decide about unknowns, approve calls, or
  purge outputs.
- **operator** sets limits, decides about unknowns and approvals, purges outputs, and makes and revokes
  virtual keys of the gateway. It cannot start activities or calls.
- **reader** reads everything but ciphertext: reports and `memoflow verify`.

What this does not do: a worker holds the balances of every namespace in its hands. Whoever takes over a
worker can charge any account, settle what it holds, or create accounts without limits for calls of
its own. It cannot do so unseen, because the journal stays and `memoflow verify` compares everything with
it, and it cannot undo or rewrite what was recorded. Namespaces that must not trust each other need a
database each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from memoflow.budget import DIMENSIONS
from memoflow.errors import ConfigurationError
from memoflow.ledger.migrate import VERSION_TABLE
from memoflow.ledger.schema import metadata

__all__ = ["OPERATOR", "READER", "WORKER", "roles_sql"]

WORKER: Final = "memoflow_worker"
OPERATOR: Final = "memoflow_operator"
READER: Final = "memoflow_reader"

_SEALED: Final = frozenset({"nonce", "ciphertext"})
_SERIAL: Final = ("accounts", "balances")
_SUMS: Final = tuple(f"{kind}_{name}" for kind in ("settled", "held", "unknown") for name in DIMENSIONS)
_ACTUAL: Final = tuple(f"actual_{name}" for name in DIMENSIONS)
_CALL_ENDS: Final = (
    *("state", "reason", "finish_reason", "http_status", "error_code", "error_type", "response_digest"),
    *("reply_model", "service_tier", "input_tokens", "cached_input_tokens", "cache_write_tokens"),
    *("output_tokens", "reasoning_tokens", "cost", "finished_at"),
)
_EFFECT_BEGINS: Final = ("attempt", "started_at", "judgement")
_EFFECT_ENDS: Final = ("state", "reason", "result_digest", "result_bytes", "error_type", "finished_at")

# What both need to move a balance, to end an attempt that was lost, and to record what became of it.
_BOTH: Final[dict[str, tuple[str, ...]]] = {
    "writers": ("batches",),
    "balances": (*_SUMS, "seq", "head"),
    "activities": ("state", "attempt", "lease_expires_at", "output_digest"),
    "attempts": ("state", "error_type", "ended_at"),
    "invocations": _CALL_ENDS,
    "reservations": ("state", "reason", *_ACTUAL, "resolved_at"),
    "effects": _EFFECT_ENDS,
}


@dataclass(frozen=True, slots=True)
class _Role:
    """What a role may do beside reading."""

    inserts: tuple[str, ...] = ()
    updates: dict[str, tuple[str, ...]] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()


_WORKER: Final = _Role(
    inserts=(
        *("writers", "accounts", "policies", "balances", "journal", "activities", "attempts", "turns"),
        *("invocations", "reservations", "effects", "outputs", "evidence", "reply_owners"),
        "inspections",
        # It asks, and uses what was allowed; it never decides.
        *("approval_requests", "approval_uses"),
    ),
    updates={**_BOTH, "effects": (*_EFFECT_ENDS, *_EFFECT_BEGINS)},
)
_OPERATOR: Final = _Role(
    inserts=(
        *("writers", "accounts", "policies", "balances", "journal"),
        # Of effects only those that a retrieved reply says the provider ran itself.
        *("effects", "outputs", "decisions", "evidence", "approval_decisions"),
        *("virtual_keys", "virtual_key_revocations"),
    ),
    updates={
        **_BOTH,
        "accounts": ("currency", "state", "policy_version"),
        "reservations": (*_BOTH["reservations"], "decision_id"),
        "effects": (*_EFFECT_ENDS, "decision_id"),
        "outputs": (*sorted(_SEALED), "expires_at", "purged_at"),
    },
)
_READER: Final = _Role(hidden=_SEALED)


def roles_sql(
    *, schema: str = "public", worker: str = WORKER, operator: str = OPERATOR, reader: str = READER
) -> str:
    """SQL that creates the three roles where they are missing and gives each exactly what it needs.

    It can be run again after an upgrade. It needs a role that owns the tables and, where a role is
    missing, may create one (CREATEROLE or a superuser).

    Args:
        schema: where the ledger's tables are.
        worker: name of the role that runs activities.
        operator: name of the role that sets limits and decides.
        reader: name of the role that only reads.

    Raises:
        ConfigurationError: a name is not a plain lower-case identifier.
    """
    names = {worker: _WORKER, operator: _OPERATOR, reader: _READER}
    for name in (schema, *names):
        _check_name(name)
    if len(names) < 3:
        raise ConfigurationError("Worker, operator and reader are three roles; give them three names.")
    statements = [statement for name, role in names.items() for statement in _grants(schema, name, role)]
    return "\n".join(["BEGIN;", *statements, "COMMIT;", ""])


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", name):
        raise ConfigurationError(
            f"The name {name!r} cannot be used: write a role or schema as lower-case letters, digits and "
            "underscores, at most 63."
        )


def _grants(schema: str, name: str, role: _Role) -> Iterator[str]:
    tables = [*metadata.tables, VERSION_TABLE]
    yield f"\n-- {name}"
    yield (
        # Looked up first: where the role exists, nobody needs the right to create one.
        f"DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{name}') THEN "
        f"CREATE ROLE {name} NOLOGIN; END IF; "
        "EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;"
    )
    yield f"REVOKE ALL ON {_listed(schema, tables)} FROM {name};"
    yield f"GRANT USAGE ON SCHEMA {schema} TO {name};"
    for table in tables:
        yield f"GRANT SELECT{_visible(table, role)} ON {schema}.{table} TO {name};"
    if role.inserts:
        yield f"GRANT INSERT ON {_listed(schema, role.inserts)} TO {name};"
        sequences = [f"{table}_id_seq" for table in _SERIAL]
        yield f"GRANT USAGE ON SEQUENCE {_listed(schema, sequences)} TO {name};"
    for table, columns in role.updates.items():
        yield f"GRANT UPDATE ({', '.join(columns)}) ON {schema}.{table} TO {name};"


def _listed(schema: str, names: Iterable[str]) -> str:
    return ", ".join(f"{schema}.{name}" for name in names)


def _visible(table: str, role: _Role) -> str:
    """The column list of a SELECT grant, where a column is hidden; nothing where all may be read."""
    if table not in metadata.tables:
        return ""
    names = [column.name for column in metadata.tables[table].columns]
    shown = [name for name in names if name not in role.hidden]
    return "" if shown == names else f" ({', '.join(shown)})"
