"""`OpenAIResponses` and `AsyncOpenAIResponses`: budgeted, durable calls of the Responses API."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self, Unpack

import openai
from openai.types.responses import Response, ResponseStreamEvent

from memoflow.budget import Budget
from memoflow.context import current
from memoflow.errors import ConfigurationError
from memoflow.openai._options import CallOptions, make_call
from memoflow.openai._ports import AsyncResponsesPort, ResponsesPort
from memoflow.providers.openai_responses import OpenAIResponsesCodec
from memoflow.tools import Tool
from memoflow.turn import AsyncDriver, Driver, InvocationRecord, ToolResult, TurnResult, turn

__all__ = [
    "AsyncOpenAIResponses",
    "AsyncResponseStream",
    "OpenAIResponses",
    "ResponseStream",
    "ResponsesResult",
]

MAX_REPLY_BYTES: Final = 64 * 1024 * 1024
AnyTool = Tool[..., Any]


@dataclass(frozen=True, slots=True)
class ResponsesResult:
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
    def of(cls, result: TurnResult) -> Self:
        """The result of a turn, with the SDK's types."""
        response = Response.construct(**result.reply.body)
        return cls(response, result.reply.finish_reason, result.tool_results, result.invocations)


class OpenAIResponses:
    """The Responses API over an official client, inside activities.

    Args:
        client: the caller's client. It is never changed; its retries are off for these calls.
        max_reply_bytes: largest reply that is read; above it the outcome is unknown.
    """

    def __init__(self, client: openai.OpenAI, *, max_reply_bytes: int = MAX_REPLY_BYTES) -> None:
        if not isinstance(client, openai.OpenAI):
            raise ConfigurationError(
                f"OpenAIResponses takes an openai.OpenAI client, not {type(client).__name__}. "
                "For openai.AsyncOpenAI use AsyncOpenAIResponses."
            )
        self._codec = OpenAIResponsesCodec(max_reply_bytes=max_reply_bytes)
        self._port = ResponsesPort(client, self._codec, max_reply_bytes)

    def run(self, request: Mapping[str, Any], **options: Unpack[CallOptions]) -> ResponsesResult:
        """Send one request and return its reply. Tool calls in it are left to the caller.

        Args:
            request: what would be given to ``client.responses.create``, as a mapping.
            options: see `CallOptions`.

        Raises:
            MemoflowError: see `memoflow.errors`.
        """
        driver = self._driver("OpenAIResponses.run", request, options, None, None, streaming=False)
        return ResponsesResult.of(driver.run())

    def run_with_tools(
        self,
        request: Mapping[str, Any],
        tools: Iterable[AnyTool],
        *,
        continuation_budgets: Sequence[Budget] | None = None,
        **options: Unpack[CallOptions],
    ) -> ResponsesResult:
        """Send a request, run the tools the model calls, and carry on until it stops asking.

        Args:
            request: the request. Without ``tools`` of its own it is given the schemas of ``tools``.
            tools: the executors.
            continuation_budgets: one reservation for each further round, 31 at most. Without them the tools
                of the first reply run, and their results are returned instead of being sent back.
            options: see `CallOptions`; ``replay_key`` and ``budget`` are needed.

        Raises:
            ToolRoundLimit: the model still asks when all rounds are used.
            MemoflowError: see `memoflow.errors`. Whatever a tool raised.
        """
        driver = self._driver(
            "OpenAIResponses.run_with_tools", request, options, tools, continuation_budgets, streaming=False
        )
        return ResponsesResult.of(driver.run())

    def stream(
        self,
        request: Mapping[str, Any],
        tools: Iterable[AnyTool] | None = None,
        *,
        continuation_budgets: Sequence[Budget] | None = None,
        **options: Unpack[CallOptions],
    ) -> ResponseStream:
        """The same, streamed: a context manager over the SDK's own events, as they come.

        A round that is restored from the record has one event, its terminal one. Leaving a stream early
        keeps the budget held, since the provider may go on and bill.
        """
        return ResponseStream(
            self._driver(
                "OpenAIResponses.stream", request, options, tools, continuation_budgets, streaming=True
            )
        )

    @property
    def codec(self) -> OpenAIResponsesCodec:
        """Reads this API's replies, up to this adapter's size; for ``rt.reconcile.auto``."""
        return self._codec

    def retrieve(self, response_id: str) -> bytes | None:
        """A stored response as JSON, or None if there is none; what ``rt.reconcile.auto`` asks."""
        return self._port.retrieve(response_id)

    def _driver(
        self,
        what: str,
        request: Mapping[str, Any],
        options: CallOptions,
        tools: Iterable[AnyTool] | None,
        continuation: Sequence[Budget] | None,
        *,
        streaming: bool,
    ) -> Driver:
        attempt = current(what)
        call = make_call(
            attempt,
            self._codec,
            request,
            options,
            tools=tools,
            continuation=continuation,
            streaming=streaming,
        )
        return Driver(
            turn(call),
            attempt.host.ledger,
            self._port,
            signal=options.get("signal"),
            concurrency=options.get("tool_concurrency", 8),
        )


class _Reading:
    """Held while a stream gives its next event: one reader at a time, of whatever thread or task."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise ConfigurationError(
                "Somebody else is waiting for the next event of this stream, and each event is given once. "
                "Read a stream from one thread or task, and hand its events on from there."
            )

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class ResponseStream:
    """The events of a streamed call. Use it in a ``with`` block; `result` is there when it has ended.

    Only one thread reads it at a time; for another one `ConfigurationError` is raised.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._events = driver.events()
        self._reading = _Reading()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[ResponseStreamEvent]:
        return self

    def __next__(self) -> ResponseStreamEvent:
        with self._reading:
            event: ResponseStreamEvent = next(self._events)
            return event

    def close(self) -> None:
        """Leave the stream and record how it ended."""
        with self._reading:
            self._driver.leave()
            self._events.close()

    @property
    def result(self) -> ResponsesResult:
        """How the call ended.

        Raises:
            ConfigurationError: it has not ended yet, or was left early.
        """
        return _finished(self._driver.result)


def _finished(result: TurnResult | None) -> ResponsesResult:
    if result is None:
        raise ConfigurationError(
            "The stream has no result: it has not been read to its end. Iterate over all of its events first."
        )
    return ResponsesResult.of(result)


class AsyncOpenAIResponses:
    """The Responses API over an official async client; the twin of `OpenAIResponses`.

    Args:
        client: the caller's client. It is never changed; its retries are off for these calls.
        max_reply_bytes: largest reply that is read; above it the outcome is unknown.
    """

    def __init__(self, client: openai.AsyncOpenAI, *, max_reply_bytes: int = MAX_REPLY_BYTES) -> None:
        if not isinstance(client, openai.AsyncOpenAI):
            raise ConfigurationError(
                f"AsyncOpenAIResponses takes an openai.AsyncOpenAI client, not {type(client).__name__}. "
                "For openai.OpenAI use OpenAIResponses."
            )
        self._codec = OpenAIResponsesCodec(max_reply_bytes=max_reply_bytes)
        self._port = AsyncResponsesPort(client, self._codec, max_reply_bytes)

    async def run(self, request: Mapping[str, Any], **options: Unpack[CallOptions]) -> ResponsesResult:
        """See `OpenAIResponses.run`."""
        driver = self._driver("AsyncOpenAIResponses.run", request, options, None, None, streaming=False)
        return ResponsesResult.of(await driver.run())

    async def run_with_tools(
        self,
        request: Mapping[str, Any],
        tools: Iterable[AnyTool],
        *,
        continuation_budgets: Sequence[Budget] | None = None,
        **options: Unpack[CallOptions],
    ) -> ResponsesResult:
        """See `OpenAIResponses.run_with_tools`."""
        driver = self._driver(
            "AsyncOpenAIResponses.run_with_tools",
            request,
            options,
            tools,
            continuation_budgets,
            streaming=False,
        )
        return ResponsesResult.of(await driver.run())

    def stream(
        self,
        request: Mapping[str, Any],
        tools: Iterable[AnyTool] | None = None,
        *,
        continuation_budgets: Sequence[Budget] | None = None,
        **options: Unpack[CallOptions],
    ) -> AsyncResponseStream:
        """See `OpenAIResponses.stream`; an async context manager."""
        return AsyncResponseStream(
            self._driver(
                "AsyncOpenAIResponses.stream", request, options, tools, continuation_budgets, streaming=True
            )
        )

    @property
    def codec(self) -> OpenAIResponsesCodec:
        """Reads this API's replies, up to this adapter's size; for ``rt.reconcile.aauto``."""
        return self._codec

    async def retrieve(self, response_id: str) -> bytes | None:
        """A stored response as JSON, or None if there is none; what ``rt.reconcile.aauto`` asks."""
        return await self._port.retrieve(response_id)

    def _driver(
        self,
        what: str,
        request: Mapping[str, Any],
        options: CallOptions,
        tools: Iterable[AnyTool] | None,
        continuation: Sequence[Budget] | None,
        *,
        streaming: bool,
    ) -> AsyncDriver:
        attempt = current(what)
        call = make_call(
            attempt,
            self._codec,
            request,
            options,
            tools=tools,
            continuation=continuation,
            streaming=streaming,
        )
        return AsyncDriver(
            turn(call),
            attempt.host.ledger,
            self._port,
            signal=options.get("signal"),
            concurrency=options.get("tool_concurrency", 8),
        )


class AsyncResponseStream:
    """The events of a streamed call. Use it in an ``async with`` block, and read it from one task."""

    def __init__(self, driver: AsyncDriver) -> None:
        self._driver = driver
        self._events = driver.events()
        self._reading = _Reading()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[ResponseStreamEvent]:
        return self

    async def __anext__(self) -> ResponseStreamEvent:
        with self._reading:
            event: ResponseStreamEvent = await anext(self._events)
            return event

    async def close(self) -> None:
        """Leave the stream and record how it ended."""
        with self._reading:
            await self._events.aclose()

    @property
    def result(self) -> ResponsesResult:
        """How the call ended; raises `ConfigurationError` before that."""
        return _finished(self._driver.result)
