"""Approvals: what was asked, decided and used must be about one and the same call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, and_, exists, literal, select

from memoflow.canonical import sha256_hex
from memoflow.identity import same_person
from memoflow.ledger.schema import (
    activities,
    approval_decisions,
    approval_requests,
    approval_uses,
    effects,
    outputs,
)
from memoflow.ledger.verify._finding import Finding, stream

__all__ = ["approval_findings"]

# Written out once more: what the writer leaves out is not left out here in the same way.
BOUND: Final = (
    *("namespace", "activity_id", "invocation_id", "ordinal", "tool_namespace", "tool_name"),
    *("tool_version", "arguments_digest", "idempotency_key"),
)
NOT_BEGUN: Final = ("AWAITING_APPROVAL", "DENIED")

_q, _d, _u, _e, _a = (
    table.c for table in (approval_requests, approval_decisions, approval_uses, effects, activities)
)


def approval_findings(connection: Connection, namespace: str | None) -> Iterator[Finding]:
    """What does not hold for requests, decisions and uses, and for effects that somebody had to allow."""
    for row in stream(connection, _requests(namespace)):
        yield from _check_request(row)
        if row.verdict is not None:
            yield from _check_decision(row)
        yield from _check_use(row)
    for effect in stream(connection, _unasked(namespace)):
        message = f"Effect {effect.id} is AWAITING_APPROVAL, and nobody was asked."
        yield Finding("APPROVAL_NOT_ASKED", "effects", effect.id, message)
    for effect in stream(connection, _unallowed(namespace)):
        message = (
            f"Effect {effect.id} is {effect.state}, a further execution of a call that somebody has to "
            "allow, and no approval of it was used."
        )
        yield Finding("NOT_APPROVED", "effects", effect.id, message)
    for effect in stream(connection, _kept(namespace)):
        message = f"Effect {effect.id} is {effect.state}, so nothing ran, and a result of it is kept."
        yield Finding("RESULT_OF_NOTHING", "effects", effect.id, message)


def _requests(namespace: str | None) -> Select[Any]:
    query = (
        select(
            approval_requests,
            *[_e[name].label(f"effect_{name}") for name in BOUND],
            _e.state.label("effect"),
            _e.attempt.label("effect_attempt"),
            _e.started_at.label("effect_started_at"),
            _a.workflow_id,
            _a.run_id,
            _a.activity_id.label("activity_name"),
            *(_d.verdict, _d.approver, _d.reason, _d.shared, _d.binding_digest, _d.decided_at),
            _d.namespace.label("decided_in"),
            _d.requester.label("decided_for"),
            _d.expires_at.label("valid_until"),
            _u.id.label("use"),
            _u.namespace.label("used_in"),
            _u.attempt.label("used_by"),
            _u.binding_digest.label("used_binding"),
            _u.used_at,
        )
        .join(effects, _e.id == _q.id)
        .join(activities, _a.id == _q.activity_id)
        .outerjoin(approval_decisions, _d.id == _q.id)
        .outerjoin(approval_uses, _u.id == _q.id)
        .order_by(_q.id)
    )
    return query if namespace is None else query.where(_q.namespace == namespace)


def _check_request(row: Row[Any]) -> Iterator[Finding]:
    for name in BOUND:
        asked, is_now = getattr(row, name), getattr(row, f"effect_{name}")
        if asked != is_now:
            message = f"Request {row.id} asks for {name} {asked}, its effect has {is_now}."
            yield Finding("APPROVAL_DIFFERS", "approval_requests", row.id, message)
    if row.expires_at <= row.created_at:
        message = f"Request {row.id} lapses at {row.expires_at}, and was made at {row.created_at}."
        yield Finding("APPROVAL_TIMES", "approval_requests", row.id, message)


def _check_decision(row: Row[Any]) -> Iterator[Finding]:
    if row.binding_digest != _binding(row):
        message = f"The decision on request {row.id} does not have the digest of what it says it decided."
        yield Finding("BINDING_BROKEN", "approval_decisions", row.id, message)
    if (row.decided_in, row.decided_for) != (row.namespace, row.requester):
        message = (
            f"The decision on request {row.id} is for {row.decided_for!r} in namespace {row.decided_in!r}, "
            f"the request is of {row.requester!r} in {row.namespace!r}."
        )
        yield Finding("APPROVAL_DIFFERS", "approval_decisions", row.id, message)
    if same_person(row.approver, row.requester):
        message = f"Request {row.id} was decided by {row.approver!r}, who made it."
        yield Finding("APPROVED_BY_REQUESTER", "approval_decisions", row.id, message)
    # Not that it was decided after it was made: the database's clock may have been set back in between.
    if row.decided_at >= row.expires_at:
        message = f"Request {row.id} was decided at {row.decided_at}; it lapsed at {row.expires_at}."
        yield Finding("APPROVAL_TIMES", "approval_decisions", row.id, message)


def _binding(row: Row[Any]) -> str:
    fields = [
        "memoflow-approval-1",
        *(row.id, row.namespace, row.workflow_id, row.run_id, row.activity_name),
        *(row.tool_namespace, row.tool_name, row.tool_version, row.arguments_digest, row.idempotency_key),
        *(row.requester, row.verdict, row.approver, row.reason, bool(row.shared), row.decided_at),
        row.valid_until,
    ]
    return f"sha256:{sha256_hex(fields)}"


def _check_use(row: Row[Any]) -> Iterator[Finding]:
    if row.use is None:
        if row.effect not in NOT_BEGUN:
            message = f"Effect {row.id} is {row.effect}, and the approval that it waited for was not used."
            yield Finding("NOT_APPROVED", "effects", row.id, message)
        return
    if row.verdict != "approved" or row.valid_until is None or not row.used_at < row.valid_until:
        message = (
            f"The approval of request {row.id} was used at {row.used_at}; it is {row.verdict}, until "
            f"{row.valid_until}."
        )
        yield Finding("NOT_APPROVED", "approval_uses", row.id, message)
    used = (row.used_in, row.used_binding, row.used_by, row.used_at)
    wanted = (row.namespace, row.binding_digest, row.effect_attempt, row.effect_started_at)
    if row.effect in NOT_BEGUN or used != wanted:
        message = (
            f"The use of approval {row.id} (attempt {row.used_by}, at {row.used_at}) is not the beginning of "
            f"its effect, which is {row.effect} (attempt {row.effect_attempt}, at {row.effect_started_at})."
        )
        yield Finding("APPROVAL_DIFFERS", "approval_uses", row.id, message)


def _in(namespace: str | None, query: Select[Any]) -> Select[Any]:
    return (query if namespace is None else query.where(_e.namespace == namespace)).order_by(_e.id)


def _unasked(namespace: str | None) -> Select[Any]:
    asked = exists().where(_q.id == _e.id)
    return _in(namespace, select(_e.id).where(_e.state == "AWAITING_APPROVAL", ~asked))


def _unallowed(namespace: str | None) -> Select[Any]:
    """Executions that follow a request for the same effect, and run under no approval of it."""
    before = effects.alias("before")
    same = and_(_q.namespace == _e.namespace, _q.idempotency_key == _e.idempotency_key)
    own = exists().where(_q.id == _e.id)
    asked = exists().where(same, before.c.id == _q.id, before.c.execution < _e.execution)
    used = exists().where(same, _u.id == _q.id)
    begun = _e.state.not_in((*NOT_BEGUN, "REFUSED"))
    return _in(namespace, select(_e.id, _e.state).where(begun, _e.execution > 1, ~own, asked, ~used))


def _kept(namespace: str | None) -> Select[Any]:
    # The reader role sees some columns of outputs only, so no column is asked for.
    kept = select(literal(1)).where(outputs.c.owner_id == _e.id).exists()
    return _in(namespace, select(_e.id, _e.state).where(_e.state.in_(NOT_BEGUN), kept))
