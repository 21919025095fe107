"""The blocking driver: carries out the steps of a turn on the caller's thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
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
    Proceed,
    Read,
    Repeat,
    Step,
    Wire,
)
from memoflow.turn.supervise import Halted, cut_short, not_tried, supervised, supervised_events

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
        resume: Callable[[Any], Step] = self._protocol.send
        told: Any = None
        while True:
            try:
                step = resume(told)
            except StopIteration as stop:
                self.result = stop.value
                break
            except Exception as error:
                if self._abort is None:
                    raise
                # Everything is recorded; what the caller asked for meanwhile goes first.
                raise self._abort from error
            faults.point(f"before:{type(step).__name__}")
            try:
                if isinstance(step, Dispatch) and step.wire.streaming:
                    stream = _Stream(self, step)
                    # Not `yield from`: when the consumer leaves, what a delegate returns would be lost.
                    try:
                        for event in stream:  # noqa: UP028
                            yield event
                    except GeneratorExit as left:
                        stream.abandon(left)
                    answer: Any = stream.finish()
                elif isinstance(step, Repeat):
                    answer = None
                    try:
                        yield self._port.repeat(step.reply)
                    except GeneratorExit as left:
                        self._abort = left
                else:
                    answer = self._perform(step)
            except (Exception, KeyboardInterrupt) as error:
                resume, told = self._protocol.throw, error
                continue
            faults.point(f"after:{type(step).__name__}")
            resume, told = self._protocol.send, answer
        if self._abort is not None:
            raise self._abort

    def _perform(self, step: Step) -> Any:
        match step:
            case Proceed():
                return self.cancelled()
            case Read():
                return self._ledger.database.read(step.query)
            case Compute():
                return step.function()
            case Count():
                return self._port.count(step.body)
            case Commit():
                return self._commit(step)
            case Dispatch():
                return self._dispatch(step)
            case Launch():
                return self._launch(step)
            case Collect():
                return self._collect()
            case Repeat():
                raise AssertionError("carried out by the generator")
            case _:
                assert_never(step)

    def cancelled(self) -> BaseException | None:
        """The cancellation that waits to be obeyed, if any; it is handed out once."""
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
            abort = self.cancelled()
            if dismissed := self._crew.dismiss():
                return Collected(tuple(dismissed), abort)
            self._abort = abort
        finished, abort = self._crew.collect()
        return Collected(tuple(finished), abort)

    # The provider

    def _dispatch(self, step: Dispatch) -> Dispatched:
        if (abort := self.cancelled()) is not None:
            return not_tried(abort)
        started = time.monotonic_ns()
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

    def watch(self, events: SyncEvents, wire: Wire) -> Iterator[Any]:
        """The events of a stream, within its limits and as long as the cancel signal allows."""
        if wire.timeout is None and wire.idle_timeout is None and self._signal is None:
            return iter(events)
        return supervised_events(iter(events), wire.timeout, wire.idle_timeout, self._signal)

    @property
    def port(self) -> SyncPort:
        """The provider."""
        return self._port

    def keep(self, step: Dispatch, response_id: str) -> None:
        """Keep the id of a reply that is being streamed; nobody waits for it."""
        self._ledger.writer.submit(step.keep_id(response_id))

    def abort(self, error: BaseException) -> None:
        """Remember a cancellation that is to leave once everything is recorded."""
        self._abort = error


class _Stream:
    """One streamed request: its events within their limits, then its answer."""

    def __init__(self, driver: Driver, step: Dispatch) -> None:
        self._driver = driver
        self._step = step
        self._started = time.monotonic_ns()
        self._halted: Interrupted | None = None
        self._kept = False
        self._refused = driver.cancelled()
        self._events = driver.port.stream(step.wire)
        self._iterator = driver.watch(self._events, step.wire)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._refused is not None:
            raise StopIteration
        try:
            event = next(self._iterator)
        except Halted as halted:
            self._halted = halted.answer
        except KeyboardInterrupt as interrupt:
            self._driver.abort(interrupt)
            self._halted = Interrupted("CANCELLED", interrupt, cancelled=True)
        else:
            if not self._kept and self._events.response_id is not None:
                self._kept = True
                self._driver.keep(self._step, self._events.response_id)
            return event
        raise StopIteration

    def abandon(self, left: BaseException) -> None:
        """The consumer went away. If the reply was complete by then, it is simply settled."""
        self._driver.abort(left)
        self._halted = Interrupted("ABANDONED", left, cancelled=True)

    def finish(self) -> Dispatched:
        """Close what is open and say how it ended."""
        if self._refused is not None:
            return not_tried(self._refused)
        elapsed = (time.monotonic_ns() - self._started) // 1_000_000
        if self._halted is None:
            return Dispatched(self._events.answer(), elapsed)
        answer = self._events.answer()
        self._events.close()
        return Dispatched(cut_short(answer, self._halted), elapsed)
