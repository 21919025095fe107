"""The turn: how one call is reserved, sent, settled, recorded, and carried on by tools.

This is the only place that knows the order of things. It does no I/O; it yields steps.

    restore ─► [ plan ─► COMMIT reserve + start ─► DISPATCH ─► COMMIT settle + record + begin tools ─► run tools ] ...

A loop of N rounds with one tool each costs N + 1 commits: the end of a round's last tool
travels with the next round's reservation.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

from memoflow.errors import (
    InvalidProviderReply,
    InvalidRequest,
    OutcomeUnknown,
    ReplayMismatch,
    ResultNotRetained,
    ToolCallBudgetExceeded,
    ToolRoundLimit,
)
from memoflow.identity import new_id
from memoflow.ledger.effects import BeginEffects, EffectResult, FinishEffects, NewEffect
from memoflow.ledger.invocations import Binding, KeepResponseId, SettleInvocation, Started, StartInvocation
from memoflow.ledger.outputs import OutputRow
from memoflow.ledger.places import reply_place, response_id_place
from memoflow.ledger.replay import EffectRecord, RoundRecord, TurnRecord, read_turn
from memoflow.providers.base import PreparedRequest, Reply, UnreadableReply
from memoflow.turn.call import MAX_ROUNDS, Call, InvocationRecord, ToolResult, TurnResult
from memoflow.turn.calls import PlannedCall, check_versions, hosted_effects, plan_calls, recall, settle
from memoflow.turn.outcome import Verdict, judge
from memoflow.turn.plan import Plan, plan_round
from memoflow.turn.steps import (
    Arrived,
    Collect,
    Collected,
    Commit,
    Committed,
    Dispatch,
    Dispatched,
    Launch,
    Proceed,
    Read,
    Step,
    Wire,
)

__all__ = ["turn"]

Protocol = Generator[Step, Any, Any]


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
                f"A call has 1 to {MAX_ROUNDS} rounds, each with a budget of its own; {len(call.budgets)} were given."
            )
        self.call = call
        self.prepared = call.codec.prepare(call.request, call.toolset, streaming=call.terms.streaming)
        self.binding = _bind(call, self.prepared)
        self.record: TurnRecord | None = None
        self.pending: list[EffectResult] = []
        self.kept_ids: set[str] = set()
        self.tool_results: list[ToolResult] = []
        self.invocations: list[InvocationRecord] = []

    def run(self) -> Generator[Step, Any, TurnResult]:
        yield from self._check_cancelled()
        yield from self._restore()
        number = 0
        while True:
            reply, invocation_id, effects = yield from self._round(number)
            calls = self._calls(reply, number)
            if not calls:
                break
            if self.call.continues and number + 1 == len(self.call.budgets):
                raise ToolRoundLimit(rounds=number + 1)
            results = yield from self._answer(calls, invocation_id, effects)
            if not self.call.continues:
                yield from self._flush()
                break
            outputs = self.call.codec.outputs(reply, results)
            self.prepared = self.call.codec.next_request(self.prepared, reply, outputs)
            number += 1
        return TurnResult(reply, tuple(self.tool_results), tuple(self.invocations))

    # Restoring

    def _restore(self) -> Protocol:
        if self.binding is None:
            return
        key = self.binding.replay_key
        record: TurnRecord | None = yield Read(
            partial(read_turn, activity_id=self.call.attempt.fence.activity_id, replay_key=key)
        )
        if record is None:
            return
        try:
            self.binding.check(record)
        except ReplayMismatch as mismatch:
            if mismatch.component == "executors":
                check_versions(self.call, record)
            raise
        self._check_open(record)
        self.record = record

    def _check_open(self, record: TurnRecord) -> None:
        for round in record.rounds:
            if round.state == "STARTED" and round.attempt == self.call.attempt.fence.attempt:
                raise InvalidRequest(
                    f"Replay key {self.call.replay_key!r} is in use by another call of this attempt. "
                    "Use one key for each call."
                )
            if self.call.terms.on_unknown == "block" and round.reservation == "RECONCILE":
                if round.state == "OUTCOME_UNKNOWN" and record.finished(round.round) is None:
                    raise OutcomeUnknown(kind="invocation", id=round.id, reason=round.reason or "UNKNOWN")

    def _recorded_reply(self, record: RoundRecord) -> Reply:
        assert self.binding is not None
        what = f"reply of invocation {record.id}"
        place = reply_place(self.binding.replay_key, record.round, self.binding.request_digest)
        try:
            raw = self.call.attempt.vault.open(
                self.call.attempt.identity, record.reply, place=place.place, binding=place.binding, what=what
            )
            return self.call.codec.read(raw)
        except ResultNotRetained as gone:
            raise ResultNotRetained(what=what, digest=record.response_digest, reason=gone.reason) from None
        except UnreadableReply as error:
            raise ResultNotRetained(what=what, digest=record.response_digest, reason=error.reason) from None

    # One round

    def _round(self, number: int) -> Generator[Step, Any, tuple[Reply, str, tuple[EffectRecord, ...]]]:
        """A reply for this round: the recorded one, or a new one; with its invocation and recorded effects."""
        record = None if self.record is None else self.record.finished(number)
        if record is not None:
            reply = self._recorded_reply(record)
            self.invocations.append(_restored(record))
            self._check_usable(reply, record.id, number)
            return reply, record.id, record.effects
        yield from self._check_cancelled()
        invocation_id = new_id()
        reply, effects = yield from self._ask(number, invocation_id)
        return reply, invocation_id, effects

    def _ask(self, number: int, id: str) -> Generator[Step, Any, tuple[Reply, tuple[EffectRecord, ...]]]:
        try:
            plan = yield from plan_round(self.call, self.prepared, number)
        except GeneratorExit:
            raise
        except BaseException:
            yield from self._flush()
            raise
        started = yield from self._start(number, id, plan)
        dispatched: Dispatched = yield Dispatch(
            Wire(id, plan.body, self.call.terms.streaming, plan.timeout, self.call.terms.idle_timeout),
            partial(self._keep_id, id),
        )
        price = self.call.attempt.prices.get(self.prepared.model)
        verdict = judge(dispatched, id, price=price, strict=self.call.terms.strict_outcomes)
        effects = self._effects(verdict, id, number)
        committed: Committed = yield Commit((self._settlement(verdict, id, number, dispatched, effects),))
        self.invocations.append(_live(verdict, id, number, plan, started))
        committed.check()
        if verdict.raises is not None:
            raise verdict.raises
        assert verdict.reply is not None
        self._check_usable(verdict.reply, id, number)
        return verdict.reply, tuple(
            _as_recorded(effect, self.call) for effect in effects if effect.kind != "hosted"
        )

    def _start(self, number: int, id: str, plan: Plan) -> Generator[Step, Any, Started]:
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
            request_digest=self._digest(plan, number),
            input_basis="none" if measured is None else measured.basis,
            input_measured=None if measured is None else measured.tokens,
            output_cap=plan.output_cap,
            price_version=None if plan.ask.currency is None else self.call.attempt.prices.version,
            metadata=self.call.terms.metadata,
        )
        committed: Committed = yield Commit((*self._finish_pending(), start))
        started: Started = committed.check()[-1]
        return started

    def _digest(self, plan: Plan, number: int) -> str:
        """The digest of what is sent; the binding has it already when nothing was added to the request."""
        if self.binding is not None and number == 0 and plan.body is self.prepared.body:
            return self.binding.request_digest
        return self.call.attempt.digester.json(plan.body)

    def _settlement(
        self, verdict: Verdict, id: str, number: int, dispatched: Dispatched, effects: tuple[NewEffect, ...]
    ) -> SettleInvocation:
        answer = dispatched.answer
        arrived = answer if isinstance(answer, Arrived) else None
        reply = verdict.reply
        running = sum(effect.state == "STARTED" for effect in effects)
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
            reply_model=None if reply is None else _short(reply.model),
            service_tier=None if reply is None else _short(reply.service_tier),
            usage=verdict.usage,
            actual=verdict.actual._replace(tool_calls=running),
            outputs=tuple(self._outputs(verdict, id, number, arrived)),
            effects=effects,
        )

    def _outputs(self, verdict: Verdict, id: str, number: int, arrived: Arrived | None) -> list[OutputRow]:
        rows = []
        if arrived is not None and verdict.state == "SUCCEEDED" and self.binding is not None:
            place = reply_place(self.binding.replay_key, number, self.binding.request_digest)
            rows.append(self._seal(id, "reply", place.place, place.binding, arrived.raw))
        if verdict.response_id is not None and id not in self.kept_ids:
            rows.append(self._keep_id(id, verdict.response_id).output)
        return rows

    def _keep_id(self, id: str, response_id: str) -> KeepResponseId:
        self.kept_ids.add(id)
        place = response_id_place(id)
        row = self._seal(id, "response_id", place.place, place.binding, response_id.encode())
        return KeepResponseId(self.call.attempt.fence, row)

    def _seal(self, owner: str, kind: str, place: str, binding: str, value: bytes) -> OutputRow:
        attempt = self.call.attempt
        return attempt.vault.seal(attempt.identity, owner, kind, place=place, binding=binding, value=value)

    def _effects(self, verdict: Verdict, id: str, number: int) -> tuple[NewEffect, ...]:
        """What is recorded about the calls in a reply, in the transaction that settles it."""
        reply = verdict.reply
        if reply is None or verdict.state != "SUCCEEDED":
            return ()
        planned = self._calls(reply, number)
        last = self.call.continues and number + 1 == len(self.call.budgets)
        if last or self._unusable(reply) is not None or len(planned) > self._allowed(number):
            planned = []
        return (*hosted_effects(reply, id), *(one.effect(id) for one in planned))

    # Judging a reply

    def _check_usable(self, reply: Reply, id: str, number: int) -> None:
        problem = self._unusable(reply)
        if problem is not None:
            raise InvalidProviderReply(invocation_id=id, problem=problem)
        asked = len(self._calls(reply, number))
        if asked > self._allowed(number):
            raise ToolCallBudgetExceeded(asked=asked, reserved=self._allowed(number), round=number)

    def _unusable(self, reply: Reply) -> str | None:
        if reply.problem is not None:
            return reply.problem
        if self.call.toolset is not None and reply.needs_client:
            return f"it expects an answer that no registered tool can give ({', '.join(reply.needs_client)})"
        return None

    def _calls(self, reply: Reply, number: int) -> list[PlannedCall]:
        """The calls to answer: none without executors, none from a turn that was cut short."""
        if self.call.toolset is None or reply.status != "completed":
            return []
        return plan_calls(self.call, self.prepared, reply, number)

    def _allowed(self, number: int) -> int:
        budget = self.call.budgets[number]
        return 0 if budget is None else budget.tool_calls or 0

    # Tools

    def _answer(
        self, calls: list[PlannedCall], invocation_id: str, effects: tuple[EffectRecord, ...]
    ) -> Generator[Step, Any, list[tuple[Any, str]]]:
        """Outputs for all calls of a reply, in order: restored, refused, or from running the tool."""
        results: dict[int, ToolResult] = {}
        to_run: dict[str, PlannedCall] = {}
        again: list[NewEffect] = []
        for planned in calls:
            known = [effect for effect in effects if effect.ordinal == planned.request.ordinal]
            if known and known[-1].state == "FRESH":
                to_run[known[-1].id] = planned
                continue
            found = recall(self.call, planned, list(known)) if known else None
            if isinstance(found, ToolResult):
                results[planned.request.ordinal] = found
            else:
                effect = planned.effect(invocation_id, found)
                again.append(effect)
                to_run[effect.id] = planned
        if again:
            committed: Committed = yield Commit((BeginEffects(self.call.attempt.fence, tuple(again)),))
            committed.check()
        if to_run:
            yield from self._run_tools(to_run, results)
        ordered = [results[planned.request.ordinal] for planned in calls]
        self.tool_results.extend(ordered)
        return [(planned.request, result.output) for planned, result in zip(calls, ordered, strict=True)]

    def _run_tools(self, to_run: dict[str, PlannedCall], results: dict[int, ToolResult]) -> Protocol:
        refused = {id: planned for id, planned in to_run.items() if planned.refusal is not None}
        for planned in refused.values():
            assert planned.refusal is not None
            results[planned.request.ordinal] = planned.result("REFUSED", planned.refusal.text, restored=False)
        running = {id: planned for id, planned in to_run.items() if id not in refused}
        if not running:
            return
        yield Launch(tuple(planned.execution(id, self.call) for id, planned in running.items()))
        left, failures, abort = len(running), {}, None
        while left:
            collected: Collected = yield Collect()
            left -= len(collected.finished)
            abort = collected.abort or abort
            for finished in collected.finished:
                planned = running[finished.execution.effect_id]
                settled = settle(self.call, planned, finished)
                self.pending.append(settled.record)
                if settled.result is not None:
                    results[planned.request.ordinal] = settled.result
                if settled.raises is not None:
                    failures[planned.request.ordinal] = settled.raises
            if left or failures or abort is not None:
                yield from self._flush()
        if abort is not None:
            raise abort
        if failures:
            raise failures[min(failures)]

    def _finish_pending(self) -> tuple[FinishEffects, ...]:
        pending, self.pending = tuple(self.pending), []
        return (FinishEffects(self.call.attempt.fence, pending),) if pending else ()

    def _flush(self) -> Protocol:
        if operations := self._finish_pending():
            committed: Committed = yield Commit(operations)
            committed.check()

    def _check_cancelled(self) -> Protocol:
        abort: BaseException | None = yield Proceed()
        if abort is not None:
            yield from self._flush()
            raise abort


def _bind(call: Call, prepared: PreparedRequest) -> Binding | None:
    """What the call's replay key stands for: the whole initial request, the API, and the executors."""
    if call.replay_key is None:
        return None
    digester = call.attempt.digester
    executors = [] if call.toolset is None else call.toolset.digest_entries()
    return Binding(
        turn_id=new_id(),
        replay_key=call.replay_key,
        api=f"{call.codec.provider}/{call.codec.api}",
        request_digest=digester.json(prepared.body),
        executors_digest=digester.json([list(entry) for entry in executors]),
    )


def _as_recorded(effect: NewEffect, call: Call) -> EffectRecord:
    """An effect begun a moment ago, in the form in which restored ones come."""
    return EffectRecord(
        effect.id,
        call.attempt.fence.attempt,
        effect.ordinal,
        effect.execution,
        effect.tool_namespace,
        effect.tool_name,
        effect.tool_version,
        effect.effect_class,
        "FRESH",
        effect.reason,
        effect.idempotency_key,
        effect.arguments_digest,
        None,
        None,
    )


def _short(text: str | None) -> str | None:
    """A provider's own name for a model or tier, as far as it can be stored."""
    return None if text is None else text.replace("\0", "")[:256]


def _live(verdict: Verdict, id: str, number: int, plan: Plan, started: Started) -> InvocationRecord:
    use = verdict.usage
    return InvocationRecord(
        id=id,
        round=number,
        restored=False,
        state=verdict.state,
        finish_reason=verdict.finish_reason,
        input_tokens=None if use is None else use.input_tokens,
        output_tokens=None if use is None else use.output_tokens,
        cost=None if use is None else use.cost,
        input_basis="none" if plan.input is None else plan.input.basis,
        alerts=started.alerts,
    )


def _restored(record: RoundRecord) -> InvocationRecord:
    return InvocationRecord(
        id=record.id,
        round=record.round,
        restored=True,
        state=record.state,
        finish_reason=record.finish_reason,
        input_tokens=record.input_tokens,
        output_tokens=record.output_tokens,
        cost=record.cost,
        input_basis=record.input_basis,
    )
