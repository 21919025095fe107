"""The turn: how one call is reserved, sent, settled, recorded, and carried on by tools.

This is the only place that knows the order of things. It does no I/O; it yields steps.

    restore ─► [ plan ─► COMMIT reserve + start ─► DISPATCH ─► judge the calls
                      ─► COMMIT settle + record + begin tools ─► run tools ] …

There is one commit between one piece of I/O and the next, and no other: the end of a round's last tool
travels with the next round's reservation. So a plain call costs 2 commits, and a loop of N model calls
with one tool between them 2 N.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

from memoflow.errors import (
    EstimateRefused,
    InvalidRequest,
    LedgerUnavailable,
    OutcomeUnknown,
    ReplayMismatch,
    ResultNotRetained,
    ToolRoundLimit,
)
from memoflow.identity import new_id
from memoflow.ledger.effects import NewEffect
from memoflow.ledger.invocations import KeepResponseId, SettleInvocation, Started, StartInvocation
from memoflow.ledger.outputs import OutputRow
from memoflow.ledger.places import reply_place, response_id_place
from memoflow.ledger.replay import EffectRecord, RoundRecord, TurnRecord, read_turn
from memoflow.ledger.transaction import Operation
from memoflow.providers.base import Reply, UnreadableReply
from memoflow.turn.asking import Asking
from memoflow.turn.call import MAX_ROUNDS, Call
from memoflow.turn.gate import Gate
from memoflow.turn.outcome import Verdict, judge
from memoflow.turn.plan import Plan, check_rounds, plan_round
from memoflow.turn.recalling import NOT_RECORDED, check_versions
from memoflow.turn.records import as_recorded, bind, live_invocation, restored_invocation, storable
from memoflow.turn.results import InvocationRecord, TurnResult
from memoflow.turn.steps import (
    Arrived,
    Commit,
    Committed,
    Dispatch,
    Dispatched,
    IdKept,
    Interrupted,
    Proceed,
    Read,
    Repeat,
    Step,
    Wire,
)
from memoflow.turn.work import ToolWork

__all__ = ["turn"]

Protocol = Generator[Step, Any, Any]
UNSETTLED: Final = "UNSETTLED"
"""Stands among an attempt's running calls for those that ended in an exception."""


def turn(call: Call) -> Generator[Step, Any, TurnResult]:
    """The whole life of one call.

    Returns:
        The last reply with everything that led to it.

    Raises:
        MemoflowError: a refusal or an outcome, see `memoflow.errors`. Whatever a tool raised.
    """
    return (yield from _Turn(call).run())


class _Turn:
    """The state of one call while it is carried out."""

    def __init__(self, call: Call) -> None:
        if not 1 <= len(call.budgets) <= MAX_ROUNDS:
            raise InvalidRequest(
                f"A call has 1 to {MAX_ROUNDS} rounds, each with its own budget, not {len(call.budgets)}."
            )
        check_rounds(call.budgets)
        self.call = call
        self.prepared = call.codec.prepare(call.request, call.toolset, streaming=call.terms.streaming)
        self.binding = bind(call, self.prepared)
        self.record: TurnRecord | None = None
        gate = Gate(call, self.prepared)
        self.work = ToolWork(call, gate)
        self.unread = False
        self.asking = Asking(call, gate)
        self.invocations: list[InvocationRecord] = []

    def run(self) -> Generator[Step, Any, TurnResult]:
        running = self.call.attempt.running
        running.add(self)
        try:
            with self._owning_key():
                return (yield from self._run())
        except BaseException:
            # Something may be open, also where it was dropped halfway; the end of the attempt looks.
            running.add(UNSETTLED)
            raise
        finally:
            running.discard(self)

    @contextmanager
    def _owning_key(self) -> Iterator[None]:
        """Nobody else of this attempt uses the replay key meanwhile."""
        own, keys = self.binding, self.call.attempt.keys
        if own is None:
            yield
            return
        if (other := keys.setdefault(own.replay_key, own)) is not own:
            own.check(other)
            raise InvalidRequest(
                f"Replay key {self.call.replay_key!r} is in use by another call of this attempt. "
                "Use one key for each call."
            )
        try:
            yield
        finally:
            del keys[own.replay_key]

    def _run(self) -> Generator[Step, Any, TurnResult]:
        yield from self._check_cancelled()
        yield from self._restore()
        number = 0
        while True:
            reply, invocation_id, effects = yield from self._round(number)
            calls = self.asking.calls(self.prepared, reply, number)
            if not calls and not self.asking.goes_on(reply):
                break
            if self.asking.is_last(number):
                raise ToolRoundLimit(rounds=number + 1)
            results = yield from self.work.answer(reply, calls, invocation_id, effects)
            if not self.call.continues:
                yield from self.work.flush()
                break
            outputs = self.call.codec.outputs(reply, results)
            self.prepared = self.call.codec.next_request(self.prepared, reply, outputs)
            number += 1
        return TurnResult(reply, tuple(self.work.results), tuple(self.invocations))

    # Restoring

    def _restore(self) -> Protocol:
        if self.binding is None:
            return
        key = self.binding.replay_key
        if self.call.attempt.claim_key(key):
            self.unread = True
            return
        record: TurnRecord | None = yield Read(
            partial(read_turn, activity_id=self.call.attempt.fence.activity_id, replay_key=key)
        )
        if record is None:
            return
        try:
            self.binding.check(record)
        except ReplayMismatch:
            # A new version is often another schema too, and then the request that carries it differs first.
            check_versions(self.call, record)
            raise
        self._check_open(record)
        self.record = record

    def _check_open(self, record: TurnRecord) -> None:
        for round in record.rounds:
            # STARTED, and no call of this attempt has the key: one had it, and its end could not be recorded.
            unknown = round.state in ("STARTED", "OUTCOME_UNKNOWN")
            unresolved = unknown and round.reservation in ("HELD", "RECONCILE")
            if self.call.terms.on_unknown == "block" and unresolved and record.finished(round.round) is None:
                raise OutcomeUnknown(kind="invocation", id=round.id, reason=round.reason or NOT_RECORDED)

    def _recorded_reply(self, record: RoundRecord) -> Reply:
        assert self.binding is not None
        what = f"reply of invocation {record.id}"
        place = reply_place(self.binding.replay_key, record.round, self.binding.request_digest)
        try:
            raw = self.call.attempt.vault.open(
                self.call.attempt.identity, record.reply, place=place.place, binding=place.binding, what=what
            )
            return self._compared(self.call.codec.read(raw))
        except ResultNotRetained as gone:
            raise gone.with_digest(record.response_digest) from None
        except UnreadableReply as error:
            raise ResultNotRetained(what=what, digest=record.response_digest, reason=error.reason) from None

    # One round

    def _round(self, number: int) -> Generator[Step, Any, tuple[Reply, str, tuple[EffectRecord, ...]]]:
        """A reply for this round, recorded or new, with its invocation and its effects."""
        yield from self._check_cancelled()
        record = None if self.record is None else self.record.finished(number)
        if record is not None:
            reply = self._recorded_reply(record)
            self.invocations.append(restored_invocation(record))
            if self.call.terms.streaming:
                yield Repeat(reply)
            self.asking.check_recorded(self.prepared, reply, record, number)
            return reply, record.id, record.effects
        invocation_id = new_id()
        reply, effects = yield from self._ask(number, invocation_id)
        return reply, invocation_id, effects

    def _ask(self, number: int, id: str) -> Generator[Step, Any, tuple[Reply, tuple[EffectRecord, ...]]]:
        try:
            plan, started = yield from self._reserve(number, id)
        except GeneratorExit:
            raise
        except BaseException:
            yield from self.work.flush()
            raise
        dispatched = yield from self._dispatch(id, plan)
        price = self.call.attempt.prices.get(self.prepared.model)
        verdict = judge(dispatched, id, price=price, strict=self.call.terms.strict_outcomes)
        halted = yield from self.asking.judge(self.prepared, verdict.reply, id, number)
        effects = self.asking.effects(self.prepared, verdict.reply, id, number, begin=halted is None)
        outputs = yield from self._outputs(verdict, id, number, dispatched)
        settlement = self._settlement(verdict, id, number, dispatched, outputs, effects)
        bracket = self.call.bracket
        closing = () if bracket is None else bracket.closing(verdict, id)
        committed: Committed = yield Commit((settlement, *closing))
        self.invocations.append(live_invocation(verdict, id, number, plan, started))
        raises = verdict.raises or halted
        stopped = raises is not None and not isinstance(raises, Exception)
        try:
            if not stopped:
                committed.check()
        except LedgerUnavailable as error:
            # Not that error itself: it leaves open whether anything was sent, and this request was.
            raise OutcomeUnknown(kind="invocation", id=id, reason=NOT_RECORDED) from error
        if raises is not None:
            # A cancelled task or an interrupt leaves as what it is, also where the record of it was refused.
            raise raises
        assert verdict.reply is not None
        self.asking.check(self.prepared, verdict.reply, id, number)
        return verdict.reply, tuple(
            as_recorded(effect, self.call) for effect in effects if effect.kind != "hosted"
        )

    def _reserve(self, number: int, id: str) -> Generator[Step, Any, tuple[Plan, Started]]:
        plan = yield from plan_round(self.call, self.prepared, number)
        try:
            started = yield from self._start(number, id, plan, self._digest(plan, number))
        except EstimateRefused:
            plan = yield from plan_round(self.call, self.prepared, number, strict=True)
            started = yield from self._start(number, id, plan, self._digest(plan, number))
        return plan, started

    def _start(self, number: int, id: str, plan: Plan, digest: str) -> Generator[Step, Any, Started]:
        measured = plan.input
        start = StartInvocation(
            fence=self.call.attempt.fence,
            id=id,
            accounts=self.call.accounts,
            ask=plan.ask,
            binding=self.binding,
            round=number,
            provider=self.call.codec.provider,
            api=self.call.codec.api,
            model=self.prepared.model,
            request_digest=digest,
            input_basis="none" if measured is None else measured.basis,
            input_measured=None if measured is None else measured.tokens,
            output_cap=plan.output_cap,
            price_version=None if plan.ask.currency is None else self.call.attempt.prices.version,
            metadata=self.call.terms.metadata,
            expects_new=self.unread and number == 0,
            cause=self.call.cause,
        )
        bracket = self.call.bracket
        opening: Operation[Any] = start if bracket is None else bracket.opening(start)
        committed: Committed = yield Commit((*self.work.take_pending(), opening))
        started: Started = committed.check()[-1]
        if bracket is not None:
            bracket.opened(started)
        return started

    def _dispatch(self, id: str, plan: Plan) -> Generator[Step, Any, Dispatched]:
        terms = self.call.terms
        choices = self.prepared.choices
        wire = Wire(plan.body, terms.streaming, plan.timeout, terms.idle_timeout, choices)
        try:
            dispatched: Dispatched = yield Dispatch(wire, partial(self._keep_id, id))
        except GeneratorExit:
            raise
        except BaseException as error:
            # Drivers answer; what breaks in one of them says nothing about what was sent.
            cancelled = not isinstance(error, Exception)
            return Dispatched(Interrupted("CLIENT_ERROR", error, cancelled=cancelled), 0)
        answer = dispatched.answer
        if isinstance(answer, Arrived) and (reply := self._compared(answer.reply)) is not answer.reply:
            return replace(dispatched, answer=replace(answer, reply=reply))
        return dispatched

    def _compared(self, reply: Reply) -> Reply:
        """The reply, with a problem noted if it cannot be the one to this round's request."""
        mismatch = self.call.codec.mismatch(self.prepared, reply)
        return reply if mismatch is None else reply.with_problem(mismatch)

    def _digest(self, plan: Plan, number: int) -> str:
        """The digest of what is sent; the binding has it already when nothing was added to the request."""
        if self.binding is not None and number == 0 and plan.body is self.prepared.body:
            return self.binding.request_digest
        return self.call.attempt.digester.json(plan.body)

    def _settlement(
        self,
        verdict: Verdict,
        id: str,
        number: int,
        dispatched: Dispatched,
        outputs: tuple[OutputRow, ...],
        effects: tuple[NewEffect, ...],
    ) -> SettleInvocation:
        answer = dispatched.answer
        arrived = answer if isinstance(answer, Arrived) else None
        reply = verdict.reply
        charged = self.asking.charged(self.prepared, reply, number)
        return SettleInvocation(
            fence=self.call.attempt.fence,
            id=id,
            state=verdict.state,
            resolution=verdict.resolution,
            reason=verdict.reason,
            finish_reason=verdict.finish_reason,
            http_status=verdict.http_status,
            error_code=verdict.error_code,
            error_type=verdict.error_type,
            response_digest=None if arrived is None else self.call.attempt.digester.bytes(arrived.raw),
            reply_model=None if reply is None else storable(reply.model),
            service_tier=None if reply is None else storable(reply.service_tier),
            usage=verdict.usage,
            actual=verdict.actual._replace(tool_calls=charged),
            outputs=outputs,
            effects=effects,
        )

    def _outputs(
        self, verdict: Verdict, id: str, number: int, dispatched: Dispatched
    ) -> Generator[Step, Any, tuple[OutputRow, ...]]:
        """What is kept of a reply with its settlement: itself, or its id if nothing has kept that."""
        rows, answer = [], dispatched.answer
        if isinstance(answer, Arrived) and verdict.state == "SUCCEEDED" and self.binding is not None:
            place = reply_place(self.binding.replay_key, number, self.binding.request_digest)
            rows.append(self._seal(id, "reply", place.place, place.binding, answer.raw))
        if verdict.response_id is not None and not (yield IdKept()):
            rows.append(self._keep_id(id, verdict.response_id).output)
        return tuple(rows)

    def _keep_id(self, id: str, response_id: str) -> KeepResponseId:
        place = response_id_place(id)
        row = self._seal(id, "response_id", place.place, place.binding, response_id.encode())
        return KeepResponseId(self.call.attempt.fence, row)

    def _seal(self, owner: str, kind: str, place: str, binding: str, value: bytes) -> OutputRow:
        attempt = self.call.attempt
        return attempt.vault.seal(attempt.identity, owner, kind, place=place, binding=binding, value=value)

    def _check_cancelled(self) -> Protocol:
        abort: BaseException | None = yield Proceed()
        if abort is not None:
            yield from self.work.flush()
            raise abort
