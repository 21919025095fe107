"""What stands in the ledger about causes: rows of a run, oldest first, without any of its outcomes' figures.

Reads stream: a run of a million rows is never held at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, select

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
    arguments_digest: str | None
    result_digest: str | None
    state: str
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
T = TypeVar("T", bound=CauseRow)

_a, _t, _i, _r, _e = (table.c for table in (s.activities, s.turns, s.invocations, s.reservations, s.effects))
_q, _p, _d = (table.c for table in (s.approval_requests, s.approval_decisions, s.decisions))

_SPECIAL: Final[dict[type[Any], dict[str, ColumnElement[Any]]]] = {
    ActivityRow: {"at": _a.created_at},
    InvocationRow: {
        "at": _i.started_at,
        "activity": _i.activity_id,
        "activity_type": _a.activity_type,
        "account": _r.account,
        "cause": _i.cause,
    },
    EffectRow: {
        "at": _e.started_at,
        "workflow_id": _a.workflow_id,
        "run_id": _a.run_id,
        "activity_type": _a.activity_type,
        "provider": _i.provider,
        "api": _i.api,
        "request_id": _q.id,
    },
    RequestRow: {"at": _q.created_at},
    ApprovalRow: {
        "at": _p.decided_at,
        "workflow_id": _a.workflow_id,
        "run_id": _a.run_id,
        **{
            name: _q[name]
            for name in (
                *("invocation_id", "ordinal", "requester"),
                *("tool_namespace", "tool_name", "tool_version", "arguments_digest"),
            )
        },
    },
    DecisionRow: {"at": _d.at},
}


def _columns(kind: type[Any], table: Any) -> list[ColumnElement[Any]]:
    special = _SPECIAL[kind]
    return [special.get(f.name, table.get(f.name)).label(f.name) for f in fields(kind)]


def _queries() -> dict[type[Any], Select[Any]]:
    """A query for each kind, which a condition on activities limits to a run."""
    invocations = s.invocations.join(s.activities, _a.id == _i.activity_id)
    calls = s.effects.join(s.invocations, _i.id == _e.invocation_id)
    effects = calls.join(s.activities, _a.id == _e.activity_id).outerjoin(s.approval_requests, _q.id == _e.id)
    requests = s.approval_requests.join(s.activities, _a.id == _q.activity_id)
    charged = invocations.join(s.reservations, _r.id == _i.id)
    approvals = s.approval_decisions.join(s.approval_requests, _q.id == _p.id).join(
        s.activities, _a.id == _q.activity_id
    )
    return {
        ActivityRow: select(*_columns(ActivityRow, _a)),
        InvocationRow: select(*_columns(InvocationRow, _i)).select_from(charged),
        EffectRow: select(*_columns(EffectRow, _e)).select_from(effects),
        RequestRow: select(*_columns(RequestRow, _q)).select_from(requests),
        ApprovalRow: select(*_columns(ApprovalRow, _p)).select_from(approvals),
    }


_QUERIES: Final = _queries()
_IDS: Final = {
    ActivityRow: _a.id,
    InvocationRow: _i.id,
    EffectRow: _e.id,
    RequestRow: _q.id,
    ApprovalRow: _p.id,
}
_DECIDED: Final = select(*_columns(DecisionRow, _d)).where(_d.kind != "unpriced")


def cause_rows(
    connection: Connection, namespace: str, workflow_id: str, run_id: str | None = None
) -> Iterator[CauseRow]:
    """All rows of a run of a workflow, or of all its runs, by time.

    Rows of one time come in the order of the classes above, so that none stands before its cause unless the
    clock was set back in between.
    """
    of_run = [_a.namespace == namespace, _a.workflow_id == workflow_id]
    if run_id is not None:
        of_run.append(_a.run_id == run_id)
    streams = [
        _stream(connection, query.where(*of_run).order_by(_SPECIAL[kind]["at"], _IDS[kind]), kind)
        for kind, query in _QUERIES.items()
    ]
    decided = [
        _stream(
            connection, _DECIDED.join(joined, ids == _d.target_id).where(*of_run).order_by(_d.at), DecisionRow
        )
        for joined, ids in ((_OF_INVOCATIONS, _i.id), (_OF_EFFECTS, _e.id))
    ]
    return heapq.merge(*streams, *decided, key=lambda row: row.at)


_OF_INVOCATIONS: Final = s.invocations.join(s.activities, _a.id == _i.activity_id)
_OF_EFFECTS: Final = s.effects.join(s.activities, _a.id == _e.activity_id)


def cause_rows_of(connection: Connection, namespace: str, ids: Collection[str]) -> Iterator[CauseRow]:
    """The activities, invocations and effects of these ids, of whichever run."""
    for start in range(0, len(wanted := sorted(ids)), CHUNK):
        some = wanted[start : start + CHUNK]
        for kind in (ActivityRow, InvocationRow, EffectRow):
            query = _QUERIES[kind].where(_a.namespace == namespace, _IDS[kind].in_(some))
            yield from _stream(connection, query, kind)


def _stream(connection: Connection, query: Select[Any], kind: Callable[..., T]) -> Iterator[T]:
    rows = connection.execution_options(stream_results=True, yield_per=CHUNK).execute(query)
    return (kind(*row) for row in rows)
