"""Invocations and their reservations: started together before provider I/O, settled together after it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import select

from memoflow.budget import Amounts
from memoflow.errors import InvalidRequest, PriceUnknown, ReplayMismatch, ReservationConflict
from memoflow.ledger import schema as s
from memoflow.ledger.activities import Fence, Late, stale
from memoflow.ledger.admission import admit
from memoflow.ledger.effects import NewEffect, begin_effects
from memoflow.ledger.holdings import ZERO, Ask, SoftLimit
from memoflow.ledger.outputs import OutputRow, keep_output
from memoflow.ledger.transaction import Needs, Record, Refused, Transaction

__all__ = ["Binding", "KeepResponseId", "SettleInvocation", "StartInvocation", "Started", "TokenUse"]

RESOLVED = {"settle": "SETTLED", "release": "RELEASED", "unknown": "RECONCILE"}
"""The state of a reservation after each kind of resolution."""


@dataclass(frozen=True, slots=True)
class Binding:
    """What a replay key is bound to: the complete initial request, the API, and the executors."""

    turn_id: str
    replay_key: str
    api: str
    request_digest: str
    executors_digest: str

    def check(self, turn: Any) -> None:
        """Compare with the recorded turn.

        Raises:
            ReplayMismatch: naming the first component that differs, by digest.
        """
        for component in ("api", "request", "executors"):
            name = component if component == "api" else f"{component}_digest"
            recorded, given = getattr(turn, name), getattr(self, name)
            if recorded != given:
                raise ReplayMismatch(
                    replay_key=self.replay_key, component=component, recorded=recorded, given=given
                )


@dataclass(frozen=True, slots=True)
class Started:
    """A durable reservation and STARTED invocation."""

    invocation_id: str
    turn_id: str | None
    alerts: tuple[SoftLimit, ...]


@dataclass(frozen=True, slots=True, eq=False)
class StartInvocation:
    """Reserve budget and record that a provider request is about to be sent. Must be durable before it is.

    ``expects_new``: nothing was looked for under the replay key, so nothing may be recorded under it.
    ``cause``: the record that the call descends from, where that is not its activity.
    """

    fence: Fence
    id: str
    accounts: tuple[str, ...]
    ask: Ask
    binding: Binding | None
    round: int
    provider: str
    api: str
    model: str
    request_digest: str
    input_basis: str
    input_measured: int | None
    output_cap: int | None
    price_version: str | None
    metadata: str | None
    expects_new: bool = False
    cause: str | None = None

    def needs(self, needs: Needs) -> None:
        """The activity, the turn, the accounts, and whether this id was used before."""
        needs.activities.add(self.fence.activity_id)
        needs.invocations.add(self.id)
        needs.accounts.update((self.fence.namespace, account) for account in self.accounts)
        if self.binding is not None:
            needs.turns.add((self.fence.activity_id, self.binding.replay_key))

    def apply(self, tx: Transaction) -> Started | Refused:
        """Reserve and start."""
        if refused := stale(tx, self.fence, Late(self.id, "start")):
            return refused
        if (before := tx.get(s.invocations, self.id)) is not None:
            return Started(self.id, before.turn_id, ())
        turn = None if self.binding is None else tx.turn(self.fence.activity_id, self.binding.replay_key)
        if self.binding is not None and turn is not None:
            self.binding.check(turn)
            if self.expects_new:
                raise InvalidRequest(
                    f"Replay key {self.binding.replay_key!r} has been used for this attempt elsewhere, as "
                    "by a forked process; nothing was reserved or sent. An attempt belongs to the process "
                    "that started it: start an activity of its own in a child."
                )
        alerts = self.admit(tx)
        if self.binding is not None and turn is None:
            turn = self._bind(tx, self.binding)
        self._record(tx, None if turn is None else turn.id)
        tx.book.reserve(self.fence.namespace, self.accounts, self.id, self.ask.hold())
        return Started(self.id, None if turn is None else turn.id, tuple(alerts))

    def admit(self, tx: Transaction) -> list[SoftLimit]:
        """The soft limits that the reservation would go over; changes nothing.

        Raises:
            BudgetError: it is refused.
        """
        chain = tx.book.chain(self.fence.namespace, self.accounts)
        try:
            return admit(chain, self.ask)
        except PriceUnknown:
            if not _unpriced_allowed(tx, self.fence.namespace, self.model):
                raise
            return admit(chain, replace(self.ask, allow_unpriced=True))

    def _bind(self, tx: Transaction, binding: Binding) -> Record:
        return tx.insert(
            s.turns,
            id=binding.turn_id,
            namespace=self.fence.namespace,
            activity_id=self.fence.activity_id,
            replay_key=binding.replay_key,
            api=binding.api,
            request_digest=binding.request_digest,
            executors_digest=binding.executors_digest,
            created_at=tx.now,
        )

    def _record(self, tx: Transaction, turn_id: str | None) -> None:
        tx.insert(
            s.invocations,
            id=self.id,
            namespace=self.fence.namespace,
            activity_id=self.fence.activity_id,
            attempt=self.fence.attempt,
            turn_id=turn_id,
            round=self.round,
            provider=self.provider,
            api=self.api,
            model=self.model,
            request_digest=self.request_digest,
            input_basis=self.input_basis,
            input_measured=self.input_measured,
            output_cap=self.output_cap,
            price_version=self.price_version,
            metadata=self.metadata,
            state="STARTED",
            started_at=tx.now,
            cause=self.cause,
        )
        tx.insert(
            s.reservations,
            id=self.id,
            namespace=self.fence.namespace,
            account="\n".join(self.accounts),
            state="HELD",
            created_at=tx.now,
            **s.amount_values("reserved", self.ask.hold()),
        )


def _unpriced_allowed(tx: Transaction, namespace: str, model: str) -> bool:
    d = s.decisions.c
    found = tx.connection.execute(
        select(d.id).where(d.namespace == namespace, d.kind == "unpriced", d.target_id == model).limit(1)
    )
    return found.first() is not None


@dataclass(frozen=True, slots=True)
class TokenUse:
    """Token usage as the provider reported it, and its price in nano-units if one is known."""

    input_tokens: int
    cached_input_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cost: int | None


@dataclass(frozen=True, slots=True, eq=False)
class SettleInvocation:
    """Record how an invocation ended, resolve its reservation, keep its reply, and begin its tool effects.

    One transaction: no state can be seen in which the money is settled and the reply is not kept.
    """

    fence: Fence
    id: str
    state: str
    resolution: str
    reason: str | None = None
    finish_reason: str | None = None
    http_status: int | None = None
    error_code: str | None = None
    error_type: str | None = None
    response_digest: str | None = None
    reply_model: str | None = None
    service_tier: str | None = None
    usage: TokenUse | None = None
    actual: Amounts = ZERO
    outputs: tuple[OutputRow, ...] = ()
    effects: tuple[NewEffect, ...] = ()

    def needs(self, needs: Needs) -> None:
        """The activity, the invocation and its reservation."""
        needs.activities.add(self.fence.activity_id)
        needs.invocations.add(self.id)
        needs.reservations.add(self.id)

    def apply(self, tx: Transaction) -> Refused | None:
        """Settle."""
        if refused := stale(tx, self.fence, self._late()):
            return refused
        invocation, reservation = tx.get(s.invocations, self.id), tx.get(s.reservations, self.id)
        # A fence is good for its own activity only.
        ours = invocation is not None and invocation.activity_id == self.fence.activity_id
        if invocation is None or reservation is None or not ours:
            raise ReservationConflict(what="reservation", id=self.id, state="missing", asked=self.resolution)
        if reservation.state != "HELD":
            self._check_repeated(reservation)
            return None
        reserved = s.read_amounts(reservation, "reserved")
        tx.book.resolve(self.id, self.resolution, reserved, was_unknown=False, actual=self.actual)
        self._change_rows(tx, invocation, reservation)
        for output in self.outputs:
            keep_output(tx, self.fence.namespace, output)
        begin_effects(tx, self.fence, self.effects)
        return None

    def _late(self) -> Late:
        use = self.usage
        return Late(
            self.id,
            "settle",
            self.state,
            None if use is None else use.input_tokens,
            None if use is None else use.output_tokens,
            self.response_digest,
        )

    def _check_repeated(self, reservation: Record) -> None:
        wanted = RESOLVED[self.resolution]
        same = reservation.state == wanted and (
            wanted != "SETTLED" or s.read_amounts(reservation, "actual") == self.actual
        )
        if not same:
            raise ReservationConflict(what="reservation", id=self.id, state=reservation.state, asked=wanted)

    def _change_rows(self, tx: Transaction, invocation: Record, reservation: Record) -> None:
        use = self.usage
        tx.change(
            s.invocations,
            invocation,
            state=self.state,
            reason=self.reason,
            finish_reason=self.finish_reason,
            http_status=self.http_status,
            error_code=self.error_code,
            error_type=self.error_type,
            response_digest=self.response_digest,
            reply_model=self.reply_model,
            service_tier=self.service_tier,
            input_tokens=None if use is None else use.input_tokens,
            cached_input_tokens=None if use is None else use.cached_input_tokens,
            cache_write_tokens=None if use is None else use.cache_write_tokens,
            output_tokens=None if use is None else use.output_tokens,
            reasoning_tokens=None if use is None else use.reasoning_tokens,
            cost=None if use is None else use.cost,
            finished_at=tx.now,
        )
        actual = self.actual if self.resolution == "settle" else [None] * len(self.actual)
        tx.change(
            s.reservations,
            reservation,
            state=RESOLVED[self.resolution],
            reason=self.reason,
            resolved_at=None if self.resolution == "unknown" else tx.now,
            **s.amount_values("actual", actual),
        )


@dataclass(frozen=True, slots=True, eq=False)
class KeepResponseId:
    """Keep the provider's id of a reply that is still being streamed, encrypted, for reconciliation."""

    fence: Fence
    output: OutputRow

    def needs(self, needs: Needs) -> None:
        """The activity."""
        needs.activities.add(self.fence.activity_id)

    def apply(self, tx: Transaction) -> Refused | None:
        """Keep it."""
        if refused := stale(tx, self.fence, Late(self.output.owner_id, "response_id")):
            return refused
        keep_output(tx, self.fence.namespace, self.output)
        return None
