"""The blocking driver: carries out the steps of a turn on the caller's thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar, assert_never

from memoflow.ledger.transaction import Outcome
from memoflow.turn.crew import SyncCrew
from memoflow.turn.driving import Driving, Streaming, elapsed_ms
from memoflow.turn.ports import Answer, SyncEvents, SyncPort
from memoflow.turn.results import TurnResult
from memoflow.turn.steps import (
    Collect,
    Collected,
    Commit,
    Committed,
    Compute,
    Count,
    Dispatch,
    Dispatched,
    IdKept,
    Interrupted,
    Launch,
    Proceed,
    Read,
    Repeat,
    Step,
    Wire,
)
from memoflow.turn.supervise import Halted, not_counted, not_tried, supervised, supervised_events

__all__ = ["Driver"]

T = TypeVar("T")


class Driver(Driving[SyncPort, SyncCrew]):
    """Drives one turn. `events` yields what the provider streams; `result` is there when it has ended."""

    _left = False

    def run(self) -> TurnResult:
        """Drive the turn to its end and return its result."""
        for _ in self.events():
            pass
        assert self.result is not None
        return self.result

    def events(self) -> Generator[Any]:
        """Drive the turn; yields the events of streamed replies as they come."""
        while (step := self._advance()) is not None:
            try:
                if isinstance(step, Dispatch) and step.wire.streaming:
                    stream = _Stream(self, step)
                    # Not `yield from`: when the consumer leaves, what a delegate returns would be lost.
                    try:
                        for event in stream:  # noqa: UP028
                            yield event
                    except GeneratorExit as left:
                        if not self._left:
                            raise
                        stream.abandon(left)
                    answer: Any = stream.finish()
                elif isinstance(step, Repeat):
                    answer = None
                    try:
                        yield from self.port.repeat(step.reply)
                    except GeneratorExit as left:
                        if not self._left:
                            raise
                        self.abort(left)
                else:
                    answer = self._perform(step)
            except (Exception, KeyboardInterrupt) as error:
                self._fail(error)
            else:
                self._tell(step, answer)

    def leave(self) -> None:
        """The consumer of `events` is going to close it, and waits until its end is recorded.

        Without this it is the collector that closes it, on whatever thread and whatever that is doing: even
        on the one that would write the record. Then nothing is waited for; the end of the attempt finds it.
        """
        self._left = True

    def _perform(self, step: Step) -> Any:
        match step:
            case Proceed():
                return self.cancelled()
            case Read():
                return self._ledger.database.read(step.query)
            case Compute():
                return step.function()
            case Count():
                return self._count(step)
            case Commit():
                return self._commit(step)
            case Dispatch():
                return self._dispatch(step)
            case IdKept():
                return self._keeping is not None and self._outcome(self._keeping).error is None
            case Launch():
                self._crew = SyncCrew(step.executions, self._concurrency)
                return None
            case Collect():
                return self._collect()
            case Repeat():
                raise AssertionError("carried out by the generator")
            case _:
                assert_never(step)

    def _commit(self, step: Commit) -> Committed:
        futures = self._ledger.writer.submit(*step.operations)
        return Committed(tuple(self._outcome(future) for future in futures))

    def _outcome(self, future: Future[Any]) -> Outcome:
        """Wait for a record, whatever happens: what was done is written down before an interrupt leaves."""
        while True:
            try:
                error = future.exception()
                break
            except KeyboardInterrupt as interrupt:
                self.abort(interrupt)
        if error is None:
            return Outcome(future.result())
        if not isinstance(error, Exception):
            raise error
        return Outcome(error=error)

    def _collect(self) -> Collected:
        assert self._crew is not None
        if (dismissed := self._dismissed()) is not None:
            return dismissed
        finished, abort = self._crew.collect()
        return Collected(tuple(finished), abort)

    # The provider

    def _count(self, step: Count) -> int:
        self._check_cancelled()
        try:
            return self._limited(lambda: self.port.count(step.body), step.timeout)
        except Halted as halted:
            raise not_counted(halted, step.timeout) from None

    def _dispatch(self, step: Dispatch) -> Dispatched:
        if (abort := self.cancelled()) is not None:
            return not_tried(abort)
        started = time.monotonic_ns()
        return Dispatched(self._send(step.wire), elapsed_ms(started))

    def _send(self, wire: Wire) -> Answer:
        try:
            return self._limited(lambda: self.port.send(wire), wire.timeout)
        except Halted as halted:
            return halted.answer
        except KeyboardInterrupt as interrupt:
            return Interrupted("CANCELLED", interrupt, cancelled=True)

    def _limited(self, work: Callable[[], T], timeout: float | None) -> T:
        if timeout is None and self._signal is None:
            return work()
        return supervised(work, timeout, self._signal)

    def watch(self, events: SyncEvents, wire: Wire) -> Iterator[Any]:
        """The events of a stream, within its limits and as long as the cancel signal allows."""
        if self.unlimited(wire):
            return iter(events)
        return supervised_events(iter(events), wire.timeout, wire.idle_timeout, self._signal)

    def keep(self, step: Dispatch, response_id: str) -> None:
        """Keep the id of a reply that is being streamed; the stream does not wait for it."""
        (self._keeping,) = self._ledger.writer.submit(step.keep_id(response_id))


class _Stream(Streaming[SyncEvents]):
    """One streamed request: its events within their limits, then its answer."""

    def __init__(self, driver: Driver, step: Dispatch) -> None:
        super().__init__(driver, step, driver.port.stream(step.wire))
        self._iterator = driver.watch(self._events, step.wire)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._refused is not None:
            raise StopIteration
        self._driver.check_process()
        try:
            event = next(self._iterator)
        except Halted as halted:
            self._halted = halted.answer
        except KeyboardInterrupt as interrupt:
            self._stop(interrupt)
        else:
            if not self._kept:
                self._seen()
            return event
        raise StopIteration

    def finish(self) -> Dispatched:
        """Close what is open and say how it ended."""
        dispatched = self._ended()
        if self._halted is not None:
            self._events.close()
        return dispatched
