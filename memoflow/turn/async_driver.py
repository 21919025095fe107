"""The async driver: carries out the steps of a turn without ever blocking the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from concurrent.futures import Future
from typing import Any, TypeVar, assert_never

from memoflow import faults
from memoflow.errors import CallCancelled
from memoflow.ledger.transaction import Outcome
from memoflow.turn.call import TurnResult
from memoflow.turn.crew import AsyncCrew
from memoflow.turn.ports import Answer, AsyncPort, Ledger
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
from memoflow.turn.supervise import Halted, cut_short, deadline_passed, not_tried, signalled

__all__ = ["AsyncDriver"]

T = TypeVar("T")


class AsyncDriver:
    """Drives one turn; the async twin of `Driver`, step for step."""

    def __init__(
        self,
        protocol: Generator[Step, Any, TurnResult],
        ledger: Ledger,
        port: AsyncPort,
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
        self._crew: AsyncCrew | None = None
        self.result: TurnResult | None = None

    async def run(self) -> TurnResult:
        """Drive the turn to its end and return its result."""
        async for _ in self.events():
            pass
        assert self.result is not None
        return self.result

    async def events(self) -> AsyncIterator[Any]:
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
                    try:
                        async for event in stream:
                            yield event
                    except GeneratorExit as left:
                        stream.abandon(left)
                    answer: Any = await stream.finish()
                elif isinstance(step, Repeat):
                    answer = None
                    try:
                        yield self._port.repeat(step.reply)
                    except GeneratorExit as left:
                        self._abort = left
                else:
                    answer = await self._perform(step)
            except (Exception, asyncio.CancelledError) as error:
                resume, told = self._protocol.throw, error
                continue
            faults.point(f"after:{type(step).__name__}")
            resume, told = self._protocol.send, answer
        if self._abort is not None:
            raise self._abort

    async def _perform(self, step: Step) -> Any:
        match step:
            case Proceed():
                return self.cancelled()
            case Read():
                return await asyncio.to_thread(self._ledger.database.read, step.query)
            case Compute():
                return await asyncio.to_thread(step.function)
            case Count():
                return await self._port.count(step.body)
            case Commit():
                return await self._commit(step)
            case Dispatch():
                return await self._dispatch(step)
            case Launch():
                return self._launch(step)
            case Collect():
                return await self._collect()
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

    async def _commit(self, step: Commit) -> Committed:
        futures = self._ledger.writer.submit(*step.operations, wait=False)
        while futures is None:
            # The queue is full: wait for room on a thread, so that the event loop does not.
            futures = await self._shielded(asyncio.to_thread(self._ledger.writer.submit, *step.operations))
        return Committed(tuple([await self._outcome(future) for future in futures]))

    async def _outcome(self, future: Future[Any]) -> Outcome:
        """Wait for a record, whatever happens: what was done is written down before a cancellation leaves."""
        try:
            return Outcome(await self._shielded(asyncio.wrap_future(future)))
        except Exception as error:
            return Outcome(error=error)

    async def _shielded(self, work: Awaitable[T]) -> T:
        task = asyncio.ensure_future(work)
        while True:
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError as cancelled:
                if task.cancelled():
                    raise
                self._abort = cancelled

    def _launch(self, step: Launch) -> None:
        self._crew = AsyncCrew(step.executions, self._concurrency)

    async def _collect(self) -> Collected:
        assert self._crew is not None
        if self._abort is not None or (self._signal is not None and self._signal.cancelled):
            abort = self.cancelled()
            if dismissed := self._crew.dismiss():
                return Collected(tuple(dismissed), abort)
            self._abort = abort
        finished, abort = await self._crew.collect()
        return Collected(tuple(finished), abort)

    # The provider

    async def _dispatch(self, step: Dispatch) -> Dispatched:
        if (abort := self.cancelled()) is not None:
            return not_tried(abort)
        started = time.monotonic_ns()
        answer = await self._send(step.wire)
        return Dispatched(answer, (time.monotonic_ns() - started) // 1_000_000)

    async def _send(self, wire: Wire) -> Answer:
        try:
            return await self.limited(self._port.send(wire), wire.timeout)
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

    @property
    def port(self) -> AsyncPort:
        """The provider."""
        return self._port

    def keep(self, step: Dispatch, response_id: str) -> None:
        """Keep the id of a reply that is being streamed; nobody waits for it."""
        operation, submit = step.keep_id(response_id), self._ledger.writer.submit
        if submit(operation, wait=False) is None:
            # The queue is full: a thread waits for room, so that the event loop does not.
            asyncio.get_running_loop().run_in_executor(None, submit, operation)

    def abort(self, error: BaseException) -> None:
        """Remember a cancellation that is to leave once everything is recorded."""
        self._abort = error


def _hastening(limit: asyncio.Timeout) -> Any:
    loop = asyncio.get_running_loop()

    def hasten() -> None:
        try:
            limit.reschedule(loop.time())
        except RuntimeError:
            return  # The work has ended meanwhile.

    return lambda: loop.call_soon_threadsafe(hasten)


class _Stream:
    """One streamed request: its events within their limits, then its answer."""

    def __init__(self, driver: AsyncDriver, step: Dispatch) -> None:
        self._driver = driver
        self._step = step
        self._started = time.monotonic_ns()
        self._ends = None if step.wire.timeout is None else time.monotonic() + step.wire.timeout
        self._halted: Interrupted | None = None
        self._kept = False
        self._refused = driver.cancelled()
        self._events = driver.port.stream(step.wire)
        self._iterator = aiter(self._events)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        if self._refused is not None:
            raise StopAsyncIteration
        try:
            event = await self._next()
        except Halted as halted:
            self._halted = halted.answer
        except asyncio.CancelledError as cancelled:
            self._driver.abort(cancelled)
            self._halted = Interrupted("CANCELLED", cancelled, cancelled=True)
        else:
            if not self._kept and self._events.response_id is not None:
                self._kept = True
                self._driver.keep(self._step, self._events.response_id)
            return event
        raise StopAsyncIteration

    async def _next(self) -> Any:
        idle = self._step.wire.idle_timeout
        left = None if self._ends is None else max(0.0, self._ends - time.monotonic())
        if left is None or (idle is not None and idle < left):
            return await self._driver.limited(anext(self._iterator), idle, "IDLE_TIMEOUT")
        return await self._driver.limited(anext(self._iterator), left)

    def abandon(self, left: BaseException) -> None:
        """The consumer went away. If the reply was complete by then, it is simply settled."""
        self._driver.abort(left)
        self._halted = Interrupted("ABANDONED", left, cancelled=True)

    async def finish(self) -> Dispatched:
        """Close what is open and say how it ended."""
        if self._refused is not None:
            return not_tried(self._refused)
        elapsed = (time.monotonic_ns() - self._started) // 1_000_000
        if self._halted is None:
            return Dispatched(self._events.answer(), elapsed)
        answer = self._events.answer()
        await self._driver._shielded(self._events.close())
        return Dispatched(cut_short(answer, self._halted), elapsed)
