"""Asking an async client on behalf of the thread that decides."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

__all__ = ["on_thread"]

T = TypeVar("T")
Retrieve = Callable[[str], bytes | None]


async def on_thread(decide: Callable[[Retrieve], T], retrieve: Callable[[str], Awaitable[bytes | None]]) -> T:
    """Run ``decide`` on a thread; what it asks for is awaited here, on the caller's event loop.

    Cancelled, it asks for nothing more; what was being asked for may still be decided.
    """
    loop, stopped = asyncio.get_running_loop(), threading.Event()

    async def ask(response_id: str) -> bytes | None:
        return await retrieve(response_id)

    def ask_from_thread(response_id: str) -> bytes | None:
        if stopped.is_set():
            # Not an Exception, which would only count as one reply that could not be retrieved.
            raise asyncio.CancelledError
        return asyncio.run_coroutine_threadsafe(ask(response_id), loop).result()

    try:
        return await asyncio.to_thread(decide, ask_from_thread)
    except asyncio.CancelledError:
        stopped.set()
        raise
