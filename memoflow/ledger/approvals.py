"""Human approvals: asked for with an effect, decided by somebody else, used up when the effect begins.

An approval is good for one effect, which its idempotency key names: this tool in this version with these
arguments, at this place of this run. What the effect class then allows to run again under the same key
runs under the same approval, as long as it has not expired.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from sqlalchemy import Row, Select, insert, select

from memoflow.canonical import sha256_hex
from memoflow.errors import (
    AlreadyDecided,
    ApprovalExpired,
    ApprovalInvalid,
    ApproverIsRequester,
    InvalidRequest,
    NotFound,
    ReservationConflict,
)
from memoflow.identity import check_person, same_person
from memoflow.ledger import schema as s
from memoflow.ledger.accounts import check_reason
from memoflow.ledger.activities import Fence, Late, stale
from memoflow.ledger.effects import BeginEffects, NewEffect
from memoflow.ledger.transaction import Needs, Record, Refused, Transaction
from memoflow.periods import to_datetime

__all__ = [
    "ASKED",
    "MAX_WAIT_US",
    "ApprovalDecision",
    "ContinueEffects",
    "DecideApproval",
    "MayApprove",
    "Resumed",
    "Resumption",
    "anybody",
    "binding_digest",
    "decision_in",
    "subject_of",
    "with_subject",
]

ASKED: Final = (
    *("namespace", "activity_id", "invocation_id", "ordinal", "tool_namespace", "tool_name"),
    *("tool_version", "arguments_digest", "idempotency_key"),
)
"""What a request has from its effect."""

MAX_WAIT_US: Final = 100 * 365 * 86_400_000_000
"""Longest time that a request or an approval may stand: what lies beyond year 9999 cannot be shown."""

_q, _d, _u, _a = (
    table.c for table in (s.approval_requests, s.approval_decisions, s.approval_uses, s.activities)
)


@dataclass(frozen=True, slots=True)
class ApprovalDecision:
    """A recorded decision. Times are UTC microseconds; a denial has no ``expires_at``."""

    id: str
    namespace: str
    verdict: str
    requester: str
    approver: str
    reason: str
    shared: bool
    binding_digest: str
    decided_at: int
    expires_at: int | None


def with_subject() -> Select[Any]:
    """Requests with their run, and with the decision and use if there are any; see `subject_of`."""
    return (
        select(
            s.approval_requests,
            _a.workflow_id,
            _a.run_id,
            _a.activity_id.label("activity_name"),
            _a.state.label("activity_state"),
            _d.verdict,
            _d.approver,
            _d.reason,
            _d.shared,
            _d.requester.label("decided_for"),
            _d.binding_digest,
            _d.decided_at,
            _d.expires_at.label("approval_expires_at"),
            _u.used_at,
        )
        .join(s.activities, _a.id == _q.activity_id)
        .outerjoin(s.approval_decisions, _d.id == _q.id)
        .outerjoin(s.approval_uses, _u.id == _q.id)
    )


def subject_of(row: Any) -> list[object]:
    """What a decision on a row of `with_subject` is about, in the order in which it is digested."""
    return [
        row.id,
        row.namespace,
        row.workflow_id,
        row.run_id,
        row.activity_name,
        row.tool_namespace,
        row.tool_name,
        row.tool_version,
        row.arguments_digest,
        row.idempotency_key,
        row.requester,
    ]


def binding_digest(subject: list[object], decision: ApprovalDecision) -> str:
    """The digest of everything that was decided: plain SHA-256, since no part of it is payload.

    `memoflow verify` has to make it again, and has no digest key.
    """
    decided = [
        decision.verdict,
        decision.approver,
        decision.reason,
        decision.shared,
        decision.decided_at,
        decision.expires_at,
    ]
    return f"sha256:{sha256_hex(['memoflow-approval-1', *subject, *decided])}"


def decision_in(row: Any) -> ApprovalDecision | None:
    """The decision in a row of `with_subject`, if there is one."""
    if row.verdict is None:
        return None
    return ApprovalDecision(
        row.id,
        row.namespace,
        row.verdict,
        row.decided_for,
        row.approver,
        row.reason,
        bool(row.shared),
        row.binding_digest,
        row.decided_at,
        row.approval_expires_at,
    )


# Deciding


@dataclass(frozen=True, slots=True, eq=False)
class DecideApproval:
    """Allow or refuse a requested call. ``valid_us``: for how long an approval can be used, from now.

    Nothing is locked, since a role that may only add rows could not; the decision's key is the request.
    """

    namespace: str
    id: str
    verdict: str
    approver: str
    reason: str
    valid_us: int | None
    shared: bool = False

    def __post_init__(self) -> None:
        check_person("approver", self.approver)
        check_reason(self.reason, required=True)
        if self.verdict == "approved" and not 0 < (self.valid_us or 0) <= MAX_WAIT_US:
            raise InvalidRequest(
                "An approval is good for some time from now on, more than none and at most a hundred years. "
                "Give expires_in=… as a positive timedelta."
            )

    def needs(self, needs: Needs) -> None:
        """Nothing: all three tables are append-only."""

    def apply(self, tx: Transaction) -> ApprovalDecision:
        """Decide; returns the decision that stands, which is an earlier one if it says the same."""
        row = tx.connection.execute(with_subject().where(_q.id == self.id)).one_or_none()
        if row is None or row.namespace != self.namespace:
            raise NotFound(what="approval request", id=self.id, namespace=self.namespace)
        if (before := decision_in(row)) is not None:
            return self._repeated(before, used=row.used_at is not None)
        self._check(tx, row)
        decision = self._decision(row, tx.now)
        # At once, so that another decision in the same batch finds it.
        tx.execute(
            insert(s.approval_decisions).values(
                id=decision.id,
                namespace=decision.namespace,
                verdict=decision.verdict,
                requester=decision.requester,
                approver=decision.approver,
                reason=decision.reason,
                shared=int(decision.shared),
                binding_digest=decision.binding_digest,
                decided_at=decision.decided_at,
                expires_at=decision.expires_at,
            )
        )
        return decision

    def _repeated(self, before: ApprovalDecision, *, used: bool) -> ApprovalDecision:
        valid_us = None if before.expires_at is None else before.expires_at - before.decided_at
        said = (before.verdict, before.approver, before.reason, before.shared, valid_us)
        if said != (self.verdict, self.approver, self.reason, self.shared, self.valid_us):
            state = "used" if used else before.verdict
            raise AlreadyDecided(id=self.id, state=state, approver=before.approver, asked=self.verdict)
        return before

    def _check(self, tx: Transaction, row: Row[Any]) -> None:
        if same_person(self.approver, row.requester):
            raise ApproverIsRequester(id=self.id, requester=row.requester)
        if row.expires_at <= tx.now:
            raise ApprovalExpired(id=self.id, expires_at=to_datetime(row.expires_at), now=to_datetime(tx.now))
        state = tx.connection.scalar(select(s.effects.c.state).where(s.effects.c.id == self.id))
        if state != "AWAITING_APPROVAL" or row.activity_state == "COMPLETED":
            raise AlreadyDecided(id=self.id, state="withdrawn", approver=None, asked=self.verdict)

    def _decision(self, row: Row[Any], now: int) -> ApprovalDecision:
        until = None if self.valid_us is None else now + self.valid_us
        unbound = ApprovalDecision(
            self.id,
            self.namespace,
            self.verdict,
            row.requester,
            self.approver,
            self.reason,
            self.shared,
            "",
            now,
            until,
        )
        return replace(unbound, binding_digest=binding_digest(subject_of(row), unbound))


# Using


MayApprove: TypeAlias = Callable[[str], bool]
"""Says whether somebody may give approvals, by name; the names are those that decisions have."""


def anybody(approver: str) -> bool:
    """Everybody may."""
    return True


@dataclass(frozen=True, slots=True, eq=False)
class Resumption:
    """A waiting effect that may begin if it has been allowed, by somebody who ``may_approve``.

    ``refused``: a judge now says otherwise.
    """

    id: str
    idempotency_key: str | None
    arguments_digest: str | None
    judgement: str | None
    refused: bool = False
    may_approve: MayApprove = anybody


@dataclass(frozen=True, slots=True)
class Resumed:
    """What became of one: STARTED, DENIED or still AWAITING_APPROVAL. ``told``: what the approver shared."""

    id: str
    state: str
    reason: str | None = None
    told: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ContinueEffects:
    """Go on with the calls of a restored reply: those that wait for a person, and those to be run (again).

    Of what waits, the approved begin and the denied and lapsed end. The use of an approval is recorded in the
    transaction in which its effect begins. Where one call is refused by the record, none of them begins.
    """

    fence: Fence
    waiting: tuple[Resumption, ...]
    again: tuple[NewEffect, ...] = ()

    @property
    def _begin(self) -> BeginEffects:
        return BeginEffects(self.fence, self.again)

    def needs(self, needs: Needs) -> None:
        """The activity and the effects."""
        self._begin.needs(needs)
        needs.effects.update(one.id for one in self.waiting)

    def apply(self, tx: Transaction) -> tuple[tuple[Resumed, ...], tuple[str, ...]] | Refused:
        """Begin, end or leave; returns what became of what waited, and the states of the others, in order."""
        refused = None
        for one in self.waiting:
            refused = stale(tx, self.fence, Late(one.id, "begin")) or refused
        if refused is not None:
            return refused
        effects = [self._effect(tx, one) for one in self.waiting]
        rows = self._requests(tx)
        found = [
            _resumed(one, effect, rows.get(one.id), tx.now)
            for one, effect in zip(self.waiting, effects, strict=True)
        ]
        begun = self._begin.apply(tx)
        if isinstance(begun, Refused):
            return begun
        for one, effect, resumed in zip(self.waiting, effects, found, strict=True):
            self._record(tx, one, effect, resumed, rows)
        return tuple(found), begun

    def _requests(self, tx: Transaction) -> dict[str, Row[Any]]:
        ids = [one.id for one in self.waiting]
        query = with_subject().where(_q.id.in_(ids))
        return {row.id: row for row in tx.connection.execute(query)} if ids else {}

    def _effect(self, tx: Transaction, one: Resumption) -> Record:
        effect = tx.get(s.effects, one.id)
        # A fence is good for its own activity only.
        ours = effect is not None and effect.activity_id == self.fence.activity_id
        if effect is None or not ours or effect.state != "AWAITING_APPROVAL":
            state = effect.state if effect is not None and ours else "missing"
            raise ReservationConflict(what="effect", id=one.id, state=state, asked="STARTED")
        return effect

    def _record(
        self, tx: Transaction, one: Resumption, effect: Record, resumed: Resumed, rows: dict[str, Row[Any]]
    ) -> None:
        if resumed.state == "DENIED":
            ended = {"state": "DENIED", "reason": resumed.reason, "finished_at": tx.now}
            tx.change(s.effects, effect, **ended, judgement=one.judgement)
        if resumed.state != "STARTED":
            return
        tx.insert(
            s.approval_uses,
            id=one.id,
            namespace=self.fence.namespace,
            attempt=self.fence.attempt,
            binding_digest=rows[one.id].binding_digest,
            used_at=tx.now,
        )
        begun = {"attempt": self.fence.attempt, "started_at": tx.now, "judgement": one.judgement}
        tx.change(s.effects, effect, state="STARTED", **begun)


def _resumed(one: Resumption, effect: Record, row: Row[Any] | None, now: int) -> Resumed:
    """What the record says about a waiting effect at this moment.

    Raises:
        ApprovalInvalid: an approval does not fit the effect.
    """
    if row is None:
        raise ApprovalInvalid(id=one.id, component="request")
    if one.refused:
        return Resumed(one.id, "DENIED", "JUDGED")
    decision = decision_in(row)
    if decision is None:
        lapsed = row.expires_at <= now
        return Resumed(one.id, "DENIED", "APPROVAL_EXPIRED") if lapsed else Resumed(one.id, effect.state)
    _check_fits(one, effect, row, decision)
    if decision.verdict == "denied":
        return Resumed(one.id, "DENIED", "APPROVAL_DENIED", decision.reason if decision.shared else None)
    if not one.may_approve(decision.approver):
        raise ApprovalInvalid(id=one.id, component="approver")
    if decision.expires_at is None or decision.expires_at <= now:
        return Resumed(one.id, "DENIED", "APPROVAL_EXPIRED")
    return Resumed(one.id, "STARTED")


def _check_fits(one: Resumption, effect: Record, row: Row[Any], decision: ApprovalDecision) -> None:
    """Compare the call that is about to run, its effect, the request and the decision."""
    for name in ASKED:
        if getattr(effect, name) != getattr(row, name):
            raise ApprovalInvalid(id=one.id, component=name)
    for name in ("idempotency_key", "arguments_digest"):
        if getattr(one, name) != getattr(row, name):
            raise ApprovalInvalid(id=one.id, component=name)
    if decision.requester != row.requester:
        raise ApprovalInvalid(id=one.id, component="requester")
    if same_person(decision.approver, row.requester):
        raise ApprovalInvalid(id=one.id, component="approver")
    if binding_digest(subject_of(row), decision) != decision.binding_digest:
        raise ApprovalInvalid(id=one.id, component="binding_digest")
