"""The async driver: carries out the steps of a turn without ever blocking the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from typing import Any, TypeVar, assert_never

from memoflow.ledger.transaction import Outcome
from memoflow.turn.crew import AsyncCrew
from memoflow.turn.driving import Driving, Streaming, elapsed_ms
from memoflow.turn.ports import Answer, AsyncEvents, AsyncPort
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
from memoflow.turn.supervise import Halted, deadline_passed, not_counted, not_tried, signalled

__all__ = ["AsyncDriver"]

T = TypeVar("T")


class AsyncDriver(Driving[AsyncPort, AsyncCrew]):
    """Drives one turn; the async twin of `Driver`, step for step."""

    async def run(self) -> TurnResult:
        """Drive the turn to its end and return its result."""
        async for _ in self.events():
            pass
        assert self.result is not None
        return self.result

    async def events(self) -> AsyncGenerator[Any]:
        """Drive the turn; yields the events of streamed replies as they come."""
        while (step := self._advance()) is not None:
            try:
                if isinstance(step, Dispatch) and step.wire.streaming:
                    stream = _Stream(self, step)
                    try:
                        async for event in stream:
                            yield event
                    except GeneratorExit as left:
                        stream.abandon(left)
                    answer: Any = await stream.finish()
                elif isinstance(step, Repeat):
                    answer = None
                    try:
                        for event in self.port.repeat(step.reply):
                            yield event
                    except GeneratorExit as left:
                        self.abort(left)
                else:
                    answer = await self._perform(step)
            except (Exception, asyncio.CancelledError) as error:
                self._fail(error)
            else:
                self._tell(step, answer)

    async def _perform(self, step: Step) -> Any:
        match step:
            case Proceed():
                return self.cancelled()
            case Read():
                return await asyncio.to_thread(self._ledger.database.read, step.query)
            case Compute():
                return await asyncio.to_thread(step.function)
            case Count():
                return await self._count(step)
            case Commit():
                return await self._commit(step)
            case Dispatch():
                return await self._dispatch(step)
            case IdKept():
                return self._keeping is not None and (await self._outcome(self._keeping)).error is None
            case Launch():
                self._crew = AsyncCrew(step.executions, self._concurrency)
                return None
            case Collect():
                return await self._collect()
            case Repeat():
                raise AssertionError("carried out by the generator")
            case _:
                assert_never(step)

    async def _commit(self, step: Commit) -> Committed:
        futures = self._ledger.writer.asubmit(*step.operations)
        return Committed(tuple([await self._outcome(future) for future in futures]))

    async def _outcome(self, future: asyncio.Future[Any]) -> Outcome:
        """Wait for a record, whatever happens: what was done is written down before a cancellation leaves."""
        try:
            return Outcome(await self.shielded(future))
        except Exception as error:
            return Outcome(error=error)

    async def shielded(self, work: Awaitable[T]) -> T:
        """Wait for work to end, whatever happens; a cancellation is remembered."""
        task = asyncio.ensure_future(work)
        while True:
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError as cancelled:
                if task.cancelled():
                    raise
                self.abort(cancelled)

    async def _collect(self) -> Collected:
        assert self._crew is not None
        if (dismissed := self._dismissed()) is not None:
            return dismissed
        finished, abort = await self._crew.collect()
        return Collected(tuple(finished), abort)

    # The provider

    async def _count(self, step: Count) -> int:
        self._check_cancelled()
        try:
            return await self.limited(self.port.count(step.body), step.timeout)
        except Halted as halted:
            raise not_counted(halted, step.timeout) from None

    async def _dispatch(self, step: Dispatch) -> Dispatched:
        if (abort := self.cancelled()) is not None:
            return not_tried(abort)
        started = time.monotonic_ns()
        return Dispatched(await self._send(step.wire), elapsed_ms(started))

    async def _send(self, wire: Wire) -> Answer:
        try:
            return await self.limited(self.port.send(wire), wire.timeout)
        except Halted as halted:
            return halted.answer
        except asyncio.CancelledError as cancelled:
            return Interrupted("CANCELLED", cancelled, cancelled=True)

    async def limited(self, work: Awaitable[T], seconds: float | None, reason: str = "DEADLINE") -> T:
        """Await provider I/O no longer than a number of seconds or the cancel signal allows.

        Raises:
            Halted: the limit was reached or the signal came.
        """
        if seconds is None and self._signal is None:
            return await work
        limit = asyncio.timeout(seconds)
        unsubscribe = None
        try:
            async with limit:
                if self._signal is not None:
                    unsubscribe = self._signal.subscribe(_hastening(limit))
                return await work
        except TimeoutError:
            if self._signal is not None and self._signal.cancelled:
                raise Halted(signalled()) from None
            raise Halted(deadline_passed(reason)) from None
        finally:
            if unsubscribe is not None:
                unsubscribe()

    def keep(self, step: Dispatch, response_id: str) -> None:
        """Keep the id of a reply that is being streamed; the stream does not wait for it."""
        (self._keeping,) = self._ledger.writer.asubmit(step.keep_id(response_id))
        self._keeping.add_done_callback(asyncio.Future.exception)


def _hastening(limit: asyncio.Timeout) -> Any:
    loop = asyncio.get_running_loop()

    def hasten() -> None:
        try:
            limit.reschedule(loop.time())
        except RuntimeError:
            return  # The work has ended meanwhile.

    return lambda: loop.call_soon_threadsafe(hasten)


class _Stream(Streaming[AsyncEvents]):
    """One streamed request: its events within their limits, then its answer."""

    def __init__(self, driver: AsyncDriver, step: Dispatch) -> None:
        super().__init__(driver, step, driver.port.stream(step.wire))
        self._async = driver
        self._ends = None if step.wire.timeout is None else time.monotonic() + step.wire.timeout
        self._iterator = aiter(self._events)
        self._unlimited = driver.unlimited(step.wire)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        if self._refused is not None:
            raise StopAsyncIteration
        self._driver.check_process()
        try:
            event = await (anext(self._iterator) if self._unlimited else self._next())
        except Halted as halted:
            self._halted = halted.answer
        except asyncio.CancelledError as cancelled:
            self._stop(cancelled)
        else:
            if not self._kept:
                self._seen()
            return event
        raise StopAsyncIteration

    async def _next(self) -> Any:
        idle = self._step.wire.idle_timeout
        left = None if self._ends is None else max(0.0, self._ends - time.monotonic())
        if left is None or (idle is not None and idle < left):
            return await self._async.limited(anext(self._iterator), idle, "IDLE_TIMEOUT")
        return await self._async.limited(anext(self._iterator), left)

    async def finish(self) -> Dispatched:
        """Close what is open and say how it ended."""
        dispatched = self._ended()
        if self._halted is not None:
            await self._async.shielded(self._events.close())
        return dispatched
