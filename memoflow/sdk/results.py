"""What a call gives its caller: a result, or a stream that has one at its end."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from memoflow.errors import ConfigurationError
from memoflow.turn import AsyncDriver, Driver, InvocationRecord, ToolResult, TurnResult

__all__ = ["AsyncCallStream", "CallResult", "CallStream"]

Response = TypeVar("Response")
Event = TypeVar("Event")


@dataclass(frozen=True, slots=True)
class CallResult(Generic[Response]):
    """How a call ended.

    Attributes:
        response: the last reply, as the SDK's own type; made afresh, whether live or restored.
        finish_reason: ``stop``, ``tool_calls``, ``length``, ``content_filter``, ``refusal``, …
        tool_results: every tool call, in order.
        invocations: every provider request, in order.
    """

    response: Response = field(repr=False)
    finish_reason: str
    tool_results: tuple[ToolResult, ...]
    invocations: tuple[InvocationRecord, ...]

    @property
    def restored(self) -> bool:
        """Whether everything came from the record and nothing was sent."""
        return all(invocation.restored for invocation in self.invocations)

    @classmethod
    def of(cls, result: TurnResult, response: Callable[[dict[str, Any]], Response]) -> Self:
        """The result of a turn, with the SDK's type."""
        reply = result.reply
        return cls(response(reply.body), reply.finish_reason, result.tool_results, result.invocations)


class _Reading:
    """Held while a stream gives its next event: one reader at a time, of whatever thread or task."""

    def __init__(self) -> None:
        lock = threading.Lock()
        self._acquire, self.leave = lock.acquire, lock.release

    def enter(self) -> None:
        """Begin to wait for an event; `leave` ends it.

        Raises:
            ConfigurationError: somebody else is waiting.
        """
        if not self._acquire(blocking=False):
            raise ConfigurationError(
                "Somebody else is waiting for the next event of this stream, and each event is given once. "
                "Read a stream from one thread or task, and hand its events on from there."
            )


class CallStream(Generic[Event, Response]):
    """The events of a streamed call. Use it in a ``with`` block; `result` is there when it has ended.

    Only one thread reads it at a time; for another one `ConfigurationError` is raised.
    """

    def __init__(self, driver: Driver, response: Callable[[dict[str, Any]], Response]) -> None:
        self._driver = driver
        self._response = response
        self._events = driver.events()
        self._reading = _Reading()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        self._reading.enter()
        try:
            event: Event = next(self._events)
            return event
        finally:
            self._reading.leave()

    def close(self) -> None:
        """Leave the stream and record how it ended."""
        self._reading.enter()
        try:
            self._driver.leave()
            self._events.close()
        finally:
            self._reading.leave()

    @property
    def result(self) -> CallResult[Response]:
        """How the call ended.

        Raises:
            ConfigurationError: it has not ended yet, or was left early.
        """
        return CallResult.of(_finished(self._driver.result), self._response)


class AsyncCallStream(Generic[Event, Response]):
    """The events of a streamed call. Use it in an ``async with`` block, and read it from one task."""

    def __init__(self, driver: AsyncDriver, response: Callable[[dict[str, Any]], Response]) -> None:
        self._driver = driver
        self._response = response
        self._events = driver.events()
        self._reading = _Reading()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        self._reading.enter()
        try:
            event: Event = await anext(self._events)
            return event
        finally:
            self._reading.leave()

    async def close(self) -> None:
        """Leave the stream and record how it ended."""
        self._reading.enter()
        try:
            await self._events.aclose()
        finally:
            self._reading.leave()

    @property
    def result(self) -> CallResult[Response]:
        """How the call ended; raises `ConfigurationError` before that."""
        return CallResult.of(_finished(self._driver.result), self._response)


def _finished(result: TurnResult | None) -> TurnResult:
    if result is None:
        raise ConfigurationError(
            "The stream has no result: it has not been read to its end. Iterate over all of its events first."
        )
    return result
