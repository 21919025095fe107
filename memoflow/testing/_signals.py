"""One-shot signals that threads and event loops wait for alike, so tests of cancellation need no sleeps."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

__all__ = ["Gate", "Signal"]


class Signal:
    """Something that happens once. Thread safe; also awaited from asyncio without polling."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._event = threading.Event()
        self._callbacks: list[Callable[[], None]] = []

    def set(self) -> None:
        """Let it happen; a second time changes nothing."""
        with self._lock:
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it happens or ``timeout`` seconds are over; True if it happened."""
        return self._event.wait(timeout)

    async def wait_async(self, timeout: float | None = None) -> bool:
        """`wait` for asyncio."""
        loop = asyncio.get_running_loop()
        happened: asyncio.Future[None] = loop.create_future()

        def finish() -> None:
            if not happened.done():
                happened.set_result(None)

        def wake() -> None:
            # A loop that is closed has nobody waiting.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(finish)

        unsubscribe = self.subscribe(wake)
        try:
            async with asyncio.timeout(timeout):
                await happened
        except TimeoutError:
            return self.is_set()
        finally:
            unsubscribe()
        return True

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` when it happens, at once if it has; returns a function that takes it back."""
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return lambda: self._forget(callback)
        callback()
        return lambda: None

    def _forget(self, callback: Callable[[], None]) -> None:
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)


class Gate:
    """Where a held reply waits.

    Attributes:
        name: how a provider in another process is told to release it.
        entered: the request has arrived and waits here.
        released: the reply may go on.
        abandoned: the client went away while the reply was held.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.entered, self.released, self.abandoned = Signal(), Signal(), Signal()

    def __repr__(self) -> str:
        return f"Gate({self.name!r})"
