"""What was made of the last texts, so that a history which is sent again is not looked at again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Final, Generic, TypeVar

__all__ = ["Remembered"]

T = TypeVar("T")

_KEPT: Final = 256


class Remembered(Generic[T]):
    """Values by keyed digests of the texts that they were made of; the oldest go first. Safe for threads.

    Args:
        key: secret of 16 to 64 bytes.
    """

    __slots__ = ("_key", "_values")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._values: OrderedDict[bytes, T] = OrderedDict()

    def of(self, text: bytes, make: Callable[[], T]) -> T:
        """The value of a text, made where it is not known any more."""
        name = blake2b(text, key=self._key).digest()
        found = self._values.get(name)
        if found is None:
            found = self._values[name] = make()
            # Another thread may have taken the oldest away already.
            while len(self._values) > _KEPT:
                self._values.popitem(last=False)
        return found
