"""A cancel signal that any thread may set and that sync and async calls both obey."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["CancelSignal"]


class CancelSignal:
    """Pass one as ``signal=`` and call `cancel` from anywhere to end the call.

    Before the reservation nothing is spent; between the reservation and the request the hold is
    released; after the request was sent its outcome is unknown and the hold stays. Tools that run are
    waited for, up to their own timeout, and no other starts.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._callbacks: list[Callable[[], None]] = []

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    def cancel(self) -> None:
        """Ask the call to end. Harmless when repeated."""
        with self._lock:
            if self._cancelled:
                return
            self._cancelled = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back once when cancelled, at once if it has been. Returns a function that unsubscribes."""
        with self._lock:
            if not self._cancelled:
                self._callbacks.append(callback)
                return lambda: self._remove(callback)
        callback()
        return lambda: None

    def _remove(self, callback: Callable[[], None]) -> None:
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)
