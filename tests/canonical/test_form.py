"""The canonical form, and frozen copies."""

from __future__ import annotations

import collections
import enum
import json
import math
import struct
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from memoflow.canonical import MAX_DEPTH, Digester, canonical, form, freeze_json, sha256_hex
from memoflow.errors import InvalidRequest
from tests.canonical._values import SECRET, any_json, carried_by_rfc8785, keys, nested


def slow_canonical(value: Any) -> bytes:
    """The canonical form without any help of the C encoder."""
    with patch.object(form, "_WHOLE_TRIES", -1):
        return canonical(value)


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Point(NamedTuple):
    x: int
    y: int


class Ratio(float):
    pass


def test_example_of_rfc_8785() -> None:
    """The complete example of RFC 8785, section 3.2, has the bytes given there."""
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"\u002f",
        "literals": [None, True, False],
    }
    assert canonical(value) == bytes.fromhex(
        """
        7b 22 6c 69 74 65 72 61 6c 73 22 3a 5b 6e 75 6c 6c 2c 74 72 75 65 2c 66 61 6c 73 65 5d 2c 22 6e 75 6d
        62 65 72 73 22 3a 5b 33 33 33 33 33 33 33 33 33 2e 33 33 33 33 33 33 33 2c 31 65 2b 33 30 2c 34 2e 35
        2c 30 2e 30 30 32 2c 31 65 2d 32 37 5d 2c 22 73 74 72 69 6e 67 22 3a 22 e2 82 ac 24 5c 75 30 30 30 66
        5c 6e 41 27 42 5c 22 5c 5c 5c 5c 5c 22 2f 22 7d
        """
    )


def test_keys_are_sorted_by_utf16_units() -> None:
    """The sorting example of RFC 8785, section 3.2.3: an astral character sorts below U+FB33."""
    value = {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\u0080": 6, "\u00f6": 7}
    assert list(json.loads(canonical(value)).values()) == [2, 4, 6, 7, 1, 5, 3]


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("ffefffffffffffff", "-1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("c340000000000000", "-9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("44b52d02c7e14af7", "1.0000000000000001e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("41b3de4355555554", "333333333.33333325"),
        ("41b3de4355555555", "333333333.3333333"),
        ("41b3de4355555556", "333333333.3333334"),
        ("41b3de4355555557", "333333333.33333343"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_numbers_of_rfc_8785(bits: str, text: str) -> None:
    """The number samples of RFC 8785, appendix B, alone and inside an array."""
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical(value) == text.encode()
    assert canonical([value, "x"]) == f'[{text},"x"]'.encode()


@given(carried_by_rfc8785)
@example({"\uffff": 1, "\U00010000": 1})
@example({"": 0.5, "a": 1.0})
def test_form_agrees_with_rfc8785(value: Any) -> None:
    """Whatever the rfc8785 library can carry has the same bytes here, on the fast path and without it."""
    expected = rfc8785.dumps(value)
    assert canonical(value) == expected
    assert slow_canonical(value) == expected


@given(any_json)
def test_fast_path_equals_slow_path(value: Any) -> None:
    """The C encoder is used only where it writes the same bytes."""
    assert canonical(value) == slow_canonical(value)


@given(any_json)
def test_form_is_stable(value: Any) -> None:
    """Reading the form and writing it again changes nothing: equal values have one form."""
    form_once = canonical(value)
    assert canonical(json.loads(form_once)) == form_once


@given(st.dictionaries(keys, any_json, max_size=5), st.randoms())
def test_order_of_keys_does_not_matter(value: dict[str, Any], random: Any) -> None:
    """The same members inserted in another order have the same form."""
    items = list(value.items())
    random.shuffle(items)
    assert canonical(dict(items)) == canonical(value)


def test_a_usual_request_takes_the_fast_path() -> None:
    """A request with text, integers and a fraction is written by the C encoder as a whole."""
    request = {"model": "m", "temperature": 0.7, "input": [{"role": "user", "content": "né 🙂"}], "n": 1}
    assert form._is_simple(request, 0)
    assert not form._is_simple({**request, "top_p": 1.0}, 0)


def test_distinct_values_have_distinct_forms() -> None:
    """Text, number, truth and null stay apart; Unicode is not normalised; arrays keep their order."""
    values: list[Any] = [
        1,
        "1",
        True,
        None,
        "true",
        [1],
        [[1]],
        {"1": 1},
        "caf\u00e9",
        "cafe\u0301",
        [1, 2],
        [2, 1],
        "",
        {},
        [],
    ]
    assert len({canonical(value) for value in values}) == len(values)


def test_a_whole_float_is_the_integer() -> None:
    """JSON knows one kind of number: 1.0 has the form of 1, and -0.0 that of 0."""
    assert canonical([1.0, -0.0, 1e15, 2.0**53]) == b"[1,0,1000000000000000,9007199254740992]"


def test_integers_beyond_2_53_are_exact() -> None:
    """Neighbouring 64-bit ids, which are one number as doubles, have different digests."""
    ids = [2**53, 2**53 + 1, 2**63 - 1, -(2**63), 10**400]
    assert canonical(ids) == ("[" + ",".join(map(str, ids)) + "]").encode()
    assert sha256_hex(2**53) != sha256_hex(2**53 + 1)


def test_subclasses_are_written_as_their_base() -> None:
    """Enums of text and numbers, named tuples and ordered dicts are the plain values they stand for."""
    value = {Colour.RED: [Level.HIGH, Point(1, 2), Ratio(0.5), collections.OrderedDict(a=1)]}
    assert canonical(value) == b'{"red":[3,[1,2],0.5,{"a":1}]}' == slow_canonical(value)


@pytest.mark.parametrize("function", [canonical, freeze_json, sha256_hex, Digester().json])
@pytest.mark.parametrize(
    "bad",
    [
        math.nan,
        math.inf,
        -math.inf,
        "\ud83d",
        {"\udc00": 1},
        10**5000,
        {1: "a"},
        {None: 1},
        {True: 1},
        {("a",): 1},
        {1: 1, "a": 2},
        b"bytes",
        bytearray(b"x"),
        {1, 2},
        Decimal("1.10"),
        datetime(2026, 1, 1, tzinfo=UTC),
        object(),
        (n for n in [1]),
        1j,
    ],
    ids=lambda bad: type(bad).__name__,
)
def test_what_json_cannot_carry_is_refused(function: Callable[[object], object], bad: object) -> None:
    """Each is refused at the root and deep inside, and nothing of the value is in the traceback."""
    inside = {"text": SECRET, "deep": [[{"x": [[bad, 1.0]]}]]}
    for value in (bad, inside):
        with pytest.raises(InvalidRequest) as caught:
            function(value)
        assert SECRET not in "".join(traceback.format_exception(caught.value))
        assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_refusal_says_type_and_remedy() -> None:
    """The sentences name what was found and what to use."""
    with pytest.raises(InvalidRequest, match=r"type set is not plain JSON\. Use dict with text keys"):
        canonical([{1}])
    with pytest.raises(InvalidRequest, match=r"key of type int is not text\. Convert keys"):
        canonical({1: 2})
    with pytest.raises(InvalidRequest, match=r"lone surrogate.*Decode the text"):
        canonical("\ud800")
    with pytest.raises(InvalidRequest, match=r"NaN, infinite.*Use None or text"):
        canonical(math.nan)
    with pytest.raises(InvalidRequest, match=rf"deeper than {MAX_DEPTH} levels, or holds itself"):
        canonical(nested(MAX_DEPTH + 1))


@pytest.mark.parametrize("odd", [0.5, 1.0], ids=["fast", "slow"])
def test_depth_is_bounded(odd: float) -> None:
    """`MAX_DEPTH` levels have a form, one more has none, whichever path is taken."""
    deep: Any = odd
    for _ in range(MAX_DEPTH):
        deep = [deep]
    assert canonical(deep).count(b"[") == MAX_DEPTH
    assert freeze_json(deep) == deep
    for function in (canonical, freeze_json):
        with pytest.raises(InvalidRequest):
            function([deep])


@pytest.mark.parametrize("inner", [["a"], [1]], ids=["texts", "numbers"])
def test_depth_is_bounded_alike_for_all_lists(inner: Any) -> None:
    """A list of texts, which is written in one go, is no level for free."""
    deep = inner
    for _ in range(MAX_DEPTH - 2):
        deep = [deep, 1.0]
    assert canonical([deep]).count(b"[") == MAX_DEPTH
    with pytest.raises(InvalidRequest):
        canonical([[deep], 1.0])


@pytest.mark.parametrize("function", [canonical, freeze_json])
def test_a_caller_deep_in_its_stack_gets_a_refusal(function: Callable[[object], object]) -> None:
    """Where the interpreter's own limit comes first, the error is the same as at `MAX_DEPTH`."""

    def dive() -> None:
        try:
            dive()
        except RecursionError:
            pass
        else:
            return
        function([*nested(MAX_DEPTH - 1), 1.0])

    with pytest.raises(InvalidRequest, match=f"deeper than {MAX_DEPTH} levels"):
        dive()


def test_a_value_that_holds_itself_is_refused() -> None:
    """Cycles end at the depth limit, also where each level holds the value twice."""
    twice: list[Any] = []
    twice += [twice, twice]
    table: dict[str, Any] = {"x": 1.0}
    table["self"] = [table]
    for value in (twice, table):
        for function in (canonical, freeze_json):
            with pytest.raises(InvalidRequest, match="holds itself"):
                function(value)


class Schema(BaseModel):
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool = True
    note: str | None = None


def test_a_frozen_copy_is_independent_and_keeps_key_order() -> None:
    """Later changes of the original do not reach the copy; keys stay as they were given."""
    original = {"z": [1, {"b": 1, "a": 2}], "a": (1, 2)}
    frozen = freeze_json(original)
    original["z"].append(SECRET)  # type: ignore[attr-defined]
    assert json.dumps(frozen) == '{"z": [1, {"b": 1, "a": 2}], "a": [1, 2]}'


def test_structures_of_other_types_become_plain() -> None:
    """Mappings, sequences, models and enums become exact plain types."""
    value = {
        "b": collections.deque([Point(1, 2)]),
        "a": Schema(schema={"z": 1, "a": 2}),
        "r": range(2),
        "c": Colour.RED,
        "u": collections.UserDict(x=Level.HIGH),
        "f": Ratio(0.5),
    }
    plain = freeze_json(MappingProxyType(value))
    assert json.dumps(plain) == (
        '{"b": [[1, 2]], "a": {"schema": {"z": 1, "a": 2}}, "r": [0, 1], "c": "red", "u": {"x": 3}, "f": 0.5}'
    )
    assert [type(plain["c"]), type(plain["u"]["x"]), type(plain["f"])] == [str, int, float]


def test_a_model_with_a_number_that_is_not_finite_is_refused() -> None:
    """What a model holds is checked like anything else."""

    class Score(BaseModel):
        value: float

    with pytest.raises(InvalidRequest, match="NaN"):
        freeze_json([Score(value=math.nan)])


def test_a_model_that_cannot_be_written_is_refused() -> None:
    """A field that pydantic cannot write as JSON is a refusal that names the model only."""

    class Odd(BaseModel):
        thing: object

    with pytest.raises(InvalidRequest, match="A model of type Odd cannot be written") as caught:
        freeze_json(Odd(thing=type(SECRET, (), {})()))
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_structure_that_holds_itself_is_refused() -> None:
    """Cycles through other mappings and sequences end at the depth limit too."""
    for value in (collections.UserDict[str, Any](), collections.UserList[Any]()):
        value.update(a=value) if isinstance(value, collections.UserDict) else value.append(value)
        with pytest.raises(InvalidRequest, match="holds itself"):
            freeze_json(value)


def test_a_mapping_with_a_repeated_key_is_refused() -> None:
    """A multi-dict would lose a value."""

    class Twice(collections.UserDict[str, int]):
        def items(self) -> Any:
            return [("a", 1), ("a", 2)]

    with pytest.raises(InvalidRequest, match="same key twice"):
        freeze_json(Twice())


@given(any_json)
def test_a_frozen_copy_equals_its_original(value: Any) -> None:
    """Plain values come back equal, in order and with their types, whichever way they are copied."""
    assert repr(freeze_json(value)) == repr(value) == repr(form._copy(value, 0))
