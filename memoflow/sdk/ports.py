"""The provider behind an official SDK: one blocking port and its async twin, alike line by line.

The SDK's retries are off for these calls, as an option of each, and it follows no redirect: one invocation is
one request. The caller's client is never changed. The request goes out as it is, and
replies are read as bytes, so that nothing is lost or repaired on the way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, closing, suppress
from typing import Any, Final

import httpx2

from memoflow.errors import ConfigurationError
from memoflow.providers.base import Codec, Reply
from memoflow.providers.sse import encode_event
from memoflow.sdk.answers import Tap, TooLargeError, explain, not_counted, read_count, read_reply
from memoflow.sdk.api import Api
from memoflow.turn.ports import Answer
from memoflow.turn.steps import Wire

__all__ = ["AsyncSdkPort", "SdkPort"]

# The drivers keep the time limits of a call, and say which one was reached; a transport that gave up at
# the same moment would say something else. Its own limit only ends what a driver no longer waits for.
_GRACE_S: Final = 5.0

# What the SDK's own `with_streaming_response` asks for: the response as soon as its head is there.
_UNREAD: Final = {"X-Stainless-Raw-Response": "stream"}
_ONCE: Final = {"max_retries": 0, "follow_redirects": False}


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


class _Port:
    """What both ports hold, and how they repeat what is recorded."""

    def __init__(self, api: Api[Any], client: Any, codec: Codec, max_bytes: int) -> None:
        self.api = api
        self.codec = codec
        self.max_bytes = max_bytes
        self.client = client

    def request(self, wire: Wire, stream_cls: Any = None) -> dict[str, Any]:
        """The arguments of the client's `post`, which takes more options than the SDK's ``create``."""
        options: dict[str, Any] = {"headers": _UNREAD, **_ONCE}
        limits = (wire.timeout, wire.idle_timeout if wire.streaming else None)
        waits = [seconds for seconds in limits if seconds is not None]
        if waits:
            own = httpx2.Timeout(self.client.timeout)
            options["timeout"] = httpx2.Timeout(min(waits) + _GRACE_S, connect=own.connect, pool=own.pool)
        request = {"path": self.api.path, "cast_to": self.api.reply, "options": options}
        if not wire.streaming:
            return {**request, "body": wire.body}
        return {**request, "body": self.codec.streamed(wire.body), "stream": True, "stream_cls": stream_cls}

    def counting(self, body: dict[str, Any]) -> dict[str, Any]:
        """The arguments of the `post` that asks for the size of an input."""
        if self.api.count_path is None:
            raise ConfigurationError(
                "This API has no endpoint that counts input. Leave count_input out, or pass input_tokens=…."
            )
        counted = {name: value for name, value in body.items() if name in self.api.counted}
        return {"path": self.api.count_path, "cast_to": dict[str, Any], "body": counted, "options": _ONCE}

    def repeat(self, reply: Reply) -> Iterator[Any]:
        """Events of a stream that ends in this reply, decoded by the SDK as if they came from the wire."""
        encoded = b"".join(map(encode_event, self.codec.events(reply)))
        request = httpx2.Request("POST", self.api.path)
        response = httpx2.Response(200, content=encoded, request=request)
        yield from self.api.sdk.Stream(cast_to=self.api.event, response=response, client=self.client)


class _Opened:
    """A streamed request, and what has been heard of it."""

    def __init__(self, port: _Port, wire: Wire) -> None:
        self._port = port
        self._wire = wire
        self._tap = Tap(port.codec, port.api.sdk, port.max_bytes, wire.choices)
        self._error: Exception | None = None
        self._response: httpx2.Response | None = None

    @property
    def response_id(self) -> str | None:
        return self._tap.response_id

    def answer(self) -> Answer:
        return self._tap.answer(self._error)


class _Events(_Opened):
    """A streamed request over a blocking client."""

    def __iter__(self) -> Iterator[Any]:
        sdk, event, client = self._port.api.sdk, self._port.api.event, self._port.client
        try:
            with closing(client.post(**self._port.request(self._wire, sdk.Stream[event]))) as raw:
                self._response = raw.http_response
                passing = _Passing(raw.http_response, self._tap)
                yield from sdk.Stream(cast_to=event, response=passing, client=client)
        except Exception as error:
            self._error = error

    def close(self) -> None:
        if self._response is not None:
            # Another thread may be reading from it; that read ends, however it ends.
            with suppress(Exception):
                self._response.close()


class SdkPort(_Port):
    """`memoflow.turn.SyncPort` over an SDK's blocking client."""

    def send(self, wire: Wire) -> Answer:
        """Send a request and wait for the whole reply."""
        try:
            with closing(self.client.post(**self.request(wire))) as raw:
                body = _joined(raw.http_response.iter_bytes(), self.max_bytes)
        except Exception as error:
            return explain(error, self.api.sdk)
        return read_reply(self.codec, body)

    def stream(self, wire: Wire) -> _Events:
        """Send a request whose reply is streamed; nothing is sent before the iteration starts."""
        return _Events(self, wire)

    def count(self, body: dict[str, Any]) -> int:
        """The input tokens of a request, by the provider's counting endpoint."""
        asked = self.counting(body)
        try:
            counted = self.client.post(**asked)
        except Exception as error:
            raise not_counted(error, self.api.sdk) from None
        return read_count(counted, self.api.sdk)


@asynccontextmanager
async def _closing(raw: Any) -> AsyncIterator[Any]:
    try:
        yield raw
    finally:
        await raw.close()


class _AsyncEvents(_Opened):
    """A streamed request over an async client."""

    async def __aiter__(self) -> AsyncIterator[Any]:
        sdk, event, client = self._port.api.sdk, self._port.api.event, self._port.client
        try:
            request = self._port.request(self._wire, sdk.AsyncStream[event])
            async with _closing(await client.post(**request)) as raw:
                self._response = raw.http_response
                passing = _Passing(raw.http_response, self._tap)
                async for one in sdk.AsyncStream(cast_to=event, response=passing, client=client):
                    yield one
        except Exception as error:
            self._error = error

    async def close(self) -> None:
        if self._response is not None:
            with suppress(Exception):
                await self._response.aclose()


class AsyncSdkPort(_Port):
    """`memoflow.turn.AsyncPort` over an SDK's async client."""

    async def send(self, wire: Wire) -> Answer:
        """Send a request and wait for the whole reply."""
        try:
            async with _closing(await self.client.post(**self.request(wire))) as raw:
                body = await _ajoined(raw.http_response.aiter_bytes(), self.max_bytes)
        except Exception as error:
            return explain(error, self.api.sdk)
        return read_reply(self.codec, body)

    def stream(self, wire: Wire) -> _AsyncEvents:
        """Send a request whose reply is streamed; nothing is sent before the iteration starts."""
        return _AsyncEvents(self, wire)

    async def count(self, body: dict[str, Any]) -> int:
        """The input tokens of a request, by the provider's counting endpoint."""
        asked = self.counting(body)
        try:
            counted = await self.client.post(**asked)
        except Exception as error:
            raise not_counted(error, self.api.sdk) from None
        return read_count(counted, self.api.sdk)


def _joined(chunks: Iterable[bytes], limit: int) -> bytes:
    parts, size = [], 0
    for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise TooLargeError
        parts.append(chunk)
    return b"".join(parts)


async def _ajoined(chunks: AsyncIterator[bytes], limit: int) -> bytes:
    parts, size = [], 0
    async for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise TooLargeError
        parts.append(chunk)
    return b"".join(parts)
