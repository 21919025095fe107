"""Connections to one provider that are kept for the next requests.

A client looks at every idle connection it has whenever a request begins and ends. With as many as a gateway
keeps that takes longer than all else that it does; so each client here has one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2

__all__ = ["Connections"]


class Connections:
    """Clients of one connection each; a request has one for itself.

    How many there are is bounded by how many requests are served at a time.

    Args:
        make: makes a client.
        idle_s: seconds for which one that nobody uses is kept; a client by itself keeps connections as long.
    """

    def __init__(self, make: Callable[[], httpx2.AsyncClient], *, idle_s: float = 5.0) -> None:
        self._make = make
        self._idle_s = idle_s
        # The latest on the right: what is used again is what was used last, so the others can go.
        self._idle: deque[tuple[float, httpx2.AsyncClient]] = deque()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[httpx2.AsyncClient]:
        """A client for one request. After an error it is not used again: its state is anybody's guess."""
        client = self._idle.pop()[1] if self._idle else self._make()
        try:
            yield client
        except BaseException:
            await client.aclose()
            raise
        if _read_ahead(client):
            await client.aclose()
            return
        self._idle.append((time.monotonic(), client))
        await self._close_idle(time.monotonic() - self._idle_s)

    async def close(self) -> None:
        """Close what is idle."""
        await self._close_idle(float("inf"))

    async def _close_idle(self, since: float) -> None:
        while self._idle and self._idle[0][0] <= since:
            await self._idle.popleft()[1].aclose()


def _read_ahead(client: Any) -> bool:
    """Whether more has come than one reply. The client would take that for the reply to its next request.

    Nothing public of it tells: it asks only whether its socket has something to read.
    """
    ways = [
        way
        for way in (client._transport, *client._mounts.values())
        if isinstance(way, httpx2.AsyncHTTPTransport)
    ]
    return any(_has_more(connection) for way in ways for connection in way._pool.connections)


def _has_more(connection: Any) -> bool:
    while (inner := getattr(connection, "_connection", None)) is not None:
        connection = inner
    state = getattr(connection, "_h11_state", None)
    return state is None or bool(state.trailing_data[0])
