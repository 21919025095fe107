"""What stands in the ledger about causes: the rows of a run, without the figures of its outcomes.

Reads stream: a run of a million rows is never held at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, literal, select

from memoflow.ledger import schema as s

__all__ = [
    "ActivityRow",
    "ApprovalRow",
    "CauseRow",
    "DecisionRow",
    "EffectRow",
    "InvocationRow",
    "RequestRow",
    "cause_rows",
    "cause_rows_of",
    "cause_rows_of_turn",
]

CHUNK: Final = 1_000
"""Rows that are fetched at once, and ids that are asked for at once."""


@dataclass(frozen=True, slots=True)
class ActivityRow:
    """An activity. ``at`` is UTC microseconds here and in all others."""

    id: str
    at: int
    workflow_id: str
    run_id: str
    activity_id: str
    activity_type: str
    activity_version: str
    input_digest: str
    cause: str | None


@dataclass(frozen=True, slots=True)
class InvocationRow:
    """A provider request. ``account`` has the accounts it was charged to, one a line."""

    id: str
    at: int
    activity: str
    activity_type: str
    turn_id: str | None
    round: int
    provider: str
    api: str
    model: str
    request_digest: str
    response_digest: str | None
    account: str
    cause: str | None


@dataclass(frozen=True, slots=True)
class EffectRow:
    """A tool call, in whichever state. ``request_id`` is its own id where an approval was asked for it."""

    id: str
    at: int
    workflow_id: str
    run_id: str
    activity_type: str
    invocation_id: str
    ordinal: int
    execution: int
    provider: str
    api: str
    call_id: str
    kind: str
    tool_namespace: str
    tool_name: str
    tool_version: str
    effect_class: str
    idempotency_key: str | None
    arguments_digest: str | None
    result_digest: str | None
    state: str
    claim: str | None
    request_id: str | None


@dataclass(frozen=True, slots=True)
class RequestRow:
    """A request for an approval; it bears the id of its effect."""

    id: str
    at: int
    invocation_id: str
    ordinal: int
    requester: str
    tool_namespace: str
    tool_name: str
    tool_version: str
    arguments_digest: str


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """What was decided about such a request."""

    id: str
    at: int
    workflow_id: str
    run_id: str
    invocation_id: str
    ordinal: int
    requester: str
    tool_namespace: str
    tool_name: str
    tool_version: str
    arguments_digest: str
    verdict: str
    approver: str
    expires_at: int | None


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """What an operator decided about an invocation or an effect whose outcome was unknown."""

    id: str
    at: int
    kind: str
    target_id: str
    verdict: str
    actor: str
    evidence_digest: str | None


CauseRow = ActivityRow | InvocationRow | EffectRow | RequestRow | ApprovalRow | DecisionRow

_a, _i, _r, _e = (table.c for table in (s.activities, s.invocations, s.reservations, s.effects))
_q, _p, _d = (table.c for table in (s.approval_requests, s.approval_decisions, s.decisions))
_OF_RUN: Final = {"workflow_id": _a.workflow_id, "run_id": _a.run_id}
_ASKED: Final = ("requester", "tool_namespace", "tool_name", "tool_version", "arguments_digest")
_SPECIAL: Final[dict[type[Any], dict[str, ColumnElement[Any]]]] = {
    ActivityRow: {"at": _a.created_at},
    InvocationRow: {
        "at": _i.started_at,
        "activity": _i.activity_id,
        "activity_type": _a.activity_type,
        "account": _r.account,
    },
    EffectRow: {
        **_OF_RUN,
        "at": _e.started_at,
        "activity_type": _a.activity_type,
        "provider": _i.provider,
        "api": _i.api,
        "request_id": _q.id,
    },
    RequestRow: {"at": _q.created_at},
    ApprovalRow: {
        **_OF_RUN,
        **{name: _q[name] for name in ("invocation_id", "ordinal", *_ASKED)},
        "at": _p.decided_at,
    },
    DecisionRow: {"at": _d.at},
}
# Beside what identifies the activity and the request of a row: the order of its kind, and within.
_BEGINNING: Final = (literal(-1), literal(0), literal(""))
_REQUEST: Final = (_i.round, _i.attempt, _i.id)


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the rows of one kind are, and by what they are put in order; activities are in each."""

    kind: type[Any]
    table: Any
    joined: Any
    within: tuple[ColumnElement[Any], ...]

    def select(self) -> Select[Any]:
        """The key, then the fields."""
        special = _SPECIAL[self.kind]
        columns = [special.get(f.name, self.table.get(f.name)) for f in fields(self.kind)]
        labelled = [column.label(f"field_{place}") for place, column in enumerate(columns)]
        keys = [column.label(f"key_{place}") for place, column in enumerate(self.key)]
        return select(*keys, *labelled).select_from(self.joined)

    @property
    def key(self) -> tuple[ColumnElement[Any], ...]:
        return (_a.created_at, _a.id, *self.within)


_CALLS: Final = s.invocations.join(s.activities, _a.id == _i.activity_id)
_EFFECTS: Final = s.effects.join(_CALLS, _i.id == _e.invocation_id)
_REQUESTS: Final = s.approval_requests.join(_CALLS, _i.id == _q.invocation_id)
_CHARGED: Final = _CALLS.join(s.reservations, _r.id == _i.id)
_APPROVALS: Final = _REQUESTS.join(s.approval_decisions, _p.id == _q.id)
_TOGETHER: Final = _EFFECTS.outerjoin(s.approval_requests, _q.id == _e.id)


def _place(rank: int, *within: ColumnElement[Any]) -> tuple[ColumnElement[Any], ...]:
    return (*_REQUEST, literal(rank), *within)


_ACTIVITIES: Final = _Source(ActivityRow, _a, s.activities, (*_BEGINNING, literal(0), literal(0), literal(0)))
_SOURCES: Final = (
    _ACTIVITIES,
    _Source(InvocationRow, _i, _CHARGED, _place(1, literal(0), literal(0))),
    _Source(RequestRow, _q, _REQUESTS, _place(2, _q.ordinal, _q.created_at)),
    _Source(ApprovalRow, _p, _APPROVALS, _place(3, _q.ordinal, _p.decided_at)),
    _Source(EffectRow, _e, _TOGETHER, _place(4, _e.ordinal, _e.execution)),
    _Source(DecisionRow, _d, _CALLS.join(s.decisions, _d.target_id == _i.id), _place(5, literal(0), _d.at)),
    _Source(DecisionRow, _d, _EFFECTS.join(s.decisions, _d.target_id == _e.id), _place(6, _e.ordinal, _d.at)),
)
_KEYS: Final = len(_ACTIVITIES.key)


def cause_rows(
    connection: Connection, namespace: str, workflow_id: str, run_id: str | None = None
) -> Iterator[CauseRow]:
    """All rows of a run of a workflow, or of all its runs.

    Activity after activity, and in each by rounds: a request, then what became of the calls in its reply. So
    what is needed to tell the causes of a row stands before it, whatever the clock said.
    """
    of_run = [_a.namespace == namespace, _a.workflow_id == workflow_id]
    if run_id is not None:
        of_run.append(_a.run_id == run_id)
    streams = [_stream(connection, source, of_run) for source in _SOURCES]
    return (row for _, row in heapq.merge(*streams, key=itemgetter(0)))


def cause_rows_of(connection: Connection, namespace: str, ids: Collection[str]) -> Iterator[CauseRow]:
    """The activities of these ids, of whichever run, and all rows of the calls that the others belong to.

    What a call of a model descends from are the rounds before it, so a part of them would be no answer.
    """
    for start in range(0, len(wanted := sorted(map(_row_id, ids))), CHUNK):
        some = wanted[start : start + CHUNK]
        calls = _calls_of(connection, namespace, some)
        streams = [
            _stream(connection, source, [_a.namespace == namespace, among])
            for source in _SOURCES[:5]
            for among in [_a.id.in_(some) if source is _ACTIVITIES else calls]
        ]
        yield from (row for _, row in heapq.merge(*streams, key=itemgetter(0)))


def _row_id(id: str) -> str:
    """The id of the row that a record of this id is made of."""
    return id.removeprefix("approval:").removeprefix("request:")


def _calls_of(connection: Connection, namespace: str, ids: Collection[str]) -> ColumnElement[bool]:
    """The invocations of the calls to which these invocations and effects belong."""
    of_effects = select(_e.invocation_id).where(_e.id.in_(ids))
    query = select(_i.id, _i.turn_id).where(_i.namespace == namespace, _i.id.in_(ids) | _i.id.in_(of_effects))
    rows = connection.execute(query).all()
    turns = {row.turn_id for row in rows if row.turn_id is not None}
    return _i.turn_id.in_(turns) | _i.id.in_([row.id for row in rows if row.turn_id is None])


def cause_rows_of_turn(
    connection: Connection, namespace: str, activity: str, invocation_id: str
) -> Iterator[CauseRow]:
    """An activity, and all rows of the call that an invocation of it belongs to, as from `cause_rows`."""
    turn = select(_i.turn_id).where(_i.id == invocation_id).scalar_subquery()
    of_activity = [_a.namespace == namespace, _a.id == activity]
    streams = [
        _stream(
            connection, source, of_activity if source is _ACTIVITIES else [*of_activity, _i.turn_id == turn]
        )
        for source in _SOURCES[:5]
    ]
    return (row for _, row in heapq.merge(*streams, key=itemgetter(0)))


def _stream(
    connection: Connection, source: _Source, conditions: list[ColumnElement[bool]]
) -> Iterator[tuple[tuple[Any, ...], CauseRow]]:
    query = source.select().where(*conditions).order_by(*source.key)
    rows = connection.execution_options(stream_results=True, yield_per=CHUNK).execute(query)
    return ((row[:_KEYS], source.kind(*row[_KEYS:])) for row in rows)
