"""The tool work of one call: restoring, beginning, running and recording what the model asks for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

from memoflow.errors import ApprovalRequired
from memoflow.ledger.approvals import ContinueEffects, Resumption
from memoflow.ledger.effects import EffectResult, FinishEffects, NewEffect
from memoflow.ledger.replay import EffectRecord, pending_approvals
from memoflow.providers.base import AnsweredCall, Reply
from memoflow.turn.call import Call
from memoflow.turn.calls import PlannedCall, settle
from memoflow.turn.gate import Gate
from memoflow.turn.recalling import AWAITING, denial_text, recall
from memoflow.turn.records import FRESH
from memoflow.turn.results import ToolResult
from memoflow.turn.steps import Collect, Collected, Commit, Committed, Finished, Launch, Read, Step

__all__ = ["ToolWork"]

Answers = list[AnsweredCall]
Protocol = Generator[Step, Any, None]


class _Round:
    """The calls of one reply by what is left to do about them."""

    def __init__(self) -> None:
        self.done: dict[int, ToolResult] = {}
        self.running: dict[str, PlannedCall] = {}
        self.waiting: dict[int, str] = {}

    def sort(self, planned: PlannedCall, id: str, state: str, denied: str | None = None) -> None:
        """Take in a call whose execution was recorded a moment ago; ``denied``: why, if not by judges."""
        if planned.refusal is not None:
            refused = planned.result("REFUSED", planned.refusal.text, restored=False)
            self.done[planned.request.ordinal] = refused
        elif state == "DENIED":
            text = planned.denial if denied is None else denied
            self.done[planned.request.ordinal] = planned.result(state, text, restored=False)
        elif state == AWAITING:
            self.waiting[planned.request.ordinal] = id
        else:
            self.running[id] = planned


class ToolWork:
    """What tools did so far, and what of it is not recorded yet.

    Attributes:
        results: every finished call, in order.
    """

    def __init__(self, call: Call, gate: Gate) -> None:
        self._call = call
        self._gate = gate
        self._pending: list[EffectResult] = []
        self.results: list[ToolResult] = []

    def answer(
        self, reply: Reply, calls: list[PlannedCall], invocation_id: str, effects: tuple[EffectRecord, ...]
    ) -> Generator[Step, Any, Answers]:
        """Outputs for all calls of a reply, in order: restored, refused, denied, or from running the tool.

        Raises:
            ApprovalRequired: some wait for a person; all others have been run and recorded.
        """
        round, left = _Round(), []
        recorded: dict[int, list[EffectRecord]] = defaultdict(list)
        for effect in effects:
            recorded[effect.ordinal].append(effect)
        for planned in calls:
            known = recorded[planned.request.ordinal]
            if known and known[-1].state == FRESH:
                round.sort(planned, known[-1].id, planned.state)
                continue
            found = recall(self._call, planned, known) if known else None
            if isinstance(found, ToolResult):
                round.done[planned.request.ordinal] = found
            else:
                left.append((planned, found))
        yield from self._go_on(reply, invocation_id, left, round)
        yield from self._run(round)
        if round.waiting:
            yield from self._park([id for _, id in sorted(round.waiting.items())])
        ordered = [round.done[planned.request.ordinal] for planned in calls]
        self.results.extend(ordered)
        self._gate.answered(reply, ordered)
        return [
            AnsweredCall(planned.request, result.output, failed=result.state != "DONE")
            for planned, result in zip(calls, ordered, strict=True)
        ]

    def _go_on(
        self,
        reply: Reply,
        invocation_id: str,
        left: Sequence[tuple[PlannedCall, EffectRecord | None]],
        round: _Round,
    ) -> Protocol:
        """Begin what the record left unfinished, or find what it still waits for; in one commit."""
        if not left:
            return
        kept = [(planned, None if found is None else found.judgement) for planned, found in left]
        judged = yield from self._gate.judged(reply, invocation_id, kept)
        waited: list[tuple[PlannedCall, Resumption]] = []
        again: list[tuple[PlannedCall, NewEffect]] = []
        for planned, (_, found) in zip(judged, left, strict=True):
            if found is not None and found.state == AWAITING:
                waited.append((planned, _resumption(self._call, planned, found)))
            else:
                again.append((planned, planned.effect(self._call, invocation_id, found)))
        go_on = ContinueEffects(
            self._call.attempt.fence, tuple(one for _, one in waited), tuple(effect for _, effect in again)
        )
        committed: Committed = yield Commit((go_on,))
        ((resumed, begun),) = committed.check()
        for (planned, one), became in zip(waited, resumed, strict=True):
            text = denial_text(became.reason, one.judgement, became.told)
            round.sort(planned, one.id, became.state, text)
        for (planned, effect), state in zip(again, begun, strict=True):
            round.sort(planned, effect.id, state)

    def _park(self, waiting: Sequence[str]) -> Protocol:
        """Leave, with everything recorded, for somebody to decide about the calls that wait."""
        yield from self.flush()
        requests = yield Read(partial(pending_approvals, ids=tuple(waiting)))
        raise ApprovalRequired(requests=requests)

    def _run(self, round: _Round) -> Protocol:
        """Run what may run. Each end is recorded before anything leaves; the last ones travel on."""
        running = round.running
        if not running:
            return
        yield Launch(tuple(planned.execution(id, self._call) for id, planned in running.items()))
        left = len(running)
        failures: dict[int, BaseException] = {}
        abort: BaseException | None = None
        while left:
            collected: Collected = yield Collect()
            left -= len(collected.finished)
            abort = collected.abort or abort
            for finished in collected.finished:
                self._take(running[finished.execution.effect_id], finished, round.done, failures)
            if left or failures or abort is not None:
                yield from self.flush()
        if abort is not None:
            raise abort
        if failures:
            raise failures[min(failures)]

    def _take(
        self,
        planned: PlannedCall,
        finished: Finished,
        done: dict[int, ToolResult],
        failures: dict[int, BaseException],
    ) -> None:
        settled = settle(self._call, planned, finished)
        self._pending.append(settled.record)
        if settled.result is not None:
            done[planned.request.ordinal] = settled.result
        if settled.blocks:
            self._call.attempt.undecided.add(settled.record.id)
        if settled.raises is not None:
            failures[planned.request.ordinal] = settled.raises

    def take_pending(self) -> tuple[FinishEffects, ...]:
        """The operation that records what is not recorded yet, if anything is; the caller commits it."""
        pending, self._pending = tuple(self._pending), []
        return (FinishEffects(self._call.attempt.fence, pending),) if pending else ()

    def flush(self) -> Protocol:
        """Record what is not recorded yet, in a commit of its own."""
        if operations := self.take_pending():
            committed: Committed = yield Commit(operations)
            committed.check()


def _resumption(call: Call, planned: PlannedCall, found: EffectRecord) -> Resumption:
    text = None if planned.judgement is None else planned.judgement.text()
    refused = planned.state == "DENIED"
    return Resumption(found.id, planned.key, planned.digest, text, refused, call.attempt.bench.may_approve)
