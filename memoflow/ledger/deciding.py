"""What all decisions share: their record, their idempotency, and ending an attempt that is lost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from sqlalchemy import insert, select

from memoflow.budget import Amounts
from memoflow.errors import ActivityBusy, InvalidRequest, ReservationConflict
from memoflow.figures import figure
from memoflow.identity import check_name
from memoflow.ledger import schema as s
from memoflow.ledger.accounts import check_reason
from memoflow.ledger.activities import abandon, end_attempt
from memoflow.ledger.invocations import RESOLVED
from memoflow.ledger.transaction import Record, Transaction
from memoflow.periods import to_datetime

__all__ = [
    "Decision",
    "check_decision",
    "decision_of",
    "lose",
    "made_before",
    "record",
    "without_attempt",
]

DECIDED: Final = RESOLVED | {"happened": "DONE", "did_not_happen": "FAILED"}
"""The state a target has after each verdict."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A recorded decision. ``actual`` is what a settlement charged; ``at`` is in UTC microseconds."""

    id: str
    namespace: str
    kind: str
    target_id: str
    verdict: str
    actor: str
    reason: str
    evidence_digest: str | None
    actual: Amounts | None
    at: int


def check_decision(
    decision_id: str, actor: str, reason: str, verdict: str, evidence_digest: str | None
) -> None:
    """Check what every decision needs: an id that is a UUID, an actor, a reason, and proof where it frees.

    Raises:
        InvalidRequest: one of them is missing or not valid.
    """
    check_name("actor", actor)
    check_reason(reason, required=True)
    try:
        good = str(UUID(decision_id)) == decision_id
    except (ValueError, AttributeError, TypeError):
        good = False
    if not good:
        raise InvalidRequest(
            "A decision id is a UUID in its usual lower-case form, for example str(uuid.uuid4())."
        )
    # Budget that is given back is spent again, and an effect that did not happen runs again.
    if verdict in ("release", "did_not_happen") and evidence_digest is None:
        raise InvalidRequest(
            f"The verdict {verdict!r} needs proof that nothing was done. Give evidence=…, of which only the "
            "digest is kept."
        )


def decision_of(row: Any) -> Decision:
    """The decision in a row."""
    actual = None if row.actual_model_calls is None else s.read_amounts(row, "actual")
    return Decision(
        row.id,
        row.namespace,
        row.kind,
        row.target_id,
        row.verdict,
        row.actor,
        row.reason,
        row.evidence_digest,
        actual,
        row.at,
    )


def _find(tx: Transaction, id: str | None) -> Decision | None:
    # Not locked: decisions never change, and a role that may only add rows could not lock one.
    row = tx.connection.execute(select(s.decisions).where(s.decisions.c.id == id)).one_or_none()
    return None if row is None else decision_of(row)


def made_before(tx: Transaction, decision: Decision, state: str, resolved_by: str | None) -> Decision | None:
    """The decision that already says the same, if there is one.

    Raises:
        ReservationConflict: the id was used for another decision, or the target is resolved in another way.
    """
    if (same_id := _find(tx, decision.id)) is not None:
        if replace(same_id, at=decision.at) != decision:
            used = "used"
            if same_id.namespace == decision.namespace:
                used = f"used to {same_id.verdict} {same_id.kind} {same_id.target_id}"
            raise ReservationConflict(
                what="decision", id=decision.id, state=used, asked=f"another decision on {decision.target_id}"
            )
        return same_id
    if state not in ("SETTLED", "RELEASED") and resolved_by is None:
        return None
    first = _find(tx, resolved_by)
    if first is None or (first.verdict, first.actual) != (decision.verdict, decision.actual):
        raise ReservationConflict(
            what=decision.kind, id=decision.target_id, state=state, asked=_in_words(decision)
        )
    return first


def _in_words(decision: Decision) -> str:
    if decision.actual is None:
        return DECIDED[decision.verdict]
    used = [f"{name} {figure(name, value)}" for name, value in decision.actual._asdict().items() if value]
    return "SETTLED with " + (", ".join(used) or "nothing")


def record(tx: Transaction, decision: Decision) -> None:
    """Write a decision down."""
    # At once, so that another decision in the same batch finds it.
    tx.execute(
        insert(s.decisions).values(
            id=decision.id,
            namespace=decision.namespace,
            kind=decision.kind,
            target_id=decision.target_id,
            verdict=decision.verdict,
            actor=decision.actor,
            reason=decision.reason,
            evidence_digest=decision.evidence_digest,
            at=decision.at,
            **({} if decision.actual is None else s.amount_values("actual", decision.actual)),
        )
    )


def without_attempt(tx: Transaction, row: Record) -> Record:
    """The activity of an invocation or effect, if no attempt of it is entitled to write.

    Raises:
        ActivityBusy: an attempt holds the lease.
    """
    activity = tx.get(s.activities, row.activity_id)
    assert activity is not None, "a foreign key says that it is there"
    if activity.state == "RUNNING" and activity.lease_expires_at > tx.now:
        raise ActivityBusy(
            activity=f"{activity.namespace}/{activity.workflow_id}/{activity.run_id}/{activity.activity_id}",
            attempt=activity.attempt,
            lease_expires_at=to_datetime(activity.lease_expires_at),
        )
    return activity


def lose(tx: Transaction, activity: Record) -> None:
    """End an attempt whose lease ran out, as the next attempt would: from here on it cannot write."""
    running = activity.state == "RUNNING"
    if running:
        end_attempt(tx, activity, "LOST")
    abandon(tx, activity)
    if running:
        tx.change(s.activities, activity, state="FREE")
