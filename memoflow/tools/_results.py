"""Results of tools: what has an exact text form."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

from memoflow.canonical import JSON
from memoflow.errors import ResultNotEncodable

__all__ = [
    "MAX_RESULT_BYTES",
    "PROVIDER_MAX_BYTES",
    "EncodedResult",
    "encode_result",
]

MAX_RESULT_BYTES: Final = 1_048_576
"""Most UTF-8 bytes of one result, unless another limit is given: some 250,000 tokens already."""

PROVIDER_MAX_BYTES: Final = 10_485_760
"""Longest text OpenAI accepts for one item; a longer one makes the conversation unusable for good."""

_MAX_DEPTH: Final = 64
_MAX_DIGITS: Final = 400
_MAX_INTEGER: Final = 10**_MAX_DIGITS
_CEILING: Final = 4
_LEAST: Final = 2  # a digit and a comma
_ALLOWED: Final = (
    "Possible are text, None, numbers, lists, dicts with text keys, pydantic models, dataclasses, dates, "
    "datetimes with a zone, Decimal, UUID or an Enum of those."
)


@dataclass(frozen=True, slots=True)
class EncodedResult:
    """A result as the model gets it.

    Attributes:
        text: a `str` result verbatim, anything else as JSON.
        size: bytes of the text in UTF-8.
        too_large: whether it exceeds the limit; then record its digest and size, and give the model
            `too_large_text` instead.
    """

    text: str = field(repr=False)
    size: int
    too_large: bool


def encode_result(
    value: object, max_bytes: int = MAX_RESULT_BYTES, *, what: str = "The result of a tool"
) -> EncodedResult:
    """Write a tool's result exactly, or refuse; nothing is guessed, repaired or pickled.

    Dicts keep the order of their keys, tuples are arrays, dates are ISO 8601 text, Decimal and UUID
    are text, an Enum is its value, and a pydantic model is its own JSON form.

    Args:
        value: what the tool returned.
        max_bytes: limit in UTF-8 bytes; never taken as more than `PROVIDER_MAX_BYTES`.
        what: how errors call the value.

    Raises:
        ResultNotEncodable: the value has no exact JSON form, is nested deeper than 64 levels, or is
            more than four times over the limit.
    """
    limit = min(max_bytes, PROVIDER_MAX_BYTES)
    try:
        text = _verbatim(value) if _is_text(value) else _dumps(value, limit)
        size = len(text.encode())
    except _Unfit as unfit:
        raise ResultNotEncodable(f"{what} {unfit}") from None
    except UnicodeEncodeError:
        raise ResultNotEncodable(
            f"{what} holds a lone surrogate, which no text can carry. Decode it correctly first."
        ) from None
    return EncodedResult(text, size, size > limit)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not isinstance(value, Enum)


def _verbatim(value: Any) -> str:
    # The plain text of a subclass too, whatever its own __str__ says.
    plain: str = str.__str__(value)
    return plain


def _dumps(value: object, limit: int) -> str:
    try:
        plain = _Plain(limit * _CEILING).of(value, 0)
    except _Unfit:
        raise
    except Exception as error:
        # A serializer, property or time zone of the value's own. Its text may be payload, so it is dropped.
        raise _refuse(f"raised {type(error).__name__[:80]} while it was being written.") from None
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class _Unfit(Exception):
    """Why a value has no exact form: the end of a sentence that begins with the value."""


def _refuse(why: str) -> _Unfit:
    return _Unfit(why)


class _Plain:
    """Copies one result into plain JSON values.

    Counts a lower bound of the size on the way, since a few lists that share their parts can stand for
    more text than there is memory.
    """

    __slots__ = ("_left", "_open")

    def __init__(self, ceiling: int) -> None:
        self._left = ceiling
        self._open: set[int] = set()

    def of(self, value: object, depth: int) -> JSON:
        self._spend(_LEAST)
        if isinstance(value, Enum):
            return self.of(value.value, depth + 1)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            self._spend(len(value))
            return _verbatim(value)
        if isinstance(value, (int, float)):
            number = _number(value)
            self._spend(number.bit_length() * 3 // 10 if isinstance(number, int) else 0)
            return number
        if isinstance(value, (Decimal, date, UUID)):
            literal = _literal(value)
            self._spend(len(literal))
            return literal
        return self._nested(value, depth)

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise _refuse("is far too large to be written. Return less, or a reference to it.")

    def _nested(self, value: object, depth: int) -> JSON:
        if depth >= _MAX_DEPTH:
            raise _refuse(f"is nested deeper than {_MAX_DEPTH} levels. Flatten it.")
        if id(value) in self._open:
            raise _refuse("holds itself. Return a value without cycles.")
        self._open.add(id(value))
        try:
            return self._container(value, depth + 1)
        finally:
            self._open.discard(id(value))

    def _container(self, value: object, depth: int) -> JSON:
        if isinstance(value, dict):
            return self._object(value.items(), depth)
        if isinstance(value, (list, tuple)):
            return [self.of(item, depth) for item in value]
        # Here and not at the top: importing memoflow is to be cheap, and pydantic is not.
        from pydantic import BaseModel

        if isinstance(value, BaseModel):
            # Warnings would print the values they are about.
            return self.of(value.model_dump(mode="json", warnings=False), depth)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._object(((f.name, getattr(value, f.name)) for f in dataclasses.fields(value)), depth)
        raise _refuse(f"holds a value of type {type(value).__name__[:80]}. {_ALLOWED}")

    def _object(self, items: Iterable[tuple[Any, object]], depth: int) -> dict[str, JSON]:
        result: dict[str, JSON] = {}
        for key, item in items:
            if not isinstance(key, str):
                raise _refuse(
                    f"holds a key of type {type(key).__name__[:80]}. Make every key text: doing it silently "
                    "could make two keys one."
                )
            self._spend(len(key))
            result[_verbatim(key)] = self.of(item, depth)
        return result


def _number(value: float) -> int | float:
    if isinstance(value, int):
        if not -_MAX_INTEGER < value < _MAX_INTEGER:
            raise _refuse(f"holds an integer of more than {_MAX_DIGITS} digits. Return it as text.")
        return int.__int__(value)
    if not math.isfinite(value):
        raise _refuse("holds NaN or an infinity, which JSON cannot carry. Use None or text in its place.")
    return float.__float__(value)


def _literal(value: Decimal | date | UUID) -> str:
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise _refuse("holds a Decimal that is not finite. Use None or text in its place.")
        return Decimal.__str__(value)
    if isinstance(value, datetime) and value.utcoffset() is None:
        raise _refuse("holds a datetime without a time zone. Attach one, so that it names one instant.")
    return UUID.__str__(value) if isinstance(value, UUID) else value.isoformat()
