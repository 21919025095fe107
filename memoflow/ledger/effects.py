"""Tool effects: begun before a tool runs, finished after it, one row per execution."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import select

from memoflow.errors import OutcomeUnknown, ReservationConflict
from memoflow.ledger import schema as s
from memoflow.ledger.activities import Fence, Late, stale
from memoflow.ledger.outputs import OutputRow, keep_output
from memoflow.ledger.transaction import Needs, Record, Refused, Transaction

__all__ = ["BeginEffects", "EffectResult", "FinishEffects", "NewEffect", "NewRequest", "begin_effects"]

_OPEN: Final = ("STARTED", "AWAITING_APPROVAL")


@dataclass(frozen=True, slots=True)
class NewRequest:
    """What is asked of a person: on whose behalf, and for how long (microseconds from now)."""

    requester: str
    lapses_us: int


@dataclass(frozen=True, slots=True, eq=False)
class NewEffect:
    """An execution that is about to begin (STARTED), or waits for a person (AWAITING_APPROVAL; a request).

    Or a call that is not run: REFUSED, DENIED (by a judge), PROVIDER_SIDE.
    """

    id: str
    invocation_id: str
    ordinal: int
    execution: int
    call_id: str
    kind: str
    tool_namespace: str
    tool_name: str
    tool_version: str
    effect_class: str
    idempotency_key: str | None
    arguments_digest: str | None
    state: str
    reason: str | None = None
    supersedes: str | None = None
    judgement: str | None = None
    claim: str | None = None
    request: NewRequest | None = None


@dataclass(frozen=True, slots=True, eq=False)
class EffectResult:
    """How an execution ended."""

    id: str
    state: str
    reason: str | None = None
    result_digest: str | None = None
    result_bytes: int | None = None
    error_type: str | None = None
    output: OutputRow | None = None


def begin_effects(tx: Transaction, fence: Fence, effects: Iterable[NewEffect]) -> None:
    """Record executions in this batch; an open one that is run again is superseded by its successor."""
    for effect in effects:
        if effect.supersedes is not None and effect.state == "STARTED":
            before = tx.get(s.effects, effect.supersedes)
            if before is not None and before.state == "OUTCOME_UNKNOWN":
                tx.change(s.effects, before, state="SUPERSEDED")
        tx.insert(
            s.effects,
            id=effect.id,
            namespace=fence.namespace,
            activity_id=fence.activity_id,
            attempt=fence.attempt,
            invocation_id=effect.invocation_id,
            ordinal=effect.ordinal,
            execution=effect.execution,
            call_id=effect.call_id,
            kind=effect.kind,
            tool_namespace=effect.tool_namespace,
            tool_name=effect.tool_name,
            tool_version=effect.tool_version,
            effect_class=effect.effect_class,
            idempotency_key=effect.idempotency_key,
            arguments_digest=effect.arguments_digest,
            state=effect.state,
            reason=effect.reason,
            started_at=tx.now,
            finished_at=None if effect.state in _OPEN else tx.now,
            judgement=effect.judgement,
            claim=effect.claim,
        )
        if effect.request is not None:
            _ask(tx, fence, effect, effect.request)


def _ask(tx: Transaction, fence: Fence, effect: NewEffect, request: NewRequest) -> None:
    """Record what a person is asked to allow."""
    tx.insert(
        s.approval_requests,
        id=effect.id,
        namespace=fence.namespace,
        activity_id=fence.activity_id,
        invocation_id=effect.invocation_id,
        ordinal=effect.ordinal,
        tool_namespace=effect.tool_namespace,
        tool_name=effect.tool_name,
        tool_version=effect.tool_version,
        arguments_digest=effect.arguments_digest,
        idempotency_key=effect.idempotency_key,
        requester=request.requester,
        created_at=tx.now,
        expires_at=tx.now + request.lapses_us,
    )


@dataclass(frozen=True, slots=True, eq=False)
class BeginEffects:
    """Record further executions of recorded calls, before they run.

    One that is to wait for a person begins at once where an approval was used for the same effect before,
    and has not expired: what runs again under the same idempotency key is what was allowed.
    """

    fence: Fence
    effects: tuple[NewEffect, ...]

    def needs(self, needs: Needs) -> None:
        """The activity and the executions that are superseded."""
        needs.activities.add(self.fence.activity_id)
        needs.effects.update(e.supersedes for e in self.effects if e.supersedes is not None)

    def apply(self, tx: Transaction) -> tuple[str, ...] | Refused:
        """Begin; returns the state of each, in order."""
        refused = None
        for effect in self.effects:
            refused = stale(tx, self.fence, Late(effect.id, "begin")) or refused
        if refused is not None:
            return refused
        approved = self._approved(tx)
        begun = [_begun(effect, approved) for effect in self.effects]
        for effect in begun:
            if effect.supersedes is not None:
                _check_may_follow(effect, tx.get(s.effects, effect.supersedes))
        begin_effects(tx, self.fence, begun)
        return tuple(effect.state for effect in begun)

    def _approved(self, tx: Transaction) -> set[str]:
        """The idempotency keys of those that run again under an approval that was used and is still good."""
        asked = [
            e.idempotency_key for e in self.effects if e.request is not None and e.supersedes is not None
        ]
        if not asked:
            return set()
        q, d, u = (table.c for table in (s.approval_requests, s.approval_decisions, s.approval_uses))
        query = (
            select(q.idempotency_key)
            .join(s.approval_decisions, d.id == q.id)
            .join(s.approval_uses, u.id == q.id)
            .where(q.namespace == self.fence.namespace, q.idempotency_key.in_(asked), d.expires_at > tx.now)
        )
        return set(tx.connection.scalars(query))


def _begun(effect: NewEffect, approved: set[str]) -> NewEffect:
    if effect.request is None or effect.supersedes is None or effect.idempotency_key not in approved:
        return effect
    return replace(effect, state="STARTED", request=None)


def _check_may_follow(effect: NewEffect, before: Record | None) -> None:
    """Refuse to run a call again that has happened, or may have: somebody may have decided so meanwhile.

    Raises:
        ReservationConflict: it is not FAILED, and not an unknown of a tool that can be run again.
        OutcomeUnknown: it may have happened, and this execution would say that nothing has.
    """
    id, state = effect.supersedes or "", "missing" if before is None else before.state
    again = before is not None and state == "OUTCOME_UNKNOWN" and before.effect_class != "at_most_once"
    if state != "FAILED" and not again:
        raise ReservationConflict(what="effect", id=id, state=state, asked="SUPERSEDED")
    if before is not None and again and effect.state != "STARTED":
        raise OutcomeUnknown(kind="effect", id=id, reason=before.reason)


@dataclass(frozen=True, slots=True, eq=False)
class FinishEffects:
    """Record how executions ended, with their results."""

    fence: Fence
    results: tuple[EffectResult, ...]

    def needs(self, needs: Needs) -> None:
        """The activity and the executions."""
        needs.activities.add(self.fence.activity_id)
        needs.effects.update(result.id for result in self.results)

    def apply(self, tx: Transaction) -> Refused | None:
        """Finish."""
        refused = None
        for result in self.results:
            late = Late(result.id, "effect", result.state, digest=result.result_digest)
            refused = stale(tx, self.fence, late) or refused
        if refused is not None:
            return refused
        for result in self._unrecorded(tx):
            tx.change(
                s.effects,
                tx.get(s.effects, result.id),  # type: ignore[arg-type]
                state=result.state,
                reason=result.reason,
                result_digest=result.result_digest,
                result_bytes=result.result_bytes,
                error_type=result.error_type,
                finished_at=tx.now,
            )
            if result.output is not None:
                keep_output(tx, self.fence.namespace, result.output)
        return None

    def _unrecorded(self, tx: Transaction) -> list[EffectResult]:
        """The results that are not recorded yet; a repeated one is a no-op, a different one a conflict."""
        fresh = []
        for result in self.results:
            effect = tx.get(s.effects, result.id)
            if effect is not None and effect.activity_id != self.fence.activity_id:
                effect = None
            state = "missing" if effect is None else effect.state
            if effect is not None and state == "STARTED":
                fresh.append(result)
            elif effect is None or (state, effect.result_digest) != (result.state, result.result_digest):
                raise ReservationConflict(what="effect", id=result.id, state=state, asked=result.state)
        return fresh
