"""A JSON parser for texts that a model or a provider wrote."""

from __future__ import annotations

import json
import math
import re
from functools import cache
from typing import Any, Final, Literal

from memoflow.canonical.form import JSON
from memoflow.errors import MemoflowError

__all__ = ["MAX_DIGITS", "Problem", "StrictJSONError", "parse_strict"]

Problem = Literal[
    "MALFORMED", "DUPLICATE_KEY", "NOT_FINITE", "TOO_LARGE", "TOO_DEEP", "TOO_MANY_DIGITS", "LONE_SURROGATE"
]

MAX_DIGITS: Final = 400
"""Most digits of a number in a text to parse. Below 640, the lowest limit Python itself can be set to."""

_PROBLEMS: Final[dict[Problem, str]] = {
    "MALFORMED": "is not one JSON document in UTF-8 without a byte order mark",
    "DUPLICATE_KEY": "holds an object with the same key twice",
    "NOT_FINITE": "holds NaN, an infinity, or a number too large for a double",
    "TOO_LARGE": "is larger than allowed",
    "TOO_DEEP": "is nested deeper than allowed",
    "TOO_MANY_DIGITS": "holds a number with more digits than allowed",
    "LONE_SURROGATE": "holds a lone surrogate",
}


class StrictJSONError(MemoflowError, ValueError):
    """A JSON text is refused by `parse_strict`. Never holds any of the text.

    Attributes:
        problem: what is wrong, as a code.
    """

    def __init__(self, problem: Problem, figures: str = "") -> None:
        self.problem: Problem = problem
        super().__init__(f"The JSON text {_PROBLEMS[problem]}{figures} ({problem}).")


def parse_strict(
    text: str | bytes, *, max_bytes: int, max_depth: int = 64, max_digits: int = MAX_DIGITS
) -> JSON:
    """Parse one JSON document, refusing whatever two parsers could read differently.

    Args:
        text: the document; bytes must be UTF-8.
        max_bytes: most bytes of the document in UTF-8.
        max_depth: most levels of arrays and objects.
        max_digits: most characters of one number; `MAX_DIGITS` if that is less.

    Raises:
        StrictJSONError: with the ``problem``.
    """
    source = _decoded(text, max_bytes)
    digits = min(max_digits, MAX_DIGITS)
    try:
        # No number is longer than the document it stands in.
        value = _decoder(digits if len(source) > digits else None).decode(source)
    except RecursionError:
        raise StrictJSONError("TOO_DEEP", f": {max_depth} levels at most") from None
    except json.JSONDecodeError:
        raise StrictJSONError("MALFORMED") from None
    # Nothing is nested deeper than there are brackets, and counting them is cheap.
    if source.count("{") + source.count("[") > max_depth:
        _refuse_deep(value, max_depth)
    if _SURROGATE_ESCAPE.search(source):
        _refuse_surrogates(value)
    return value


@cache
def _decoder(digits: int | None) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_unique,
        parse_constant=_refuse_constant,
        parse_float=lambda literal: _parse_float(literal, MAX_DIGITS if digits is None else digits),
        parse_int=None if digits is None else lambda literal: _parse_int(literal, digits),
    )


_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")


def _decoded(text: str | bytes, max_bytes: int) -> str:
    try:
        data = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError:
        raise StrictJSONError("LONE_SURROGATE") from None
    if len(data) > max_bytes:
        raise StrictJSONError("TOO_LARGE", f": {len(data)} bytes, {max_bytes} at most")
    try:
        return text if isinstance(text, str) else text.decode()
    except UnicodeDecodeError:
        raise StrictJSONError("MALFORMED") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise StrictJSONError("DUPLICATE_KEY")
    return result


def _refuse_constant(_: str) -> Any:
    raise StrictJSONError("NOT_FINITE")


def _parse_int(literal: str, max_digits: int) -> int:
    if len(literal.lstrip("-")) > max_digits:
        raise StrictJSONError("TOO_MANY_DIGITS", f": {max_digits} at most")
    return int(literal)


def _parse_float(literal: str, max_digits: int) -> float:
    if len(literal.lstrip("-")) > max_digits:
        raise StrictJSONError("TOO_MANY_DIGITS", f": {max_digits} at most")
    value = float(literal)
    if not math.isfinite(value):
        raise StrictJSONError("NOT_FINITE")
    return value


def _refuse_deep(value: Any, max_depth: int) -> None:
    level, depth = [value], 0
    while level := [node for node in level if isinstance(node, (dict, list))]:
        depth += 1
        if depth > max_depth:
            raise StrictJSONError("TOO_DEEP", f": {max_depth} levels at most")
        level = [child for node in level for child in (node.values() if isinstance(node, dict) else node)]


def _refuse_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise StrictJSONError("LONE_SURROGATE") from None
