"""What was made of the last texts, so that a history which is sent again is not looked at again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from threading import Lock
from typing import Final, Generic, TypeVar

__all__ = ["KEPT_BYTES", "Remembered"]

T = TypeVar("T")

KEPT_BYTES: Final = 4 * 1024 * 1024
"""Most bytes of texts whose values are kept, which is more than a model reads at once: where the oldest are
gone when a history is sent again, each of its texts drives out the next, and all are looked at anew."""

_EACH: Final = 512
"""What a text counts beside its bytes."""


class Remembered(Generic[T]):
    """Values by keyed digests of the texts that they were made of; the oldest go first. Safe for threads.

    Args:
        key: secret of 16 to 64 bytes.
    """

    __slots__ = ("_bytes", "_changing", "_key", "_values")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._values: OrderedDict[bytes, tuple[T, int]] = OrderedDict()
        self._bytes = 0
        self._changing = Lock()

    def of(self, text: bytes, make: Callable[[], T]) -> T:
        """The value of a text, made where it is not known any more."""
        name = blake2b(text, key=self._key).digest()
        found = self._values.get(name)
        if found is not None:
            return found[0]
        value = make()
        # Never waited for: in a forked child, whoever holds it may not be there any more.
        if self._changing.acquire(blocking=False):
            try:
                self._keep(name, value, len(text) + _EACH)
            finally:
                self._changing.release()
        return value

    def _keep(self, name: bytes, value: T, size: int) -> None:
        # Another thread may have made it meanwhile.
        if name not in self._values:
            self._values[name] = value, size
            self._bytes += size
        while self._bytes > KEPT_BYTES:
            self._bytes -= self._values.popitem(last=False)[1][1]
