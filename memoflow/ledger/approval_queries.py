"""Looking at approval requests: what waits, what was decided, and how a call is shown to a person."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, and_, case, literal, or_, select

from memoflow.errors import InvalidRequest
from memoflow.identity import ActivityIdentity
from memoflow.ledger import schema as s
from memoflow.ledger.outputs import OutputRow, read_output
from memoflow.ledger.queries import MAX_PAGE, Page

__all__ = [
    "STATES",
    "ApprovalInfo",
    "RecordedCall",
    "find_approval",
    "list_approvals",
    "recorded_call",
]

STATES: Final = ("pending", "approved", "denied", "used", "expired", "withdrawn")
"""What a request may be: ``withdrawn`` is one that nobody decided and whose call waits no more."""

_q, _d, _u, _a, _e, _i, _t = (
    table.c
    for table in (
        s.approval_requests,
        s.approval_decisions,
        s.approval_uses,
        s.activities,
        s.effects,
        s.invocations,
        s.turns,
    )
)


@dataclass(frozen=True, slots=True)
class ApprovalInfo:
    """One request, with the decision on it and its use if there are any.

    Times are UTC microseconds: ``expires_at`` is when the request lapses undecided, ``approval_expires_at``
    until when an approval may be used. ``shared`` says whether the model is told the reason of a denial.
    ``judgement`` is what the judges said of the call last, in the ledger's form.
    """

    id: str
    state: str
    workflow_id: str
    run_id: str
    activity_id: str
    activity_type: str
    invocation_id: str
    round: int
    ordinal: int
    tool_namespace: str
    tool_name: str
    tool_version: str
    effect_class: str
    effect_state: str
    judgement: str | None
    arguments_digest: str
    idempotency_key: str
    requester: str
    created_at: int
    expires_at: int
    verdict: str | None
    approver: str | None
    reason: str | None
    shared: bool
    binding_digest: str | None
    decided_at: int | None
    approval_expires_at: int | None
    used_at: int | None


def _state(now: int) -> ColumnElement[str]:
    waits = and_(_e.state == "AWAITING_APPROVAL", _a.state != "COMPLETED")
    lapsed = or_(_e.reason == "APPROVAL_EXPIRED", and_(waits, _q.expires_at <= now))
    return case(
        (_u.id.is_not(None), literal("used")),
        (_d.verdict == "denied", literal("denied")),
        (and_(_d.verdict == "approved", _d.expires_at > now), literal("approved")),
        (or_(_d.verdict == "approved", lapsed), literal("expired")),
        (waits, literal("pending")),
        else_=literal("withdrawn"),
    )


def _select(namespace: str, now: int) -> Select[Any]:
    return (
        select(
            *(_q.id, _q.invocation_id, _q.ordinal, _q.tool_namespace, _q.tool_name, _q.tool_version),
            *(_q.arguments_digest, _q.idempotency_key, _q.requester, _q.created_at, _q.expires_at),
            *(
                _a.workflow_id,
                _a.run_id,
                _a.activity_id,
                _a.activity_type,
                _i.round,
                _e.effect_class,
                _e.judgement,
            ),
            *(_d.verdict, _d.approver, _d.reason, _d.shared, _d.binding_digest, _d.decided_at, _u.used_at),
            _d.expires_at.label("approval_expires_at"),
            _e.state.label("effect_state"),
            _state(now).label("state"),
        )
        .join(s.effects, _e.id == _q.id)
        .join(s.invocations, _i.id == _q.invocation_id)
        .join(s.activities, _a.id == _q.activity_id)
        .outerjoin(s.approval_decisions, _d.id == _q.id)
        .outerjoin(s.approval_uses, _u.id == _q.id)
        .where(_q.namespace == namespace)
    )


def _info(row: Any) -> ApprovalInfo:
    values = {field.name: getattr(row, field.name) for field in fields(ApprovalInfo)}
    return ApprovalInfo(**{**values, "shared": bool(row.shared)})


def list_approvals(
    connection: Connection,
    namespace: str,
    now: int,
    *,
    state: str | None = None,
    limit: int = 50,
    after: str | None = None,
) -> Page[ApprovalInfo]:
    """Requests in a state at this moment (all if None), newest first.

    Raises:
        InvalidRequest: there is no such state, or a page has another number of rows than 1 to 1000.
    """
    if state is not None and state not in STATES:
        raise InvalidRequest(f"An approval request is {', '.join(STATES)}, not {state!r}.")
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidRequest(f"A page has 1 to {MAX_PAGE} rows, not {limit}.")
    query = _select(namespace, now)
    if state is not None:
        query = query.where(_state(now) == state)
    if after is not None:
        query = query.where(_q.id < after)
    rows = connection.execute(query.order_by(_q.id.desc()).limit(limit + 1)).all()
    page = tuple(_info(row) for row in rows[:limit])
    return Page(page, page[-1].id if len(rows) > limit else None)


def find_approval(connection: Connection, namespace: str, now: int, id: str) -> ApprovalInfo | None:
    """One request, or None."""
    row = connection.execute(_select(namespace, now).where(_q.id == id)).one_or_none()
    return None if row is None else _info(row)


@dataclass(frozen=True, slots=True, eq=False)
class RecordedCall:
    """Where the call of a request is recorded: its encrypted reply, and what places it there."""

    identity: ActivityIdentity
    invocation_id: str
    provider: str
    api: str
    replay_key: str | None
    round: int
    request_digest: str | None
    kind: str
    ordinal: int
    arguments_digest: str
    reply: OutputRow | None


def recorded_call(connection: Connection, namespace: str, id: str) -> RecordedCall | None:
    """The recorded call of a request, or None if there is no such request."""
    query = (
        select(
            *(_q.invocation_id, _q.ordinal, _q.arguments_digest, _e.kind, _i.provider, _i.api, _i.round),
            *(_t.replay_key, _t.request_digest, s.activities),
        )
        .join(s.effects, _e.id == _q.id)
        .join(s.invocations, _i.id == _q.invocation_id)
        .join(s.activities, _a.id == _q.activity_id)
        .outerjoin(s.turns, _t.id == _i.turn_id)
        .where(_q.namespace == namespace, _q.id == id)
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    identity = ActivityIdentity(
        row.namespace, row.workflow_id, row.run_id, row.activity_id, row.activity_type, row.activity_version
    )
    return RecordedCall(
        identity=identity,
        reply=read_output(connection, row.invocation_id, "reply"),
        **{
            name: getattr(row, name)
            for name in (
                *("invocation_id", "provider", "api", "replay_key", "round", "request_digest"),
                *("kind", "ordinal", "arguments_digest"),
            )
        },
    )
