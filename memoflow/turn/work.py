"""The tool work of one call: restoring, beginning, running and recording what the model asks for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from typing import Any

from memoflow.ledger.effects import BeginEffects, EffectResult, FinishEffects, NewEffect
from memoflow.ledger.replay import EffectRecord
from memoflow.providers.base import AnsweredCall
from memoflow.turn.call import Call, ToolResult
from memoflow.turn.calls import PlannedCall, recall, settle
from memoflow.turn.records import FRESH
from memoflow.turn.steps import Collect, Collected, Commit, Committed, Finished, Launch, Step

__all__ = ["ToolWork"]

Answers = list[AnsweredCall]


class ToolWork:
    """What tools did so far, and what of it is not recorded yet.

    Attributes:
        results: every finished call, in order.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._pending: list[EffectResult] = []
        self.results: list[ToolResult] = []

    def answer(
        self, calls: list[PlannedCall], invocation_id: str, effects: tuple[EffectRecord, ...]
    ) -> Generator[Step, Any, Answers]:
        """Outputs for all calls of a reply, in order: restored, refused, or from running the tool."""
        done: dict[int, ToolResult] = {}
        todo: dict[str, PlannedCall] = {}
        again: list[NewEffect] = []
        recorded: dict[int, list[EffectRecord]] = defaultdict(list)
        for effect in effects:
            recorded[effect.ordinal].append(effect)
        for planned in calls:
            known = recorded[planned.request.ordinal]
            if known and known[-1].state == FRESH:
                todo[known[-1].id] = planned
                continue
            found = recall(self._call, planned, known) if known else None
            if isinstance(found, ToolResult):
                done[planned.request.ordinal] = found
            else:
                again.append(planned.effect(invocation_id, found))
                todo[again[-1].id] = planned
        if again:
            committed: Committed = yield Commit((BeginEffects(self._call.attempt.fence, tuple(again)),))
            committed.check()
        yield from self._run(todo, done)
        ordered = [done[planned.request.ordinal] for planned in calls]
        self.results.extend(ordered)
        return [
            AnsweredCall(planned.request, result.output, failed=result.state != "DONE")
            for planned, result in zip(calls, ordered, strict=True)
        ]

    def _run(self, todo: dict[str, PlannedCall], done: dict[int, ToolResult]) -> Generator[Step, Any, None]:
        """Run what may run. Each end is recorded before anything leaves; the last ones travel on."""
        running = {id: planned for id, planned in todo.items() if planned.refusal is None}
        for planned in todo.values():
            if planned.refusal is not None:
                done[planned.request.ordinal] = planned.result(
                    "REFUSED", planned.refusal.text, restored=False
                )
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
                self._take(running[finished.execution.effect_id], finished, done, failures)
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

    def flush(self) -> Generator[Step, Any, None]:
        """Record what is not recorded yet, in a commit of its own."""
        if operations := self.take_pending():
            committed: Committed = yield Commit(operations)
            committed.check()
