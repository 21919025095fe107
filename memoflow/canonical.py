"""Plain JSON: one canonical form, digests over it, a strict parser, and checked copies.

The canonical form is RFC 8785 with one written extension: an integer is its exact decimal
digits, however large (up to `MAX_DIGITS`). RFC 8785 reads every number as a double, which
would give two different 64-bit ids one digest. Everything RFC 8785 cannot carry is refused:
NaN, infinities, lone surrogates, keys that are not text, other types. ``1`` and ``1.0`` are
the same JSON number and have the same form; ``true`` is another. Arrays keep their order,
and no Unicode normalisation takes place.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from types import NoneType
from typing import Any, Final, Literal, TypeAlias

from pydantic import BaseModel

from memoflow.errors import ConfigurationError, InvalidRequest, MemoflowError

__all__ = [
    "JSON",
    "MAX_DEPTH",
    "MAX_DIGITS",
    "Digester",
    "StrictJSONError",
    "canonical",
    "freeze_json",
    "parse_strict",
    "sha256_hex",
]

JSON: TypeAlias = Any
"""dict (text keys), list, str, int, float, bool or None. `Any`, because every reader checks shapes itself."""

Problem = Literal[
    "MALFORMED", "DUPLICATE_KEY", "NOT_FINITE", "TOO_LARGE", "TOO_DEEP", "TOO_MANY_DIGITS", "LONE_SURROGATE"
]

MAX_DEPTH: Final = 256
"""Most levels of nesting that have a canonical form; a value that holds itself is refused by it."""

MAX_DIGITS: Final = 400
"""Most decimal digits of an integer. Below 640, the lowest limit Python itself can be set to."""

_INT_LIMIT: Final = 10**MAX_DIGITS
_WHOLE_TRIES: Final = 3
_CONTAINERS: Final = frozenset({dict, list, tuple})
_PLAIN: Final = frozenset({dict, list, tuple, str, int, float, bool, NoneType})
_quote: Final[Callable[[str], str]] = json.encoder.encode_basestring
_dump: Final = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False, check_circular=False
).encode


def canonical(value: object) -> bytes:
    """The canonical form of a plain JSON value (tuples count as arrays), UTF-8 encoded.

    Raises:
        InvalidRequest: the value is not plain JSON, or has no exact JSON form.
    """
    parts: list[str] = []
    try:
        _write(value, 0, parts.append)
        return "".join(parts).encode()
    except UnicodeEncodeError:
        raise InvalidRequest(_SURROGATE) from None
    except RecursionError:
        raise InvalidRequest(_DEEP) from None


def sha256_hex(value: object) -> str:
    """SHA-256 of the canonical form, as 64 hexadecimal digits.

    Raises:
        InvalidRequest: as `canonical`.
    """
    return hashlib.sha256(canonical(value)).hexdigest()


_SURROGATE: Final = (
    "A text value holds a lone surrogate, which no JSON document can carry. Decode the text correctly, "
    "or replace the surrogate, before passing it."
)
_DEEP: Final = f"The value is nested deeper than {MAX_DEPTH} levels, or holds itself. Flatten it."


def _not_json(value: object, place: str) -> InvalidRequest:
    return InvalidRequest(
        f"A value of type {type(value).__name__} {place} is not plain JSON. "
        "Use dict with text keys, list, str, int, finite float, bool or None."
    )


def _write(value: object, depth: int, emit: Callable[[str], None]) -> None:
    # The C encoder is some ten times faster. Trying it only near the top keeps the number of
    # times one node is looked at bounded, and still takes it for the bulk of a request.
    if depth <= _WHOLE_TRIES and _is_simple(value, depth):
        emit(_dump(value))
    elif isinstance(value, dict):
        _write_object(value, depth, emit)
    elif isinstance(value, (list, tuple)):
        _write_array(value, depth, emit)
    else:
        emit(_scalar(value))


def _write_object(value: dict[Any, Any], depth: int, emit: Callable[[str], None]) -> None:
    _check_depth(depth)
    separator = "{"
    for key in sorted(value, key=_utf16):
        emit(f"{separator}{_quote(key)}:")
        _write(value[key], depth + 1, emit)
        separator = ","
    emit("}" if value else "{}")


def _write_array(value: Iterable[object], depth: int, emit: Callable[[str], None]) -> None:
    _check_depth(depth)
    separator = "["
    for item in value:
        emit(separator)
        _write(item, depth + 1, emit)
        separator = ","
    emit("]" if separator == "," else "[]")


def _check_depth(depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise InvalidRequest(_DEEP)


def _utf16(key: object) -> bytes:
    if not isinstance(key, str):
        raise InvalidRequest(
            f"An object key of type {type(key).__name__} is not text. Convert keys to str yourself: "
            "doing it silently could make two keys one."
        )
    return key.encode("utf-16-be", "surrogatepass")


def _scalar(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, int):
        return int.__repr__(_checked_int(value))
    if isinstance(value, float):
        return _ecmascript(_checked_float(value))
    raise _not_json(value, "in the value")


def _checked_int(value: int) -> int:
    if not -_INT_LIMIT < value < _INT_LIMIT:
        raise InvalidRequest(f"An integer has more than {MAX_DIGITS} digits. Pass it as text.")
    return value


def _checked_float(value: float) -> float:
    if not math.isfinite(value):
        raise InvalidRequest(
            "A number is NaN or infinite, which JSON cannot carry. Use None or text in its place."
        )
    return value


def _ecmascript(value: float) -> str:
    """Number::toString of ECMA-262, which RFC 8785 prescribes; both languages use the shortest digits."""
    if _repr_is_ecmascript(value):
        return float.__repr__(value)
    if value == 0:
        return "0"
    sign, digits, exponent = Decimal(float.__repr__(value)).as_tuple()
    text = "".join(map(str, digits))
    point = len(text) + int(exponent)
    text = text.rstrip("0")
    return "-" * sign + _place_point(text, point)


def _place_point(text: str, point: int) -> str:
    if len(text) <= point <= 21:
        return text.ljust(point, "0")
    if 0 < point <= 21:
        return f"{text[:point]}.{text[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{text}"
    fraction = f".{text[1:]}" if len(text) > 1 else ""
    return f"{text[0]}{fraction}e{point - 1:+d}"


def _repr_is_ecmascript(value: float) -> bool:
    return 1e-4 <= abs(value) < 1e16 and not value.is_integer()


def _is_simple(value: object, depth: int) -> bool:
    """Whether ``json`` itself writes the canonical form of ``value``. Refuses nothing: `_write` does that."""
    children: Iterable[Any] = (value,)
    if type(value) is dict:
        if not _keys_are_simple(value):
            return False
        children = value.values()
    elif type(value) in _CONTAINERS:
        children = value  # type: ignore[assignment]  # a list or tuple
    kinds = set(map(type, children))
    if not kinds <= _PLAIN or depth >= MAX_DEPTH:
        return False
    if float in kinds and not all(_repr_is_ecmascript(c) for c in children if type(c) is float):
        return False
    if int in kinds and not all(-_INT_LIMIT < c < _INT_LIMIT for c in children if type(c) is int):
        return False
    if kinds.isdisjoint(_CONTAINERS):
        return True
    return all(_is_simple(child, depth + 1) for child in children if type(child) in _CONTAINERS)


def _keys_are_simple(value: dict[Any, Any]) -> bool:
    if not value:
        return True
    if set(map(type, value)) != {str}:
        return False
    # Up to U+D7FF the order of code points, which Python sorts by, is the order of UTF-16 units.
    return all(map(str.isascii, value)) or max(map(max, filter(None, value))) <= "\ud7ff"


class Digester:
    """Tagged digests, keyed when a key is given: plain digests of small domains can be guessed.

    Args:
        key: secret of at least 16 bytes for HMAC-SHA-256, or None for plain SHA-256.
        key_id: its public name, put into every digest; needed with ``key`` and only then.

    Raises:
        ConfigurationError: one without the other, a short key, or a name that cannot stand in a tag.
    """

    __slots__ = ("_key", "_tag", "key_id")

    def __init__(self, key: bytes | None = None, key_id: str | None = None) -> None:
        if (key is None) != (key_id is None):
            raise ConfigurationError("A digest key needs both the key and its id; only one was given.")
        if key is not None and len(key) < 16:
            raise ConfigurationError(f"A digest key must have at least 16 bytes, not {len(key)}.")
        if key_id is not None and not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", key_id):
            raise ConfigurationError("A digest key id must have 1 to 64 of the characters A-Z a-z 0-9 _ . -")
        self._key, self.key_id = key, key_id
        self._tag = "sha256:" if key is None else f"hmac-sha256:{key_id}:"

    def json(self, value: object) -> str:
        """``sha256:<hex>`` or ``hmac-sha256:<key id>:<hex>`` of the canonical form.

        Raises:
            InvalidRequest: as `canonical`.
        """
        return self.bytes(canonical(value))

    def bytes(self, data: bytes) -> str:
        """The same over raw bytes."""
        if self._key is None:
            return self._tag + hashlib.sha256(data).hexdigest()
        return self._tag + hmac.digest(self._key, data, "sha256").hex()

    def __repr__(self) -> str:
        return f"Digester(key_id={self.key_id!r})"


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
        max_digits: most characters of one number; at most `MAX_DIGITS`.

    Raises:
        StrictJSONError: with the ``problem``.
    """
    source = _decoded(text, max_bytes)
    try:
        value = json.loads(
            source,
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_float=lambda literal: _parse_float(literal, max_digits),
            parse_int=lambda literal: _parse_int(literal, max_digits),
        )
    except RecursionError:
        raise StrictJSONError("TOO_DEEP", f": {max_depth} levels at most") from None
    except json.JSONDecodeError:
        raise StrictJSONError("MALFORMED") from None
    _refuse_deep(value, max_depth)
    if _SURROGATE_ESCAPE.search(source):
        _refuse_surrogates(value)
    return value


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


def freeze_json(value: object) -> JSON:
    """A deep copy of a caller's structure as plain JSON, checked to have a canonical form.

    Mappings become dicts, sequences lists, pydantic models what they send as JSON (names of
    the wire, unset fields left out). Later changes of the original do not reach the copy.

    Raises:
        InvalidRequest: anything in it is not JSON, not finite, not encodable, or too deep.
    """
    frozen = _copy(value, 0)
    canonical(frozen)
    return frozen


def _copy(value: object, depth: int) -> JSON:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if depth >= MAX_DEPTH:
        raise InvalidRequest(_DEEP)
    if isinstance(value, BaseModel):
        return _copy(_dumped(value), depth)
    if isinstance(value, Mapping):
        return _copy_object(value, depth)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        return [_copy(item, depth + 1) for item in value]
    raise _not_json(value, "in the structure")


def _copy_object(value: Mapping[Any, Any], depth: int) -> dict[str, JSON]:
    result: dict[str, JSON] = {}
    for key, item in value.items():
        _utf16(key)
        name = str.__str__(key)
        if name in result:
            raise InvalidRequest("A mapping gives the same key twice. Give every key once.")
        result[name] = _copy(item, depth + 1)
    return result


def _dumped(model: BaseModel) -> object:
    try:
        return model.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    except (ValueError, TypeError, RecursionError):
        raise InvalidRequest(
            f"A model of type {type(model).__name__} cannot be written as JSON. Pass plain values instead."
        ) from None
