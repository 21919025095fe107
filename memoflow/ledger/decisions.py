"""Decisions about unknowns: who said what happened, when and why.

A decision is final and idempotent by its id. The same one again changes nothing; another one about the
same target is refused. A decision may also be the first to notice that an attempt is lost: what that
attempt left open then becomes unknown in the same transaction, exactly as the next attempt would do it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import select

from memoflow.budget import Amounts, Budget
from memoflow.errors import InvalidBudget, InvalidRequest, NotFound, ReservationConflict
from memoflow.figures import figure
from memoflow.ledger import schema as s
from memoflow.ledger.activities import Fence
from memoflow.ledger.deciding import (
    DECIDED,
    Decision,
    check_decision,
    lose,
    made_before,
    record,
    without_attempt,
)
from memoflow.ledger.effects import NewEffect, begin_effects
from memoflow.ledger.invocations import TokenUse
from memoflow.ledger.outputs import OutputRow, keep_output
from memoflow.ledger.transaction import Needs, Record, Transaction

__all__ = ["DecideEffect", "DecideInvocation", "Decision", "Retrieved", "actual_amounts"]

_OPEN = ("STARTED", "OUTCOME_UNKNOWN")


@dataclass(frozen=True, slots=True, eq=False)
class Retrieved:
    """The terminal reply of an invocation, fetched afterwards: proof of what happened.

    ``effects`` are those of the items that the provider ran itself.
    """

    state: str
    finish_reason: str
    error_code: str | None
    response_digest: str
    reply_model: str | None
    service_tier: str | None
    use: TokenUse
    reply: OutputRow | None = None
    effects: tuple[NewEffect, ...] = ()


def actual_amounts(usage: Budget | None, reserved: Amounts) -> Amounts:
    """What a settlement charges. What is not said is charged as it was reserved: an unknown is never free.

    Tokens are given as input and output together, or as a total alone. An invocation is one model call.

    Raises:
        InvalidBudget: the figures are incomplete or contradict each other.
    """
    usage = usage or Budget()
    if usage.model_calls not in (None, 1):
        raise InvalidBudget(
            f"An invocation is one model call and cannot be settled as {usage.model_calls}. "
            "Leave model_calls out."
        )
    given = dict(usage.items()) | _tokens(usage, reserved) | {"model_calls": 1}
    said = {name: amount for name, amount in given.items() if amount is not None}
    return reserved._replace(**said)


def _tokens(usage: Budget, reserved: Amounts) -> dict[str, int | None]:
    total, tokens_in, tokens_out = usage.total_tokens, usage.input_tokens, usage.output_tokens
    if tokens_in is not None and tokens_out is not None:
        if total not in (None, tokens_in + tokens_out):
            raise InvalidBudget(
                f"total_tokens {total} is not the sum of input_tokens {tokens_in} and output_tokens "
                f"{tokens_out}. Leave total_tokens out."
            )
        return {"total_tokens": tokens_in + tokens_out}
    if (tokens_in, tokens_out) != (None, None):
        raise InvalidBudget("Give input_tokens and output_tokens together, or total_tokens alone.")
    if total is None:
        return {}
    # Of which kind they were is not known: each may have been all of them, within what was reserved for it.
    beyond = total > reserved.total_tokens
    return {
        "input_tokens": total if beyond else min(reserved.input_tokens, total),
        "output_tokens": total if beyond else min(reserved.output_tokens, total),
    }


def _check_charge(decision: Decision, reserved: Amounts) -> None:
    """Refuse to give back all tokens or all money of a call without proof, by whatever verdict.

    Raises:
        InvalidRequest: there is no evidence.
    """
    if decision.actual is None or decision.evidence_digest is not None:
        return
    for name in ("total_tokens", "cost"):
        held = getattr(reserved, name)
        if held and not getattr(decision.actual, name):
            raise InvalidRequest(
                f"Settling invocation {decision.target_id} with {name} 0 gives back all "
                f"{figure(name, held)} that it holds, as a release does, and needs the same proof. "
                "Give evidence=…, of which only the digest is kept."
            )


@dataclass(frozen=True, slots=True, eq=False)
class DecideInvocation:
    """Settle or release an invocation whose outcome is unknown, or whose reply said no usage.

    ``settle`` charges ``usage``, or what was reserved where it is silent; the invocation is then FAILED /
    DECIDED_SPENT, or what ``retrieved`` says. ``release`` returns the hold; it is then CANCELLED /
    NOT_PERFORMED. It needs evidence, and so does a settlement that charges no tokens, or no cost, where
    some were reserved: it returns as much.
    """

    decision_id: str
    namespace: str
    invocation_id: str
    verdict: Literal["settle", "release"]
    actor: str
    reason: str
    evidence_digest: str | None = None
    usage: Budget | None = None
    retrieved: Retrieved | None = None
    activity_id: str | None = None

    def __post_init__(self) -> None:
        check_decision(self.decision_id, self.actor, self.reason, self.verdict, self.evidence_digest)

    def needs(self, needs: Needs) -> None:
        """The activity if it is known beforehand, the invocation and its reservation."""
        if self.activity_id is not None:
            needs.activities.add(self.activity_id)
        needs.invocations.add(self.invocation_id)
        needs.reservations.add(self.invocation_id)

    def apply(self, tx: Transaction) -> Decision:
        """Decide; returns the decision that stands, which is an earlier one if it says the same."""
        invocation = tx.get(s.invocations, self.invocation_id)
        reservation = tx.get(s.reservations, self.invocation_id)
        if invocation is None or reservation is None or invocation.namespace != self.namespace:
            raise NotFound(what="invocation", id=self.invocation_id, namespace=self.namespace)
        decision = self._decision(tx, reservation)
        _check_charge(decision, s.read_amounts(reservation, "reserved"))
        if before := made_before(tx, decision, reservation.state, reservation.decision_id):
            return before
        taken = self._place_is_taken(tx, invocation)
        lost = self._lost_activity(tx, invocation, taken=taken)
        ending = self._ending(tx, invocation, taken=taken)
        if lost is not None:
            lose(tx, lost)
        record(tx, decision)
        self._resolve(tx, reservation, decision)
        if ending:
            tx.change(s.invocations, invocation, **ending)
            self._keep(tx, invocation, taken=taken)
        return decision

    def _keep(self, tx: Transaction, invocation: Record, *, taken: bool) -> None:
        """Keep what a fetched reply brings, as its settlement by the attempt itself would have."""
        if self.retrieved is None:
            return
        if self.retrieved.reply is not None and not taken:
            keep_output(tx, self.namespace, self.retrieved.reply)
        asked = Fence(self.namespace, invocation.activity_id, invocation.attempt, invocation.id)
        begin_effects(tx, asked, self.retrieved.effects)

    def _decision(self, tx: Transaction, reservation: Record) -> Decision:
        actual = None
        if self.verdict == "settle":
            actual = actual_amounts(self.usage, s.read_amounts(reservation, "reserved"))
        return Decision(
            self.decision_id,
            self.namespace,
            "invocation",
            self.invocation_id,
            self.verdict,
            self.actor,
            self.reason,
            self.evidence_digest,
            actual,
            tx.now,
        )

    def _restores(self, invocation: Record) -> bool:
        """Whether the fetched reply is going to be the record of a round."""
        found = self.retrieved
        if found is None or found.state != "SUCCEEDED" or invocation.turn_id is None:
            return False
        return invocation.state in _OPEN

    def _place_is_taken(self, tx: Transaction, invocation: Record) -> bool:
        """Whether another reply is on record for the round that a fetched reply belongs to."""
        if not self._restores(invocation):
            return False
        # It may have been settled a moment ago, in this very batch.
        tx.flush()
        i = s.invocations.c
        same_round = (i.turn_id == invocation.turn_id, i.round == invocation.round, i.id != invocation.id)
        query = select(i.id).where(*same_round, i.state == "SUCCEEDED").limit(1)
        return tx.connection.execute(query).first() is not None

    def _lost_activity(self, tx: Transaction, invocation: Record, *, taken: bool) -> Record | None:
        """The activity if its attempt has to be ended first: it left this open, or might ask again for it."""
        if invocation.state == "STARTED":
            return without_attempt(tx, invocation)
        if self._restores(invocation) and not taken:
            activity = without_attempt(tx, invocation)
            return activity if activity.state == "RUNNING" else None
        return None

    def _ending(self, tx: Transaction, invocation: Record, *, taken: bool) -> dict[str, Any]:
        """What becomes of the invocation's row; nothing if its reply had arrived and said no usage."""
        finished_at = invocation.finished_at or tx.now
        if invocation.state not in _OPEN:
            if self.verdict == "release":
                raise ReservationConflict(
                    what="invocation",
                    id=invocation.id,
                    state=f"{invocation.state} with a reply",
                    asked="released as not performed",
                )
            return {}
        if self.verdict == "release":
            return {"state": "CANCELLED", "reason": "NOT_PERFORMED", "finished_at": finished_at}
        if self.retrieved is None:
            return {"state": "FAILED", "reason": "DECIDED_SPENT", "finished_at": finished_at}
        return {**_columns(self.retrieved, taken=taken), "finished_at": finished_at}

    def _resolve(self, tx: Transaction, reservation: Record, decision: Decision) -> None:
        reserved = s.read_amounts(reservation, "reserved")
        actual = decision.actual or Amounts()
        tx.book.resolve(reservation.id, self.verdict, reserved, was_unknown=True, actual=actual)
        tx.change(
            s.reservations,
            reservation,
            state=DECIDED[self.verdict],
            resolved_at=tx.now,
            decision_id=decision.id,
            **s.amount_values("actual", decision.actual or [None] * len(reserved)),
        )


def _columns(found: Retrieved, *, taken: bool) -> dict[str, Any]:
    use = found.use
    return {
        # A round has one reply on record. A later one is paid for, and used by nobody.
        "state": "FAILED" if taken else found.state,
        "reason": "RETRIEVED_UNUSED" if taken else "RETRIEVED",
        "finish_reason": found.finish_reason,
        "error_code": found.error_code,
        "response_digest": found.response_digest,
        "reply_model": found.reply_model,
        "service_tier": found.service_tier,
        "input_tokens": use.input_tokens,
        "cached_input_tokens": use.cached_input_tokens,
        "cache_write_tokens": use.cache_write_tokens,
        "output_tokens": use.output_tokens,
        "reasoning_tokens": use.reasoning_tokens,
        "cost": use.cost,
    }


@dataclass(frozen=True, slots=True, eq=False)
class DecideEffect:
    """Say whether an execution whose outcome is unknown happened (DONE) or not (FAILED; it may run again).

    Without a result the model is told that the tool ran and that its result is not known.
    """

    decision_id: str
    namespace: str
    effect_id: str
    verdict: Literal["happened", "did_not_happen"]
    actor: str
    reason: str
    evidence_digest: str | None = None
    result: OutputRow | None = None
    result_digest: str | None = None
    result_bytes: int | None = None
    activity_id: str | None = None

    def __post_init__(self) -> None:
        check_decision(self.decision_id, self.actor, self.reason, self.verdict, self.evidence_digest)
        if self.verdict == "happened" and self.result_digest is None:
            raise InvalidRequest("An effect that happened needs the digest of its result, or of no bytes.")

    def needs(self, needs: Needs) -> None:
        """The activity if it is known beforehand, and the effect."""
        if self.activity_id is not None:
            needs.activities.add(self.activity_id)
        needs.effects.add(self.effect_id)

    def apply(self, tx: Transaction) -> Decision:
        """Decide; returns the decision that stands, which is an earlier one if it says the same."""
        effect = tx.get(s.effects, self.effect_id)
        if effect is None or effect.namespace != self.namespace:
            raise NotFound(what="effect", id=self.effect_id, namespace=self.namespace)
        decision = self._decision(tx)
        if before := made_before(tx, decision, effect.state, effect.decision_id):
            self._check_result(effect)
            return before
        lost = self._lost_activity(tx, effect)
        if lost is not None:
            lose(tx, lost)
        record(tx, decision)
        self._resolve(tx, effect, decision)
        return decision

    def _decision(self, tx: Transaction) -> Decision:
        return Decision(
            self.decision_id,
            self.namespace,
            "effect",
            self.effect_id,
            self.verdict,
            self.actor,
            self.reason,
            self.evidence_digest,
            None,
            tx.now,
        )

    def _check_result(self, effect: Record) -> None:
        if self.verdict == "happened" and effect.result_digest != self.result_digest:
            raise ReservationConflict(
                what="effect", id=effect.id, state="DONE with another result", asked="DONE with this one"
            )

    def _lost_activity(self, tx: Transaction, effect: Record) -> Record | None:
        if effect.state == "OUTCOME_UNKNOWN":
            return None
        # A read that was cut short is FAILED as soon as its attempt is lost: there is nothing to decide.
        if effect.state != "STARTED" or effect.effect_class == "read_only":
            raise ReservationConflict(
                what="effect", id=effect.id, state=effect.state, asked=DECIDED[self.verdict]
            )
        return without_attempt(tx, effect)

    def _resolve(self, tx: Transaction, effect: Record, decision: Decision) -> None:
        happened = self.verdict == "happened"
        tx.change(
            s.effects,
            effect,
            state=DECIDED[self.verdict],
            reason="DECIDED" if happened else "NOT_PERFORMED",
            result_digest=self.result_digest if happened else None,
            result_bytes=self.result_bytes if happened else None,
            decision_id=decision.id,
            finished_at=effect.finished_at or tx.now,
        )
        if happened and self.result is not None:
            keep_output(tx, self.namespace, self.result)
