"""What went over the wire, kept as bytes: evidence that owes nothing to memoflow's own readers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests._apis import MESSAGES, RESPONSES, Api

__all__ = ["Exchange", "Wiretap", "connector"]


@dataclass
class Exchange:
    """A request and as much of its reply as was read."""

    path: str
    sent: dict[str, Any]
    parts: list[bytes] = field(default_factory=list)

    @property
    def streamed(self) -> bool:
        """Whether events were asked for."""
        return bool(self.sent.get("stream"))

    def reported(self, api: Api) -> tuple[int, int]:
        """Input and output tokens as the server reported them, read as the API documents it."""
        usage = self._usage(api)
        if api is MESSAGES:
            fields = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
            return sum(usage.get(name) or 0 for name in fields), usage["output_tokens"]
        if api is RESPONSES:
            return usage["input_tokens"], usage["output_tokens"]
        return usage["prompt_tokens"], usage["completion_tokens"]

    def _usage(self, api: Api) -> dict[str, Any]:
        body = b"".join(self.parts)
        usage: dict[str, Any] = {}
        for event in _events(body) if self.streamed else [json.loads(body)]:
            holder = event.get("response" if api is RESPONSES else "message", {})
            # Of the counts of a message each replaces the one before.
            usage |= event.get("usage") or holder.get("usage") or {}
        return usage


def _events(body: bytes) -> Iterator[dict[str, Any]]:
    for line in body.splitlines():
        if line.startswith(b"data: {"):
            yield json.loads(line.removeprefix(b"data: "))


class _Heard(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    def __init__(self, stream: Any, parts: list[bytes]) -> None:
        self._stream, self._parts = stream, parts

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            self._parts.append(chunk)
            yield chunk

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._parts.append(chunk)
            yield chunk

    def close(self) -> None:
        self._stream.close()

    async def aclose(self) -> None:
        await self._stream.aclose()


class Wiretap:
    """Hears what its clients send and are sent."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []

    def client(self, *, is_async: bool) -> Any:
        """An HTTP client that is heard. No certificates: loading them takes longer than most tests."""
        if is_async:
            return httpx2.AsyncClient(transport=_AsyncTransport(self, verify=False))
        return httpx2.Client(transport=_Transport(self, verify=False))

    def hear(self, request: httpx2.Request) -> Exchange:
        """The exchange that a request begins."""
        self.exchanges.append(Exchange(request.url.path, json.loads(request.content)))
        return self.exchanges[-1]


def _heard(response: httpx2.Response, exchange: Exchange) -> httpx2.Response:
    stream = _Heard(response.stream, exchange.parts)
    return httpx2.Response(response.status_code, headers=response.headers, stream=stream)


class _Transport(httpx2.HTTPTransport):
    def __init__(self, tap: Wiretap, **options: Any) -> None:
        super().__init__(**options)
        self._tap = tap

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        exchange = self._tap.hear(request)
        return _heard(super().handle_request(request), exchange)


class _AsyncTransport(httpx2.AsyncHTTPTransport):
    def __init__(self, tap: Wiretap, **options: Any) -> None:
        super().__init__(**options)
        self._tap = tap

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        exchange = self._tap.hear(request)
        return _heard(await super().handle_async_request(request), exchange)


def connector(base_url: str, tap: Wiretap) -> Any:
    """Makes clients of a server, of whatever SDK, that are heard."""

    def connect(kind: Any) -> Any:
        http = tap.client(is_async=kind.__name__.startswith("Async"))
        return kind(api_key="sk-test", base_url=base_url, http_client=http)

    return connect
