"""Activities, their attempts, leases and fencing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from memoflow.canonical import key_of
from memoflow.errors import ActivityBusy, ActivityMismatch, DigestKeyMismatch, LeaseLost
from memoflow.identity import ActivityIdentity, new_id
from memoflow.ledger import schema as s
from memoflow.ledger.outputs import OutputRow, keep_output
from memoflow.ledger.transaction import Needs, Record, Refused, Transaction
from memoflow.periods import to_datetime

__all__ = [
    "Claim",
    "ClaimActivity",
    "CompleteActivity",
    "EndAttempt",
    "ExtendLease",
    "Fence",
    "Late",
    "abandon",
    "end_attempt",
    "stale",
]


@dataclass(frozen=True, slots=True)
class Fence:
    """Which attempt is writing. Every write of an attempt carries it."""

    namespace: str
    activity_id: str
    attempt: int
    label: str


@dataclass(frozen=True, slots=True, eq=False)
class Late:
    """What a stale write wanted to say, as far as it may be kept: states, figures and digests."""

    subject_id: str
    event: str
    state: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    digest: str | None = None


def stale(tx: Transaction, fence: Fence, late: Late) -> Refused | None:
    """None if the attempt owns its activity; else the refusal, with what it said kept as evidence."""
    activity = tx.get(s.activities, fence.activity_id)
    latest = activity is not None and activity.attempt == fence.attempt
    if latest and activity is not None and activity.state == "RUNNING":
        return None
    current = None if activity is None or latest else activity.attempt
    # A heartbeat that comes in after the end of its attempt tells nothing: there was nothing left to keep.
    if not (latest and late.event == "extend"):
        _keep(tx, fence, late)
    return Refused(LeaseLost(activity=fence.label, attempt=fence.attempt, current=current))


def _keep(tx: Transaction, fence: Fence, late: Late) -> None:
    tx.insert(
        s.evidence,
        id=new_id(),
        namespace=fence.namespace,
        activity_id=fence.activity_id,
        attempt=fence.attempt,
        subject_id=late.subject_id,
        event=late.event,
        state=late.state,
        input_tokens=late.input_tokens,
        output_tokens=late.output_tokens,
        digest=late.digest,
        at=tx.now,
    )


@dataclass(frozen=True, slots=True)
class Claim:
    """A granted claim, or the news that the activity was completed before.

    Times are UTC microseconds by the database's clock.
    """

    activity_id: str
    attempt: int
    completed: bool
    lease_expires_at: int
    output_digest: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ClaimActivity:
    """Become the attempt that runs an activity.

    Free: the next attempt. Completed: its record. Running elsewhere: `ActivityBusy`. Lease expired: the
    next attempt, and what the lost one left open becomes OUTCOME_UNKNOWN / ATTEMPT_LOST. ``id`` is the one
    that a new activity gets; another one is made for it if that is None.

    ``cause`` is the record that a new activity descends from; one that exists keeps its own.
    """

    identity: ActivityIdentity
    input_digest: str
    lease_us: int
    worker: str
    cause: str | None = None
    id: str | None = None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What names the activity."""
        i = self.identity
        return i.namespace, i.workflow_id, i.run_id, i.activity_id

    def needs(self, needs: Needs) -> None:
        """The activity by its identity."""
        needs.identities.add(self.key)

    def apply(self, tx: Transaction) -> Claim:
        """Claim."""
        activity = tx.activity(self.key)
        if activity is None:
            activity = self._create(tx)
            return self._start(tx, activity)
        self._check_same(activity)
        if activity.state == "COMPLETED":
            return Claim(
                activity.id, activity.attempt, True, activity.lease_expires_at, activity.output_digest
            )
        if activity.state == "RUNNING" and activity.lease_expires_at > tx.now:
            raise ActivityBusy(
                activity=str(self.identity),
                attempt=activity.attempt,
                lease_expires_at=to_datetime(activity.lease_expires_at),
            )
        if activity.state == "RUNNING":
            end_attempt(tx, activity, "LOST")
        abandon(tx, activity)
        tx.change(
            s.activities,
            activity,
            state="RUNNING",
            attempt=activity.attempt + 1,
            lease_expires_at=tx.now + self.lease_us,
        )
        return self._start(tx, activity)

    def _create(self, tx: Transaction) -> Record:
        i = self.identity
        return tx.insert(
            s.activities,
            id=self.id or new_id(),
            namespace=i.namespace,
            workflow_id=i.workflow_id,
            run_id=i.run_id,
            activity_id=i.activity_id,
            activity_type=i.activity_type,
            activity_version=i.activity_version,
            input_digest=self.input_digest,
            state="RUNNING",
            attempt=1,
            lease_expires_at=tx.now + self.lease_us,
            created_at=tx.now,
            cause=self.cause,
        )

    def _start(self, tx: Transaction, activity: Record) -> Claim:
        tx.insert(
            s.attempts,
            id=_attempt_id(activity.id, activity.attempt),
            activity_id=activity.id,
            number=activity.attempt,
            worker=self.worker,
            state="RUNNING",
            claimed_at=tx.now,
        )
        return Claim(activity.id, activity.attempt, False, activity.lease_expires_at)

    def _check_same(self, activity: Record) -> None:
        for component, recorded, given in (
            ("type", activity.activity_type, self.identity.activity_type),
            ("version", activity.activity_version, self.identity.activity_version),
            ("input", activity.input_digest, self.input_digest),
        ):
            if component == "input" and key_of(recorded) != key_of(given):
                raise DigestKeyMismatch(
                    activity=str(self.identity), recorded=key_of(recorded), given=key_of(given)
                )
            if recorded != given:
                raise ActivityMismatch(
                    activity=str(self.identity), component=component, recorded=recorded, given=given
                )


def _attempt_id(activity_id: str, number: int) -> str:
    return f"{activity_id}/{number}"


def _need_attempt(needs: Needs, fence: Fence) -> None:
    needs.activities.add(fence.activity_id)
    needs.attempts.add(_attempt_id(fence.activity_id, fence.attempt))


def end_attempt(tx: Transaction, activity: Record, state: str, error_type: str | None = None) -> None:
    """Close the activity's current attempt."""
    attempt = tx.get(s.attempts, _attempt_id(activity.id, activity.attempt))
    if attempt is not None:
        tx.change(s.attempts, attempt, state=state, error_type=error_type, ended_at=tx.now)


def abandon(tx: Transaction, activity: Record) -> None:
    """Turn everything that earlier attempts left open into OUTCOME_UNKNOWN / ATTEMPT_LOST."""
    # What is open is asked of the database, which must know what happened in this very batch.
    tx.flush()
    open_calls = list(
        tx.connection.scalars(
            select(s.invocations.c.id).where(
                s.invocations.c.activity_id == activity.id, s.invocations.c.state == "STARTED"
            )
        )
    )
    tx.load(s.invocations, open_calls)
    tx.load(s.reservations, open_calls)
    open_effects = list(
        tx.connection.scalars(
            select(s.effects.c.id).where(
                s.effects.c.activity_id == activity.id, s.effects.c.state == "STARTED"
            )
        )
    )
    tx.load(s.effects, open_effects)
    tx.book.load((), open_calls)
    for id in open_calls:
        _lose_invocation(tx, _present(tx.get(s.invocations, id)), _present(tx.get(s.reservations, id)))
    for id in open_effects:
        _lose_effect(tx, _present(tx.get(s.effects, id)))


def _lose_invocation(tx: Transaction, invocation: Record, reservation: Record) -> None:
    lost = {"reason": "ATTEMPT_LOST"}
    tx.change(s.invocations, invocation, state="OUTCOME_UNKNOWN", finished_at=tx.now, **lost)
    tx.change(s.reservations, reservation, state="RECONCILE", **lost)
    tx.book.resolve(reservation.id, "unknown", s.read_amounts(reservation, "reserved"), was_unknown=False)


def _lose_effect(tx: Transaction, effect: Record) -> None:
    # A read that may have run left nothing behind that anybody would have to reconcile.
    state = "FAILED" if effect.effect_class == "read_only" else "OUTCOME_UNKNOWN"
    tx.change(s.effects, effect, state=state, reason="ATTEMPT_LOST", finished_at=tx.now)


def _present(row: Record | None) -> Record:
    assert row is not None, "a row selected a moment ago in the same transaction"
    return row


@dataclass(frozen=True, slots=True, eq=False)
class CompleteActivity:
    """Record the output of an activity; no attempt runs it again.

    ``output`` is None for one that nobody can ask for again; its digest is kept all the same. ``running`` has
    the calls of it that are still being made, and is looked at when this is applied: every call that was
    recorded as started is in it by then, and none can be any more. What they do is not recorded any more, so
    it becomes OUTCOME_UNKNOWN here.
    """

    fence: Fence
    output_digest: str
    output: OutputRow | None
    running: Collection[object] = ()

    def needs(self, needs: Needs) -> None:
        """The activity and its attempt, and what it leaves open."""
        _need_attempt(needs, self.fence)
        if self.running:
            needs.abandoned.add(self.fence.activity_id)

    def apply(self, tx: Transaction) -> Refused | None:
        """Complete."""
        if refused := stale(
            tx, self.fence, Late(self.fence.activity_id, "complete", digest=self.output_digest)
        ):
            return refused
        activity = _present(tx.get(s.activities, self.fence.activity_id))
        if self.running:
            abandon(tx, activity)
        end_attempt(tx, activity, "COMPLETED")
        tx.change(s.activities, activity, state="COMPLETED", output_digest=self.output_digest)
        if self.output is not None:
            keep_output(tx, self.fence.namespace, self.output)
        return None


@dataclass(frozen=True, slots=True, eq=False)
class EndAttempt:
    """Record that an attempt ended without completing its activity, which is then free for the next one.

    ``running`` as for `CompleteActivity`.
    """

    fence: Fence
    state: str
    error_type: str
    running: Collection[object] = ()

    def needs(self, needs: Needs) -> None:
        """The activity and its attempt, and what it leaves open."""
        _need_attempt(needs, self.fence)
        if self.running:
            needs.abandoned.add(self.fence.activity_id)

    def apply(self, tx: Transaction) -> Refused | None:
        """End the attempt."""
        if refused := stale(tx, self.fence, Late(self.fence.activity_id, "end", state=self.state)):
            return refused
        activity = _present(tx.get(s.activities, self.fence.activity_id))
        if self.running:
            abandon(tx, activity)
        end_attempt(tx, activity, self.state, self.error_type)
        tx.change(s.activities, activity, state="FREE")
        return None


@dataclass(frozen=True, slots=True, eq=False)
class ExtendLease:
    """Push the end of a lease out; it never moves back, whatever the clock does."""

    fence: Fence
    lease_us: int

    def needs(self, needs: Needs) -> None:
        """The activity."""
        needs.activities.add(self.fence.activity_id)

    def apply(self, tx: Transaction) -> Any:
        """Extend; returns when the lease ends now (UTC microseconds)."""
        if refused := stale(tx, self.fence, Late(self.fence.activity_id, "extend")):
            return refused
        activity = _present(tx.get(s.activities, self.fence.activity_id))
        until = max(activity.lease_expires_at, tx.now + self.lease_us)
        tx.change(s.activities, activity, lease_expires_at=until)
        return until
