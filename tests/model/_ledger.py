"""The real ledger beside the model: what it answered, and what it holds, in the model's words."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, func, select

from memoflow.budget import DIMENSIONS
from memoflow.errors import (
    ActivityBusy,
    ActivityMismatch,
    BudgetDenied,
    BudgetNotConfigured,
    BudgetUnbounded,
    LeaseLost,
    NotFound,
    PriceUnknown,
    ReplayMismatch,
    ReservationConflict,
)
from memoflow.ledger import schema as s
from memoflow.ledger.accounts import AccountInfo
from memoflow.ledger.activities import Claim
from memoflow.ledger.decisions import Decision
from memoflow.ledger.invocations import Started
from memoflow.periods import from_datetime
from tests.model._model import Model

__all__ = ["activity_rows", "figures", "model_state", "state", "value"]

State = dict[Any, Any]


def value(found: Any) -> object:
    """What an operation returned, in the model's words."""
    match found:
        case Started():
            return frozenset((a.account, a.dimension, a.limit, a.used) for a in found.alerts)
        case Claim():
            return found.attempt, found.completed, found.lease_expires_at
        case Decision(kind="unpriced"):
            return None
        case Decision():
            return found.id
        case AccountInfo():
            return found.policy_version, found.state == "OPEN"
    return found


def figures(error: BaseException) -> tuple[object, ...]:
    """The type of a refusal and the figures in it, as the model has them."""
    name = type(error).__name__
    match error:
        case BudgetDenied(reason="closed"):
            return name, error.account, "closed"
        case BudgetDenied():
            parts = (error.limit, error.settled, error.held, error.unknown, error.requested)
            ends = None if error.resets_at is None else from_datetime(error.resets_at)
            return name, error.account, error.reason, error.dimension, *parts, ends, error.output_cap_fits
        case BudgetNotConfigured():
            return name, error.account
        case BudgetUnbounded():
            return name, error.account, error.dimension
        case PriceUnknown():
            return name, error.account, error.model
        case ActivityBusy():
            return name, error.attempt, from_datetime(error.lease_expires_at)
        case ActivityMismatch():
            return name, error.component, error.recorded, error.given
        case LeaseLost():
            return name, error.attempt, error.current
        case ReplayMismatch():
            return name, error.replay_key, error.component, error.recorded, error.given
        case ReservationConflict():
            # Where a reservation stands is a figure; what else was found is said in words.
            known = error.state in ("missing", "SETTLED", "RELEASED", "RECONCILE")
            return name, error.id, error.state if known else None
        case NotFound():
            return name, error.id
    return (name,)


def activity_rows(connection: Connection, namespace: str) -> dict[str, str]:
    """The id of the row of every activity, by name."""
    a = s.activities.c
    query = select(a.activity_id, a.id).where(a.namespace == namespace)
    return {row.activity_id: row.id for row in connection.execute(query)}


def state(connection: Connection, namespace: str) -> State:
    """Everything that the rules speak of, in one namespace."""
    return {
        "accounts": _accounts(connection, namespace),
        "balances": _balances(connection, namespace),
        "activities": _activities(connection, namespace),
        "calls": _calls(connection, namespace),
        "turns": _count(connection, s.turns, namespace),
        "decisions": _count(connection, s.decisions, namespace),
        "evidence": _count(connection, s.evidence, namespace),
    }


def model_state(model: Model) -> State:
    """The same of the model."""
    return {
        "accounts": {
            path: (a.period, a.zone, a.currency, a.open, a.version, a.hard, a.soft)
            for path, a in model.accounts.items()
        },
        "balances": {
            key: (sums.settled, sums.held, sums.unknown, sums.entries, model.end_of(*key))
            for key, sums in model.sums.items()
            if sums.entries
        },
        "activities": {
            name: (a.state, a.attempt, a.lease_ends, a.digest, a.attempts)
            for name, a in model.activities.items()
        },
        "calls": {
            id: (c.state, c.hold, c.reason, c.attempt, c.key is not None, c.reserved, c.actual, c.decision)
            for id, c in model.calls.items()
        },
        "turns": sum(len(activity.keys) for activity in model.activities.values()),
        "decisions": len(model.decisions) + len(model.unpriced),
        "evidence": model.evidence,
    }


def _limits(row: Any, kind: str) -> dict[str, int]:
    found = {name: getattr(row, f"{kind}_{name}") for name in DIMENSIONS}
    return {name: limit for name, limit in found.items() if limit is not None}


def _accounts(connection: Connection, namespace: str) -> State:
    a, p = s.accounts.c, s.policies.c
    limits = [p[f"{kind}_{name}"] for kind in ("hard", "soft") for name in DIMENSIONS]
    query = (
        select(a.path, a.period, a.time_zone, a.currency, a.state, a.policy_version, *limits)
        .join(s.policies, (p.account_id == a.id) & (p.version == a.policy_version))
        .where(a.namespace == namespace)
    )
    return {
        row.path: (
            row.period,
            row.time_zone,
            row.currency,
            row.state == "OPEN",
            row.policy_version,
            _limits(row, "hard"),
            _limits(row, "soft"),
        )
        for row in connection.execute(query)
    }


def _balances(connection: Connection, namespace: str) -> State:
    a, b = s.accounts.c, s.balances.c
    query = select(s.balances, a.path).join(s.accounts, a.id == b.account_id).where(a.namespace == namespace)
    return {
        (row.path, row.period_start): (
            *[s.read_amounts(row, kind) for kind in ("settled", "held", "unknown")],
            row.seq,
            row.period_end,
        )
        for row in connection.execute(query)
        if row.seq
    }


def _activities(connection: Connection, namespace: str) -> State:
    a, t = s.activities.c, s.attempts.c
    attempts: dict[str, list[str]] = {}
    query = (
        select(t.activity_id, t.state)
        .join(s.activities, a.id == t.activity_id)
        .where(a.namespace == namespace)
        .order_by(t.activity_id, t.number)
    )
    for row in connection.execute(query):
        attempts.setdefault(row.activity_id, []).append(row.state)
    rows = connection.execute(select(s.activities).where(a.namespace == namespace))
    return {
        row.activity_id: (row.state, row.attempt, row.lease_expires_at, row.input_digest, attempts[row.id])
        for row in rows
    }


def _calls(connection: Connection, namespace: str) -> State:
    i, r = s.invocations.c, s.reservations.c
    query = (
        select(s.reservations, i.state.label("call"), i.reason.label("why"), i.attempt, i.turn_id)
        .join(s.invocations, i.id == r.id)
        .where(r.namespace == namespace)
    )
    return {
        row.id: (
            row.call,
            row.state,
            row.why,
            row.attempt,
            row.turn_id is not None,
            s.read_amounts(row, "reserved"),
            s.read_amounts(row, "actual") if row.actual_model_calls is not None else None,
            row.decision_id,
        )
        for row in connection.execute(query)
    }


def _count(connection: Connection, table: Any, namespace: str) -> int:
    query = select(func.count()).select_from(table).where(table.c.namespace == namespace)
    return int(connection.execute(query).scalar_one())
