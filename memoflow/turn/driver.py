"""The blocking driver: carries out the steps of a turn on the caller's thread."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from typing import Any, assert_never

from memoflow import faults
from memoflow.errors import CallCancelled
from memoflow.ledger.transaction import Outcome
from memoflow.turn.call import TurnResult
from memoflow.turn.crew import SyncCrew
from memoflow.turn.ports import Answer, Ledger, SyncEvents, SyncPort
from memoflow.turn.signal import CancelSignal
from memoflow.turn.steps import (
    Collect,
    Collected,
    Commit,
    Committed,
    Compute,
    Count,
    Dispatch,
    Dispatched,
    Interrupted,
    Launch,
    NotSent,
    Proceed,
    Read,
    Step,
    Wire,
)
from memoflow.turn.supervise import Halted, cut_short, supervised, supervised_events

__all__ = ["Driver"]


class Driver:
    """Drives one turn. `events` yields what the provider streams; `result` is there when it has ended.

    Args:
        protocol: the turn.
        ledger: where operations are committed and read.
        port: the provider.
        signal: ends the call when it is set.
        concurrency: tools that may run side by side.
    """

    def __init__(
        self,
        protocol: Generator[Step, Any, TurnResult],
        ledger: Ledger,
        port: SyncPort,
        *,
        signal: CancelSignal | None = None,
        concurrency: int = 8,
    ) -> None:
        self._protocol = protocol
        self._ledger = ledger
        self._port = port
        self._signal = signal
        self._concurrency = concurrency
        self._abort: BaseException | None = None
        self._crew: SyncCrew | None = None
        self.result: TurnResult | None = None

    def run(self) -> TurnResult:
        """Drive the turn to its end and return its result."""
        for _ in self.events():
            pass
        assert self.result is not None
        return self.result

    def events(self) -> Iterator[Any]:
        """Drive the turn; yields the events of streamed replies as they come."""
        advance: Any = lambda: next(self._protocol)  # noqa: E731
        while True:
            try:
                step: Step = advance()
            except StopIteration as stop:
                self.result = stop.value
                break
            faults.point(f"before:{type(step).__name__}")
            try:
                if isinstance(step, Dispatch):
                    answer = yield from self._dispatch(step)
                else:
                    answer = self._perform(step)
            except Exception as error:
                failure = error
                advance = lambda: self._protocol.throw(failure)  # noqa: B023, E731
                continue
            faults.point(f"after:{type(step).__name__}")
            advance = lambda: self._protocol.send(answer)  # noqa: B023, E731
        if self._abort is not None:
            raise self._abort

    def _perform(self, step: Step) -> Any:
        match step:
            case Proceed():
                return self._cancelled()
            case Read():
                return self._ledger.database.read(step.query)
            case Compute():
                return step.function()
            case Count():
                return self._port.count(step.body)
            case Commit():
                return self._commit(step)
            case Launch():
                return self._launch(step)
            case Collect():
                return self._collect()
            case Dispatch():
                raise AssertionError("carried out by _dispatch")
            case _:
                assert_never(step)

    def _cancelled(self) -> BaseException | None:
        if self._abort is None and self._signal is not None and self._signal.cancelled:
            return CallCancelled(invocation_id=None, dispatched=False)
        abort, self._abort = self._abort, None
        return abort

    def _commit(self, step: Commit) -> Committed:
        futures = self._ledger.writer.submit(*step.operations)
        assert futures is not None
        return Committed(tuple(self._outcome(future) for future in futures))

    def _outcome(self, future: Future[Any]) -> Outcome:
        """Wait for a record, whatever happens: what was done is written down before an interrupt leaves."""
        while True:
            try:
                error = future.exception()
                break
            except KeyboardInterrupt as interrupt:
                self._abort = interrupt
        if error is None:
            return Outcome(future.result())
        if not isinstance(error, Exception):
            raise error
        return Outcome(error=error)

    def _launch(self, step: Launch) -> None:
        self._crew = SyncCrew(step.executions, self._concurrency)

    def _collect(self) -> Collected:
        assert self._crew is not None
        if self._abort is not None or (self._signal is not None and self._signal.cancelled):
            abort = self._cancelled()
            if dismissed := self._crew.dismiss():
                return Collected(tuple(dismissed), abort)
            self._abort = abort
        finished, abort = self._crew.collect()
        return Collected(tuple(finished), abort)

    # The provider

    def _dispatch(self, step: Dispatch) -> Generator[Any, None, Dispatched]:
        if (abort := self._cancelled()) is not None:
            return Dispatched(NotSent("cancelled", abort, entered=False), 0)
        started = time.monotonic_ns()
        if step.wire.streaming:
            answer = yield from self._stream(step)
        else:
            answer = self._send(step.wire)
        return Dispatched(answer, (time.monotonic_ns() - started) // 1_000_000)

    def _send(self, wire: Wire) -> Answer:
        try:
            if wire.timeout is None and self._signal is None:
                return self._port.send(wire)
            return supervised(lambda: self._port.send(wire), wire.timeout, self._signal)
        except Halted as halted:
            return halted.answer
        except KeyboardInterrupt as interrupt:
            return Interrupted("CANCELLED", interrupt, cancelled=True)

    def _stream(self, step: Dispatch) -> Generator[Any, None, Answer]:
        events = self._port.stream(step.wire)
        halted: Interrupted | None = None
        kept = False
        try:
            for event in self._watched(events, step.wire):
                if not kept and events.response_id is not None:
                    kept = True
                    self._ledger.writer.submit(step.keep_id(events.response_id))
                yield event
        except Halted as halt:
            halted = halt.answer
        except (GeneratorExit, KeyboardInterrupt) as left:
            # The consumer went away. If the reply was complete by then, it is simply settled.
            self._abort = left
            halted = Interrupted("ABANDONED", left, cancelled=True)
        if halted is None:
            return events.answer()
        events.close()
        return cut_short(events.answer(), halted)

    def _watched(self, events: SyncEvents, wire: Wire) -> Iterator[Any]:
        if wire.timeout is None and wire.idle_timeout is None and self._signal is None:
            return iter(events)
        return supervised_events(iter(events), wire.timeout, wire.idle_timeout, self._signal)
