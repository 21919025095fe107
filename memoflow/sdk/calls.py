"""The calls that every adapter has: `run`, `run_with_tools` and `stream`, blocking and async."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar, Unpack

from memoflow.budget import Budget
from memoflow.context import current
from memoflow.providers.base import Codec
from memoflow.sdk.api import Api
from memoflow.sdk.options import CallOptions, make_call
from memoflow.sdk.ports import AsyncSdkPort, SdkPort
from memoflow.sdk.results import AsyncCallStream, CallResult, CallStream
from memoflow.tools import Tool
from memoflow.turn import AsyncDriver, Driver, turn

__all__ = ["AsyncCalls", "AsyncPlainCalls", "Calls", "PlainCalls"]

AnyTool = Tool[..., Any]
C = TypeVar("C", bound=Codec)
Response = TypeVar("Response")
Event = TypeVar("Event")
D = TypeVar("D", bound=Driver | AsyncDriver)


class _Adapter(Generic[C, Response, D]):
    """What both twins hold, and how a call of either begins."""

    def __init__(self, api: Api[Response], codec: C, port: Any, driver: Callable[..., D]) -> None:
        self._api = api
        self._codec = codec
        self._port = port
        self._make_driver = driver

    @property
    def codec(self) -> C:
        """Reads this API's replies, up to this adapter's size; for ``rt.reconcile``."""
        return self._codec

    def _driver(
        self,
        what: str,
        request: Mapping[str, Any],
        options: CallOptions,
        tools: Iterable[AnyTool] | None = None,
        continuation: Sequence[Budget] | None = None,
    ) -> D:
        attempt = current(f"{type(self).__name__}.{what}")
        call = make_call(
            attempt,
            self._codec,
            request,
            options,
            tools=tools,
            continuation=continuation,
            streaming=what == "stream",
        )
        return self._make_driver(
            turn(call),
            attempt.host.ledger,
            self._port,
            signal=options.get("signal"),
            concurrency=options.get("tool_concurrency", 8),
        )


class PlainCalls(_Adapter[C, Response, Driver], Generic[C, Response]):
    """Calls without tools over a blocking client, inside activities."""

    def __init__(self, api: Api[Response], client: Any, codec: C, max_reply_bytes: int) -> None:
        super().__init__(api, codec, SdkPort(api, client, codec, max_reply_bytes), Driver)

    def run(self, request: Mapping[str, Any], **options: Unpack[CallOptions]) -> CallResult[Response]:
        """Send one request and return its reply. Tool calls in it are left to the caller.

        Args:
            request: what would be given to the SDK's ``create``, as a mapping.
            options: see `CallOptions`.

        Raises:
            MemoflowError: see `memoflow.errors`.
        """
        return self._result(self._driver("run", request, options))

    def _result(self, driver: Driver) -> CallResult[Response]:
        return CallResult.of(driver.run(), self._api.response)


class Calls(PlainCalls[C, Response], Generic[C, Event, Response]):
    """Calls over a blocking client, inside activities: plain, with tools, and streamed."""

    def run_with_tools(
        self,
        request: Mapping[str, Any],
        tools: Iterable[AnyTool],
        *,
        continuation_budgets: Sequence[Budget] | None = None,
        **options: Unpack[CallOptions],
    ) -> CallResult[Response]:
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
        return self._result(self._driver("run_with_tools", request, options, tools, continuation_budgets))

    def stream(
        self,
        request: Mapping[str, Any],
        tools: Iterable[AnyTool] | None = None,
        *,
        continuation_budgets: Sequence[Budget] | None = None,
        **options: Unpack[CallOptions],
    ) -> CallStream[Event, Response]:
        """The same, streamed: a context manager over the SDK's own events, as they come.

        A round that is restored from the record has only the few events that make its reply. Leaving a
        stream early keeps the budget held, since the provider may go on and bill.
        """
        driver = self._driver("stream", request, options, tools, continuation_budgets)
        return CallStream(driver, self._api.response)


class AsyncPlainCalls(_Adapter[C, Response, AsyncDriver], Generic[C, Response]):
    """The twin of `PlainCalls` over an async client."""

    def __init__(self, api: Api[Response], client: Any, codec: C, max_reply_bytes: int) -> None:
        super().__init__(api, codec, AsyncSdkPort(api, client, codec, max_reply_bytes), AsyncDriver)

    async def run(self, request: Mapping[str, Any], **options: Unpack[CallOptions]) -> CallResult[Response]:
        """See `PlainCalls.run`."""
        return await self._result(self._driver("run", request, options))

    async def _result(self, driver: AsyncDriver) -> CallResult[Response]:
        return CallResult.of(await driver.run(), self._api.response)


class AsyncCalls(AsyncPlainCalls[C, Response], Generic[C, Event, Response]):
    """The twin of `Calls` over an async client."""

    async def run_with_tools(
        self,
        request: Mapping[str, Any],
        tools: Iterable[AnyTool],
        *,
        continuation_budgets: Sequence[Budget] | None = None,
        **options: Unpack[CallOptions],
    ) -> CallResult[Response]:
        """See `Calls.run_with_tools`."""
        driver = self._driver("run_with_tools", request, options, tools, continuation_budgets)
        return await self._result(driver)

    def stream(
        self,
        request: Mapping[str, Any],
        tools: Iterable[AnyTool] | None = None,
        *,
        continuation_budgets: Sequence[Budget] | None = None,
        **options: Unpack[CallOptions],
    ) -> AsyncCallStream[Event, Response]:
        """See `Calls.stream`; an async context manager."""
        driver = self._driver("stream", request, options, tools, continuation_budgets)
        return AsyncCallStream(driver, self._api.response)
