"""JSON values that cannot be changed, and their plain copies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from memoflow.canonical import JSON, MAX_DEPTH
from memoflow.errors import InvalidRequest

__all__ = ["EMPTY", "FrozenObject", "freeze", "thaw"]

_DEEP: Final = (
    f"A value of a causal record is nested deeper than {MAX_DEPTH} levels, or holds itself. Flatten it."
)
_SCALARS: Final = (str, int, float, type(None))
_MAX_BITS: Final = 14_000
"""Of an integer: fewer than the 4300 digits that Python writes."""


class FrozenObject(dict[str, Any]):
    """A JSON object that cannot be changed; arrays in it are tuples. Encoders and readers see a dict."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("A causal record cannot be changed. Make another one with dataclasses.replace().")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        # The default rebuilds a dict item by item, which is refused here.
        return FrozenObject, (dict(self),)


EMPTY: Final = FrozenObject()


def freeze(value: object, depth: int = 0) -> JSON:
    """A deep copy of a JSON value that cannot be changed.

    Raises:
        InvalidRequest: it is nested too deep, or is no JSON.
    """
    if value is None or type(value) is FrozenObject:
        return value
    if isinstance(value, _SCALARS):
        return _scalar(value)
    if depth >= MAX_DEPTH:
        raise InvalidRequest(_DEEP)
    if isinstance(value, Mapping):
        return FrozenObject({_key(key): freeze(item, depth + 1) for key, item in value.items()})
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        return tuple([freeze(item, depth + 1) for item in value])
    raise InvalidRequest(
        f"A causal record cannot hold a value of type {type(value).__name__}: it is plain JSON. "
        "Use dict with text keys, list, str, int, finite float, bool or None."
    )


def _scalar(value: str | int | float | None) -> JSON:
    """A value that can be written: text can be encoded, a number has digits."""
    if isinstance(value, str):
        try:
            if not value.isascii():
                value.encode()
        except UnicodeEncodeError:
            raise InvalidRequest(
                "A causal record cannot hold text with a lone surrogate. Decode it correctly."
            ) from None
    elif isinstance(value, float) and not math.isfinite(value):
        raise InvalidRequest("A causal record cannot hold NaN or an infinity. Use null or text in its place.")
    elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise InvalidRequest(
            "A causal record cannot hold an integer of thousands of digits. Use text in its place."
        )
    return value


def _key(key: object) -> str:
    if isinstance(key, str):
        return str(_scalar(key))
    raise InvalidRequest(
        f"A causal record cannot hold a key of type {type(key).__name__}. Convert keys to text yourself."
    )


def thaw(value: JSON) -> JSON:
    """A plain copy that may be changed: dicts and lists."""
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [thaw(item) for item in value]
    return value
