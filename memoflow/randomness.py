"""Random bytes of the system, drawn for many uses at a time.

Asking the system gives the interpreter to other threads, and getting it back may take milliseconds, so it is
not done for each id and each nonce.
"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["Drawn"]

_AT_ONCE: Final = 64
_pools: list[Drawn] = []


def _start_anew_after_fork() -> None:
    # A child would hand out the bytes that its parent hands out.
    for pool in _pools:
        pool.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew_after_fork)


class Drawn:
    """Random bytes of one length; each is given out once, whoever asks at the same time.

    Args:
        size: bytes of each.
    """

    __slots__ = ("_ready", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._ready: list[bytes] = []
        _pools.append(self)

    def take(self) -> bytes:
        """The next ones."""
        while True:
            try:
                # One step of the interpreter, so no lock is needed.
                return self._ready.pop()
            except IndexError:
                drawn, size = os.urandom(self._size * _AT_ONCE), self._size
                self._ready.extend(drawn[at : at + size] for at in range(0, len(drawn), size))

    def forget(self) -> None:
        """Give out none of those that are ready."""
        self._ready.clear()
