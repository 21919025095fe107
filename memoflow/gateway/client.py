"""The client of one request: what it is sent, and whether it is still there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from memoflow.gateway.forward import Head, Whole
from memoflow.gateway.frames import at_boundary
from memoflow.gateway.headers import Headers

__all__ = ["Client"]


class Client:
    """Sends a reply, and goes on quietly when nobody takes it any more.

    Args:
        seconds: how long a client may take to accept a piece; one that takes longer counts as gone.
        left: called once, when it is gone.

    Attributes:
        started: whether the head of a reply was sent.
    """

    def __init__(
        self,
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
        *,
        seconds: float,
        left: Callable[[], None],
    ) -> None:
        self._receive = receive
        self._send = send
        self._seconds = seconds
        self._left = left
        self._tail = b""
        self.started = False
        self.gone = False

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Notice when the client goes away, for as long as the context lasts."""
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        if not self.gone:
            self.gone = True
            self._left()

    @property
    def between_events(self) -> bool:
        """Whether a stream may be ended by a further event, because none is half sent."""
        return at_boundary(self._tail)

    async def begin(self, head: Head, extra: Headers) -> None:
        """Send the head of a reply."""
        self.started = True
        headers = [*head.headers, *extra]
        await self._deliver({"type": "http.response.start", "status": head.status, "headers": headers})

    async def write(self, data: bytes) -> None:
        """Send a piece of its body; waits while the client takes it."""
        self._tail = (self._tail + data[-4:])[-4:]
        await self._deliver({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self, data: bytes = b"") -> None:
        """Send the last piece, and with it the end."""
        await self._deliver({"type": "http.response.body", "body": data, "more_body": False})

    async def give(self, whole: Whole, extra: Headers) -> None:
        """Send a whole reply."""
        length = (b"content-length", str(len(whole.body)).encode())
        await self.begin(Head(whole.status, [*whole.headers, length]), extra)
        await self.finish(whole.body)

    async def _deliver(self, message: dict[str, Any]) -> None:
        if self.gone:
            return
        try:
            async with asyncio.timeout(self._seconds):
                await self._send(message)
        except (TimeoutError, OSError):
            self._leave()
