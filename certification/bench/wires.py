"""Both ends of a proxy, as cheap as can be: a provider that is always ready, and callers that only ask."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from certification.bench.provider import RAW_REPLY

__all__ = ["Caller", "latencies", "provider", "rate"]

_REPLY = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(RAW_REPLY)
) + RAW_REPLY


class _Provider(asyncio.Protocol):
    """Answers every request with the same reply, as soon as its body is there."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._waiting = b""

    def data_received(self, data: bytes) -> None:
        self._waiting += data
        while (size := _size(self._waiting)) is not None and len(self._waiting) >= size:
            self._waiting = self._waiting[size:]
            self._transport.write(_REPLY)


def _size(data: bytes) -> int | None:
    """The bytes of the first message, once its head is there."""
    head, found, _ = data.partition(b"\r\n\r\n")
    if not found:
        return None
    length = next(
        int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
    )
    return len(head) + 4 + length


@asynccontextmanager
async def provider() -> AsyncIterator[str]:
    """The base URL of the provider, for as long as the context lasts."""
    server = await asyncio.get_running_loop().create_server(_Provider, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()


class Caller:
    """One connection that asks again and again."""

    def __init__(self, base_url: str, key: str, body: bytes) -> None:
        self._address = urlsplit(base_url)
        self._sent = (
            b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"authorization: Bearer %b\r\ncontent-length: %d\r\n\r\n%b" % (key.encode(), len(body), body)
        )

    async def __aenter__(self) -> Caller:
        self._reader, self._writer = await asyncio.open_connection(self._address.hostname, self._address.port)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._writer.close()

    async def ask(self) -> None:
        """One request and its whole reply."""
        self._writer.write(self._sent)
        head = await self._reader.readuntil(b"\r\n\r\n")
        size = _size(head)
        assert size is not None
        await self._reader.readexactly(size - len(head))
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"It answered {head[:100]!r}.")


async def rate(base_url: str, key: str, body: bytes, *, callers: int, total: int) -> float:
    """Requests a second of so many callers."""
    numbers = iter(range(total))

    async def call() -> None:
        async with Caller(base_url, key, body) as caller:
            for _ in numbers:
                await caller.ask()

    began = time.perf_counter()
    await asyncio.gather(*[call() for _ in range(callers)])
    return total / (time.perf_counter() - began)


async def latencies(base_url: str, key: str, body: bytes, *, total: int) -> list[float]:
    """Milliseconds of each request of one caller."""
    taken = []
    async with Caller(base_url, key, body) as caller:
        for _ in range(total):
            began = time.perf_counter()
            await caller.ask()
            taken.append((time.perf_counter() - began) * 1e3)
    return taken
