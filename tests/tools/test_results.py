"""Results: an explicit table of what has an exact text form; everything else is refused."""

from __future__ import annotations

import json
import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, RootModel, SecretStr, field_serializer

from memoflow.errors import ResultNotEncodable
from memoflow.tools import (
    MAX_RESULT_BYTES,
    PROVIDER_MAX_BYTES,
    encode_result,
)

SECRET = "hunter2"


def text(value: object) -> str:
    return encode_result(value).text


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Odd(Enum):
    SET = frozenset({1})


class Loud(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "LOUD"


class Money(BaseModel):
    amount: Decimal
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    right: int
    left: Any


Named = namedtuple("Named", "a b")
ZONE = timezone(timedelta(hours=2))


@pytest.mark.parametrize("value", ["", "plain", '{"a":1}', "a\0b", "é😀", "null"])
def test_text_is_verbatim(value: str) -> None:
    """A text result is given to the model as it is, never quoted."""
    assert text(value) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "null"),
        (True, "true"),
        (5, "5"),
        (2**80, str(2**80)),
        (1.0, "1.0"),
        (1.5, "1.5"),
        ([], "[]"),
        ((1, "a"), '[1,"a"]'),
        (Named(1, 2), "[1,2]"),
        ({"b": 1, "a": [None]}, '{"b":1,"a":[null]}'),
        (OrderedDict(z=1, a=2), '{"z":1,"a":2}'),
        ({"é": "😀"}, '{"é":"😀"}'),
        (Decimal("1.10"), '"1.10"'),
        (date(2026, 1, 2), '"2026-01-02"'),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=ZONE), '"2026-01-02T03:04:05+02:00"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Colour.RED, '"red"'),
        (Level.HIGH, "3"),
        ({Colour.RED: Level.HIGH}, '{"red":3}'),
        (Loud("quiet"), "quiet"),
        ([Loud("quiet")], '["quiet"]'),
        ({Loud("k"): 1}, '{"k":1}'),
        (Pair(1, Pair(2, Decimal(3))), '{"right":1,"left":{"right":2,"left":"3"}}'),
        (Money(amount=Decimal("1.10")), '{"amount":"1.10","at":null}'),
        ([Money(amount=Decimal(1))], '[{"amount":"1","at":null}]'),
        (RootModel[list[int]]([1]), "[1]"),
    ],
)
def test_table_of_results(value: object, expected: str) -> None:
    """Every type of the table has one written form; keys keep their order."""
    assert text(value) == expected


def _generator() -> Iterator[int]:
    yield 1


class Handle:
    def __repr__(self) -> str:
        return SECRET


@pytest.mark.parametrize(
    "value",
    [
        b"\xff",
        bytearray(b"a"),
        {1, 2},
        frozenset(),
        _generator(),
        range(3),
        Handle(),
        Handle,
        Pair,
        Money,
        1j,
        time(1, 2),
        timedelta(1),
        datetime(2026, 1, 2),
        float("nan"),
        float("inf"),
        Decimal("NaN"),
        Decimal("-Infinity"),
        {1: "a"},
        {None: "a"},
        {b"a": 1},
        Odd.SET,
        10**400,
        -(10**5_000),
        "\ud800",
        ["\ud800"],
        {"\udfff": 1},
        ValueError(SECRET),
        print,
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("inside", [False, True])
def test_everything_else_is_refused(value: object, inside: bool) -> None:
    """No str() fallback, no repr, no pickle: what is not in the table is refused, wherever it is."""
    with pytest.raises(ResultNotEncodable) as refused:
        encode_result({"a": [value]} if inside else value)
    assert SECRET not in str(refused.value)


def test_refusal_names_the_type_and_the_way_out() -> None:
    """The error says which type it was and what to return."""
    with pytest.raises(ResultNotEncodable, match=r"type set\. Possible are text, None, numbers, lists"):
        encode_result({1})


def test_cycles_are_refused() -> None:
    """A value that holds itself is refused, and one that is merely shared is not."""
    loop: list[Any] = []
    loop.append({"a": loop})
    with pytest.raises(ResultNotEncodable, match="holds itself"):
        encode_result(loop)
    shared = [1]
    assert text([shared, shared]) == "[[1],[1]]"


def test_depth_is_bounded() -> None:
    """64 levels can be written, more are refused."""
    assert text(_nested(64)) == "[" * 64 + "]" * 64
    with pytest.raises(ResultNotEncodable, match="64 levels"):
        encode_result(_nested(65))
    with pytest.raises(ResultNotEncodable):
        encode_result(_nested(100_000))


def _nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_large_text_is_encoded_and_marked() -> None:
    """A result over the limit still has its text and size, so that it can be recorded as done."""
    result = encode_result("x" * 11, max_bytes=10)
    assert (len(result.text), result.size, result.too_large) == (11, 11, True)
    assert not encode_result("x" * 10, max_bytes=10).too_large


def test_size_is_in_bytes() -> None:
    """Size is that of the UTF-8 text."""
    result = encode_result("é" * 6, max_bytes=11)
    assert (result.size, result.too_large) == (12, True)


def test_default_and_highest_limit() -> None:
    """The default limit is 1 MiB, and no limit goes above what the provider takes."""
    assert not encode_result("x" * MAX_RESULT_BYTES).too_large
    assert encode_result("x" * (MAX_RESULT_BYTES + 1)).too_large
    assert encode_result("x" * (PROVIDER_MAX_BYTES + 1), max_bytes=10**9).too_large


def test_exploding_values_stop_early() -> None:
    """A few lists that stand for endless text are refused before they are written."""
    value: Any = ["x" * 100]
    for _ in range(60):
        value = [value] * 10
    with pytest.raises(ResultNotEncodable, match="far too large"):
        encode_result(value, max_bytes=1_000)


def test_many_keys_count_towards_the_size() -> None:
    """The texts of keys count like those of values."""
    key = "k" * 9_000
    with pytest.raises(ResultNotEncodable, match="far too large"):
        encode_result({key: 1}, max_bytes=1_000)


class Failing(BaseModel):
    a: int

    @field_serializer("a")
    def write(self, _: int) -> int:
        raise RuntimeError(SECRET)


class Zone(tzinfo):
    def utcoffset(self, _: datetime | None) -> timedelta:
        raise RuntimeError(SECRET)

    def dst(self, _: datetime | None) -> None: ...

    def tzname(self, _: datetime | None) -> str:
        return SECRET


class Lazy(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError(SECRET)


@pytest.mark.parametrize("value", [Failing(a=1), datetime(2026, 1, 1, tzinfo=Zone()), Lazy()])
def test_code_of_the_value_cannot_leak(value: object) -> None:
    """When the value's own code raises, the error is ours and holds none of its text, nor a cause."""
    with pytest.raises(ResultNotEncodable, match=r"raised \w+") as refused:
        encode_result([value])
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def test_mistyped_models_warn_nobody() -> None:
    """A model whose field holds another type is written without a warning that would print the value."""
    amount: Any = SECRET
    wrong = Money.model_construct(amount=amount)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert json.loads(text(wrong)) == {"amount": SECRET, "at": None}


def test_models_keep_their_own_json_form() -> None:
    """A pydantic model is written as it declares itself, so a secret stays masked."""

    class Login(BaseModel):
        password: SecretStr

    assert SECRET not in text(Login(password=SecretStr(SECRET)))


def test_models_with_bytes_or_nan_are_refused() -> None:
    """A model's own JSON form must be JSON as well."""

    class Blob(BaseModel):
        data: bytes | float

    with pytest.raises(ResultNotEncodable):
        encode_result(Blob(data=b"\xff"))
    with pytest.raises(ResultNotEncodable, match="NaN"):
        encode_result(Blob(data=float("nan")))


def test_slots_without_a_value_are_refused() -> None:
    """A half-made dataclass is refused like any other value that cannot be written."""
    with pytest.raises(ResultNotEncodable, match="AttributeError"):
        encode_result(object.__new__(Pair))


def test_encoded_results_do_not_print_themselves() -> None:
    """The text of a result is not in its representation."""
    assert SECRET not in repr(encode_result(SECRET))


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
VALUES = st.recursive(
    SCALARS,
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=20,
)


@given(VALUES)
def test_json_values_round_trip(value: Any) -> None:
    """A plain JSON value is read back from its text exactly, types and key order included."""
    result = encode_result(value)
    assert result.size == len(result.text.encode())
    if isinstance(value, str):
        assert result.text == value
    else:
        assert repr(json.loads(result.text)) == repr(value)


ANYTHING = st.recursive(
    SCALARS
    | st.binary()
    | st.decimals()
    | st.datetimes(timezones=st.none() | st.timezones())
    | st.dates()
    | st.uuids()
    | st.complex_numbers()
    | st.text(alphabet="a\ud800")
    | st.floats(),
    lambda children: (
        st.lists(children)
        | st.tuples(children)
        | st.dictionaries(st.text() | st.integers(), children)
        | st.builds(Pair, st.integers(), children)
    ),
    max_leaves=8,
)


@given(ANYTHING)
def test_any_value_is_written_or_refused(value: Any) -> None:
    """Whatever a tool returns either has a strict JSON form or is refused with our own error."""
    try:
        result = encode_result(value)
    except ResultNotEncodable:
        return
    result.text.encode()
    if not isinstance(value, str):
        json.loads(result.text, parse_constant=pytest.fail)


@pytest.mark.parametrize("long", [Decimal("1." + "1" * 1_000), 10**399])
def test_long_numbers_that_are_shared_are_refused_before_they_are_written(long: object) -> None:
    """One number in many places can stand for more text than there is memory, like any other value."""
    with pytest.raises(ResultNotEncodable, match="far too large"):
        encode_result([long] * 40_000)
