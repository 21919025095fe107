"""The queue of unknowns: what somebody has to decide, how much it holds, and what is known about it.

Besides what is recorded as unknown, the queue has what a lost attempt left open: its lease ran out, and
no later attempt has come to say so.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select

from memoflow.budget import DIMENSIONS, Amounts
from memoflow.identity import ActivityIdentity
from memoflow.ledger import schema as s
from memoflow.ledger.account_queries import currencies
from memoflow.ledger.deciding import Decision, decision_of
from memoflow.ledger.holdings import chain_of
from memoflow.ledger.outputs import OutputRow, read_output
from memoflow.ledger.queries import (
    EffectInfo,
    InvocationInfo,
    effect_info,
    invocation_infos,
    select_effects,
    select_invocations,
)

__all__ = [
    "EvidenceInfo",
    "Exposure",
    "Subject",
    "exposures",
    "list_decisions",
    "list_evidence",
    "open_response_id",
    "read_subject",
    "undecided",
    "undecided_effect",
    "unknown_effects",
    "unknown_invocations",
]

LOST: Final = "ATTEMPT_LOST"


@dataclass(frozen=True, slots=True)
class Exposure:
    """What unknowns hold on one account, over all periods."""

    account: str
    invocations: int
    amounts: Amounts
    currency: str | None


@dataclass(frozen=True, slots=True)
class EvidenceInfo:
    """What an attempt wanted to write after it had lost its lease. ``at`` is in UTC microseconds."""

    attempt: int
    event: str
    state: str | None
    input_tokens: int | None
    output_tokens: int | None
    digest: str | None
    at: int


@dataclass(frozen=True, slots=True)
class Subject:
    """What a decision needs to know about its target, beside what people look at.

    ``activity_key`` is the id of the activity's row; ``request_digest`` and ``round`` place a reply.
    """

    identity: ActivityIdentity
    activity_key: str
    replay_key: str | None
    round: int
    request_digest: str | None
    api: str
    model: str
    currencies: frozenset[str]


_i, _r, _a, _e, _t = (table.c for table in (s.invocations, s.reservations, s.activities, s.effects, s.turns))


def _abandoned(now: int) -> ColumnElement[bool]:
    return or_(_a.state != "RUNNING", _a.lease_expires_at <= now)


def undecided(namespace: str, now: int) -> ColumnElement[bool]:
    """Whether a reservation, joined with its activity, waits for a decision."""
    return and_(
        _r.namespace == namespace,
        # Both states are in one partial index.
        _r.state.in_(("HELD", "RECONCILE")),
        or_(_r.state == "RECONCILE", _abandoned(now)),
    )


def undecided_effect(now: int) -> ColumnElement[bool]:
    """Whether an effect, joined with its activity, may or may not have happened."""
    lost = and_(_e.state == "STARTED", _e.effect_class != "read_only", _abandoned(now))
    return or_(_e.state == "OUTCOME_UNKNOWN", lost)


def unknown_invocations(
    connection: Connection, namespace: str, now: int, *, until: int | None = None
) -> list[InvocationInfo]:
    """Invocations whose reservation waits for a decision, oldest first. ``until``: those started before."""
    query = select_invocations(undecided(namespace, now)).order_by(_r.created_at, _i.id)
    if until is not None:
        query = query.where(_i.started_at < until)
    return list(invocation_infos(connection, namespace, connection.execute(query).all()))


def unknown_effects(connection: Connection, namespace: str, now: int) -> list[EffectInfo]:
    """Effects that may or may not have happened, oldest first."""
    query = select_effects(_e.namespace == namespace, undecided_effect(now))
    return [effect_info(row) for row in connection.execute(query.order_by(_e.started_at, _e.id))]


def exposures(connection: Connection, namespace: str, now: int) -> list[Exposure]:
    """What undecided invocations hold on each account they touch, by path."""
    sums = [func.sum(_r[f"reserved_{name}"]).label(name) for name in DIMENSIONS]
    query = (
        select(_r.account, func.count().label("invocations"), *sums)
        .join(s.invocations, _i.id == _r.id)
        .join(s.activities, _a.id == _i.activity_id)
        .where(undecided(namespace, now))
        .group_by(_r.account)
    )
    counts: dict[str, int] = defaultdict(int)
    amounts: dict[str, Amounts] = defaultdict(Amounts)
    for row in connection.execute(query):
        held = Amounts(*[int(getattr(row, name)) for name in DIMENSIONS])
        for path in {link for leaf in row.account.split("\n") for link in chain_of(leaf)}:
            counts[path] += row.invocations
            amounts[path] = amounts[path].plus(held)
    paths = sorted(counts, key=lambda path: path.split("/"))
    known = currencies(connection, namespace, paths)
    return [Exposure(path, counts[path], amounts[path], known.get(path)) for path in paths]


def list_evidence(connection: Connection, namespace: str, subject_id: str) -> list[EvidenceInfo]:
    """Late writes about an invocation, effect or activity, oldest first."""
    v = s.evidence.c
    query = select(s.evidence).where(v.namespace == namespace, v.subject_id == subject_id)
    return [
        EvidenceInfo(
            row.attempt, row.event, row.state, row.input_tokens, row.output_tokens, row.digest, row.at
        )
        for row in connection.execute(query.order_by(v.at, v.id))
    ]


def list_decisions(connection: Connection, namespace: str, target_id: str) -> list[Decision]:
    """Decisions about an invocation, effect or model, oldest first."""
    d = s.decisions.c
    query = select(s.decisions).where(d.namespace == namespace, d.target_id == target_id)
    return [decision_of(row) for row in connection.execute(query.order_by(d.at, d.id))]


def read_subject(connection: Connection, namespace: str, invocation_id: str) -> Subject | None:
    """What a decision on an invocation, or on an effect of it, needs to know; None if there is none."""
    query = (
        select(
            s.activities,
            _t.replay_key,
            _t.request_digest,
            _i.round,
            _i.api,
            _i.model,
            _r.account,
        )
        .join(s.activities, _a.id == _i.activity_id)
        .join(s.reservations, _r.id == _i.id)
        .outerjoin(s.turns, _t.id == _i.turn_id)
        .where(_i.namespace == namespace, _i.id == invocation_id)
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else _subject(connection, row)


def _subject(connection: Connection, row: Any) -> Subject:
    known = currencies(connection, row.namespace, row.account.split("\n"))
    identity = ActivityIdentity(
        row.namespace, row.workflow_id, row.run_id, row.activity_id, row.activity_type, row.activity_version
    )
    return Subject(
        identity,
        row.id,
        row.replay_key,
        row.round,
        row.request_digest,
        row.api,
        row.model,
        frozenset(known.values()),
    )


def open_response_id(connection: Connection, invocation_id: str) -> OutputRow | None:
    """The encrypted provider's id of an invocation's reply, or None if it is not known."""
    return read_output(connection, invocation_id, "response_id")
