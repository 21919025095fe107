"""The provider behind the official SDK: one blocking port and its async twin, alike line by line.

The SDK's retries are off for these calls, on a copy of the client, and it follows no redirect: one
invocation is one request. The caller's client is never changed. The request goes out as it is, and
replies are read as bytes, so that nothing is lost or repaired on the way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from copy import deepcopy
from typing import Any, Generic, TypeVar, cast

import httpx2
import openai
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseIncompleteEvent,
    ResponseStreamEvent,
)

from memoflow.openai._answers import Tap, TooLargeError, explain, not_counted, read_count, read_reply
from memoflow.providers.base import Reply
from memoflow.providers.openai_responses import OpenAIResponsesCodec
from memoflow.turn.ports import Answer
from memoflow.turn.steps import Wire

__all__ = ["AsyncResponsesPort", "ResponsesPort"]

Client = TypeVar("Client", bound=openai.OpenAI | openai.AsyncOpenAI)

# The drivers keep the time limits of a call, and say which one was reached; a transport that gave up at
# the same moment would say something else. Its own limit only ends what a driver no longer waits for.
_GRACE_S = 5.0
_PATH = "/responses"


# What the SDK's own `with_streaming_response` asks for: the response as soon as its head is there.
_UNREAD = {"X-Stainless-Raw-Response": "stream"}


def _request(wire: Wire, given: float | openai.Timeout | None, stream_cls: Any) -> dict[str, Any]:
    """The arguments of the client's `post`, which takes more options than ``responses.create``."""
    options: dict[str, Any] = {"headers": _UNREAD, "follow_redirects": False}
    limits = (wire.timeout, wire.idle_timeout if wire.streaming else None)
    waits = [seconds for seconds in limits if seconds is not None]
    if waits:
        own = httpx2.Timeout(given)
        options["timeout"] = httpx2.Timeout(min(waits) + _GRACE_S, connect=own.connect, pool=own.pool)
    if not wire.streaming:
        return {"cast_to": Response, "body": wire.body, "options": options}
    body = {**wire.body, "stream": True}
    return {"cast_to": Response, "body": body, "options": options, "stream": True, "stream_cls": stream_cls}


class _Passing:
    """An HTTP response whose bytes a tap reads along; it takes the original's place in the SDK's decoder."""

    def __init__(self, response: httpx2.Response, tap: Tap) -> None:
        self._response = response
        self._tap = tap

    def __getattr__(self, name: str) -> Any:
        return getattr(self._response, name)

    def iter_bytes(self) -> Iterator[bytes]:
        for chunk in self._response.iter_bytes():
            self._tap.feed(chunk)
            yield chunk

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        async for chunk in self._response.aiter_bytes():
            self._tap.feed(chunk)
            yield chunk


class _Opened(Generic[Client]):
    """A streamed request, and what has been heard of it."""

    def __init__(self, client: Client, codec: OpenAIResponsesCodec, max_bytes: int, wire: Wire) -> None:
        self._client = client
        self._wire = wire
        self._tap = Tap(codec, max_bytes)
        self._error: Exception | None = None
        self._response: httpx2.Response | None = None

    @property
    def response_id(self) -> str | None:
        return self._tap.response_id

    def answer(self) -> Answer:
        return self._tap.answer(self._error)


class _Events(_Opened[openai.OpenAI]):
    """A streamed request over the blocking client."""

    def __iter__(self) -> Iterator[Any]:
        try:
            request = _request(self._wire, self._client.timeout, openai.Stream[ResponseStreamEvent])
            with closing(self._client.post(_PATH, **request)) as raw:
                self._response = raw.http_response
                passing = cast(httpx2.Response, _Passing(raw.http_response, self._tap))
                yield from openai.Stream(
                    cast_to=cast(Any, ResponseStreamEvent), response=passing, client=self._client
                )
        except Exception as error:
            self._error = error

    def close(self) -> None:
        if self._response is not None:
            # Another thread may be reading from it; that read ends, however it ends.
            with suppress(Exception):
                self._response.close()


class _Port(Generic[Client]):
    """What both ports hold, and how they repeat what is recorded."""

    def __init__(self, client: Client, codec: OpenAIResponsesCodec, max_bytes: int) -> None:
        self._given = client
        self._codec = codec
        self._max_bytes = max_bytes

    @property
    def _client(self) -> Client:
        return cast(Client, self._given.with_options(max_retries=0))

    def repeat(self, reply: Reply) -> ResponseStreamEvent:
        """The terminal event of a stream that ended in this reply."""
        event = ResponseIncompleteEvent if reply.status == "incomplete" else ResponseCompletedEvent
        # A copy, as fresh as one from the wire; built like the SDK does it, which checks nothing.
        response = Response.construct(**deepcopy(reply.body))
        return event.construct(type=f"response.{reply.status}", response=response, sequence_number=0)


class ResponsesPort(_Port[openai.OpenAI]):
    """`memoflow.turn.SyncPort` over `openai.OpenAI`."""

    def send(self, wire: Wire) -> Answer:
        """Send a request and wait for the whole reply."""
        try:
            with closing(self._client.post(_PATH, **_request(wire, self._given.timeout, None))) as raw:
                body = _joined(raw.http_response.iter_bytes(), self._max_bytes)
        except Exception as error:
            return explain(error)
        return read_reply(self._codec, body)

    def stream(self, wire: Wire) -> _Events:
        """Send a request whose reply is streamed; nothing is sent before the iteration starts."""
        return _Events(self._client, self._codec, self._max_bytes, wire)

    def count(self, body: dict[str, Any]) -> int:
        """The input tokens of a request, by the provider's counting endpoint."""
        try:
            counted = self._client.responses.input_tokens.count(extra_body=_countable(body))
        except Exception as error:
            raise not_counted(error) from None
        return read_count(getattr(counted, "input_tokens", None))

    def retrieve(self, response_id: str) -> bytes | None:
        """A stored response as JSON, or None if the provider does not have it (any more)."""
        try:
            raw = self._client.responses.with_raw_response.retrieve(response_id)
        except openai.NotFoundError:
            return None
        return raw.http_response.content


def _joined(chunks: Iterator[bytes], limit: int) -> bytes:
    parts, size = [], 0
    for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise TooLargeError
        parts.append(chunk)
    return b"".join(parts)


# What the counting endpoint takes of a request.
_COUNTED = (
    "conversation",
    "input",
    "instructions",
    "model",
    "parallel_tool_calls",
    "previous_response_id",
    "reasoning",
    "text",
    "tool_choice",
    "tools",
    "truncation",
)


def _countable(body: dict[str, Any]) -> dict[str, Any]:
    return {name: body[name] for name in _COUNTED if name in body}


@asynccontextmanager
async def _closing(raw: Any) -> AsyncIterator[Any]:
    try:
        yield raw
    finally:
        await raw.close()


class _AsyncEvents(_Opened[openai.AsyncOpenAI]):
    """A streamed request over the async client."""

    async def __aiter__(self) -> AsyncIterator[Any]:
        try:
            request = _request(self._wire, self._client.timeout, openai.AsyncStream[ResponseStreamEvent])
            async with _closing(await self._client.post(_PATH, **request)) as raw:
                self._response = raw.http_response
                passing = cast(httpx2.Response, _Passing(raw.http_response, self._tap))
                async for event in openai.AsyncStream(
                    cast_to=cast(Any, ResponseStreamEvent), response=passing, client=self._client
                ):
                    yield event
        except Exception as error:
            self._error = error

    async def close(self) -> None:
        if self._response is not None:
            with suppress(Exception):
                await self._response.aclose()


class AsyncResponsesPort(_Port[openai.AsyncOpenAI]):
    """`memoflow.turn.AsyncPort` over `openai.AsyncOpenAI`."""

    async def send(self, wire: Wire) -> Answer:
        """Send a request and wait for the whole reply."""
        try:
            request = _request(wire, self._given.timeout, None)
            async with _closing(await self._client.post(_PATH, **request)) as raw:
                body = await _ajoined(raw.http_response.aiter_bytes(), self._max_bytes)
        except Exception as error:
            return explain(error)
        return read_reply(self._codec, body)

    def stream(self, wire: Wire) -> _AsyncEvents:
        """Send a request whose reply is streamed; nothing is sent before the iteration starts."""
        return _AsyncEvents(self._client, self._codec, self._max_bytes, wire)

    async def count(self, body: dict[str, Any]) -> int:
        """The input tokens of a request, by the provider's counting endpoint."""
        try:
            counted = await self._client.responses.input_tokens.count(extra_body=_countable(body))
        except Exception as error:
            raise not_counted(error) from None
        return read_count(getattr(counted, "input_tokens", None))

    async def retrieve(self, response_id: str) -> bytes | None:
        """A stored response as JSON, or None if the provider does not have it (any more)."""
        try:
            raw = await self._client.responses.with_raw_response.retrieve(response_id)
        except openai.NotFoundError:
            return None
        return raw.http_response.content


async def _ajoined(chunks: AsyncIterator[bytes], limit: int) -> bytes:
    parts, size = [], 0
    async for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise TooLargeError
        parts.append(chunk)
    return b"".join(parts)
