"""The canonical form of plain JSON.

The canonical form is RFC 8785 with one written extension: an integer is its exact decimal
digits, however large. RFC 8785 reads every number as a double, which
would give two different 64-bit ids one digest. Everything RFC 8785 cannot carry is refused:
NaN, infinities, lone surrogates, keys that are not text, other types. ``1`` and ``1.0`` are
the same JSON number and have the same form; ``true`` is another. Arrays keep their order,
and no Unicode normalisation takes place.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import chain
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard

from memoflow.errors import InvalidRequest

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["JSON", "MAX_DEPTH", "canonical", "freeze_json"]

JSON: TypeAlias = Any
"""dict (text keys), list, str, int, float, bool or None. `Any`, because every reader checks shapes itself."""

MAX_DEPTH: Final = 128
"""Most levels of nesting that have a canonical form; a value that holds itself is refused by it."""

_WHOLE_TRIES: Final = 2
_CONTAINERS: Final = frozenset({dict, list, tuple})
_PLAIN: Final = frozenset({dict, list, tuple, str, int, float, bool, NoneType})
_quote: Final[Callable[[str], str]] = json.encoder.encode_basestring
_encoder: Final = partial(
    json.JSONEncoder, ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False
)
_dump_sorted: Final = _encoder(sort_keys=True).encode
_dump_in_order: Final = _encoder().encode

_SURROGATE: Final = (
    "A text value holds a lone surrogate, which no JSON document can carry. Decode the text correctly, "
    "or replace the surrogate, before passing it."
)
_NUMBER: Final = (
    "A number is NaN, infinite, or an integer of more digits than Python writes (4300), so it has no form. "
    "Use None or text in its place."
)
_DEEP: Final = f"The value is nested deeper than {MAX_DEPTH} levels, or holds itself. Flatten it."


def canonical(value: object) -> bytes:
    """The canonical form of a plain JSON value (tuples count as arrays), UTF-8 encoded.

    Raises:
        InvalidRequest: the value is not plain JSON, or has no exact JSON form.
    """
    parts: list[str] = []
    with _Refusals():
        _write(value, 0, parts.append)
        return "".join(parts).encode()


class _Refusals:
    """Says in this package's own terms why a value has no form."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        # None of the original exceptions is chained: they hold the text they refuse.
        if kind is None:
            return
        if issubclass(kind, UnicodeEncodeError):
            raise InvalidRequest(_SURROGATE) from None
        if issubclass(kind, ValueError):
            raise InvalidRequest(_NUMBER) from None
        if issubclass(kind, RecursionError):
            raise InvalidRequest(_DEEP) from None


def _not_json(value: object) -> InvalidRequest:
    return InvalidRequest(
        f"A value of type {type(value).__name__} is not plain JSON. "
        "Use dict with text keys, list, str, int, finite float, bool or None."
    )


def _write(value: object, depth: int, emit: Callable[[str], None]) -> None:
    if not isinstance(value, (dict, list, tuple)):
        emit(_scalar(value))
    elif depth < MAX_DEPTH and type(value) is list and set(map(type, value)) == {str}:
        # Whatever names a place or a key is one: no encoder has to be made for it.
        emit(f"[{','.join(map(_quote, value))}]")
    # The C encoder is some ten times faster. Trying it only near the top bounds how often one
    # node is looked at, and still takes it for the bulk of a request that has a 1.0 at its root.
    elif depth <= _WHOLE_TRIES and _is_simple(value, depth):
        emit(_dump_sorted(value))
    elif isinstance(value, dict):
        _write_object(value, depth, emit)
    else:
        _write_array(value, depth, emit)


def _write_object(value: dict[Any, Any], depth: int, emit: Callable[[str], None]) -> None:
    _check_depth(depth)
    separator = "{"
    for key in sorted(value, key=None if _in_plain_order(value) else _utf16):
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
        return int.__repr__(value)
    if isinstance(value, float):
        return _ecmascript(_checked_float(value))
    raise _not_json(value)


def _checked_float(value: float) -> float:
    if not math.isfinite(value):
        raise InvalidRequest(_NUMBER)
    return value


def _ecmascript(value: float) -> str:
    """Number::toString of ECMA-262, which RFC 8785 prescribes; both languages use the shortest digits."""
    if _repr_is_ecmascript(value):
        return float.__repr__(value)
    if abs(value) < 2**53 and value.is_integer():
        return int.__repr__(int(value))
    sign, digits, exponent = Decimal(float.__repr__(value)).as_tuple()
    text = "".join(map(str, digits))
    point = len(text) + int(exponent)
    text = text.rstrip("0")
    return "-" * sign + _place_point(text, point)


def _place_point(text: str, point: int) -> str:
    if 0 < point <= 21:
        # What comes here is at least 2^53, so no digit is left behind the point.
        return text.ljust(point, "0")
    if -6 < point <= 0:
        return f"0.{'0' * -point}{text}"
    fraction = f".{text[1:]}" if len(text) > 1 else ""
    return f"{text[0]}{fraction}e{point - 1:+d}"


def _repr_is_ecmascript(value: float) -> bool:
    return 1e-4 <= abs(value) < 1e16 and not value.is_integer()


def _is_plain(value: object) -> bool:
    """Whether ``value`` is made of the exact types that ``json`` writes and reads back."""
    return _on_all_levels(value, 0, _all_text, None)


def _is_simple(value: object, depth: int) -> bool:
    """Whether ``json`` itself writes the canonical form of ``value``."""
    return _on_all_levels(value, depth, _in_plain_order, _repr_is_ecmascript)


def _on_all_levels(
    value: object,
    depth: int,
    keys_pass: Callable[[Collection[Any]], bool],
    float_passes: Callable[[float], bool] | None,
) -> bool:
    """Whether all types are plain, and all keys and floats pass; level by level, almost wholly in C."""
    values: list[Any] = [value]
    for _ in range(depth, MAX_DEPTH + 1):
        kinds = set(map(type, values))
        if not kinds <= _PLAIN:
            return False
        if float_passes and float in kinds and not all(float_passes(v) for v in values if type(v) is float):
            return False
        if kinds.isdisjoint(_CONTAINERS):
            return True
        keys, values = _children(values)
        if keys and not keys_pass(keys):
            return False
    raise InvalidRequest(_DEEP)


def _children(values: list[Any]) -> tuple[Collection[Any], list[Any]]:
    """The keys and the values in the containers among some values."""
    if len(values) == 1:
        (node,) = values
        return (node.keys(), list(node.values())) if type(node) is dict else ((), list(node))
    # By identity, so that a value that holds itself twice does not double at every level.
    nodes = {id(node): node for node in values if type(node) in _CONTAINERS}.values()
    objects = [node for node in nodes if type(node) is dict]
    arrays = chain.from_iterable(node for node in nodes if type(node) is not dict)
    keys = set(chain.from_iterable(objects))
    return keys, [*chain.from_iterable(map(dict.values, objects)), *arrays]


def _all_text(keys: Collection[Any]) -> bool:
    return set(map(type, keys)) <= {str}


def _in_plain_order(keys: Collection[Any]) -> bool:
    # Up to U+D7FF the order of code points, which Python sorts by, is the order of UTF-16 units.
    return _all_text(keys) and (all(map(str.isascii, keys)) or max(map(max, filter(None, keys))) <= "\ud7ff")


def freeze_json(value: object) -> JSON:
    """A deep copy of a caller's structure as plain JSON, checked to have a canonical form.

    Mappings become dicts, sequences lists, pydantic models what they send as JSON (names of the
    wire, unset fields left out). Keys keep their order, because models follow the order of a
    schema. Later changes of the original do not reach the copy.

    Raises:
        InvalidRequest: anything in it is not JSON, not finite, not encodable, or too deep.
    """
    with _Refusals():
        text = _dump_in_order(value if _is_plain(value) else _copy(value, 0))
        text.encode()
        return json.loads(text)


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
    if type(value) not in _CONTAINERS and _is_model(value):
        return _copy(_dumped(value), depth)
    if isinstance(value, Mapping):
        return _copy_object(value, depth)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        return [_copy(item, depth + 1) for item in value]
    raise _not_json(value)


def _copy_object(value: Mapping[Any, Any], depth: int) -> dict[str, JSON]:
    result: dict[str, JSON] = {}
    for key, item in value.items():
        _utf16(key)
        name = str.__str__(key)
        if name in result:
            raise InvalidRequest("A mapping gives the same key twice. Give every key once.")
        result[name] = _copy(item, depth + 1)
    return result


def _is_model(value: object) -> TypeGuard[BaseModel]:
    # Here and not at the top: importing memoflow is to be cheap, and pydantic is not.
    from pydantic import BaseModel

    return isinstance(value, BaseModel)


def _dumped(model: BaseModel) -> object:
    try:
        return model.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    except (ValueError, TypeError, RecursionError):
        raise InvalidRequest(
            f"A model of type {type(model).__name__} cannot be written as JSON. Pass plain values instead."
        ) from None
