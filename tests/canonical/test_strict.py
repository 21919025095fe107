"""The strict parser."""

from __future__ import annotations

import json
import traceback
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoflow.canonical import StrictJSONError, canonical, parse_strict
from tests.canonical._values import SECRET, any_json, nested


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "MALFORMED"),
        (" \n", "MALFORMED"),
        ("{", "MALFORMED"),
        ('{"q": oops"}', "MALFORMED"),
        ('{"a": 5', "MALFORMED"),
        ("{} {}", "MALFORMED"),
        ("{'a': 1}", "MALFORMED"),
        ("[1,]", "MALFORMED"),
        ("01", "MALFORMED"),
        ("1.", "MALFORMED"),
        (".5", "MALFORMED"),
        ("+1", "MALFORMED"),
        ("0x10", "MALFORMED"),
        ("True", "MALFORMED"),
        ('"a\nb"', "MALFORMED"),
        ('"a\x00b"', "MALFORMED"),
        ("\u00a0{}", "MALFORMED"),
        ("\u0661", "MALFORMED"),
        ("\ufeff{}", "MALFORMED"),
        (b"\xef\xbb\xbf{}", "MALFORMED"),
        (b'"\xff"', "MALFORMED"),
        ("{}".encode("utf-16"), "MALFORMED"),
        (b'"\xed\xa0\xbd"', "MALFORMED"),
        ('{"a":1,"a":1}', "DUPLICATE_KEY"),
        ('{"a":1,"\\u0061":2}', "DUPLICATE_KEY"),
        ('[{"x":{"a":1,"b":2,"a":3}}]', "DUPLICATE_KEY"),
        ('{"score": NaN}', "NOT_FINITE"),
        ("[Infinity]", "NOT_FINITE"),
        ("-Infinity", "NOT_FINITE"),
        ('{"x": 1e400}', "NOT_FINITE"),
        ("-1e309", "NOT_FINITE"),
        ('{"s":"\\ud83d"}', "LONE_SURROGATE"),
        ('{"\\uDE00":1}', "LONE_SURROGATE"),
        ('"\\ude00\\ud83d"', "LONE_SURROGATE"),
        ('"\ud83d"', "LONE_SURROGATE"),
        ("1" * 401, "TOO_MANY_DIGITS"),
        ("-" + "1" * 401, "TOO_MANY_DIGITS"),
        ("1" * 5000, "TOO_MANY_DIGITS"),
        ("0." + "1" * 400, "TOO_MANY_DIGITS"),
        ('{"' + "x" * 400 + '": ' + "1" * 401 + "}", "TOO_MANY_DIGITS"),
        ("[" * 65 + "]" * 65, "TOO_DEEP"),
        ('{"a":' * 65 + "1" + "}" * 65, "TOO_DEEP"),
        ("[" * 100_000, "TOO_DEEP"),
        (" " * 1_000_001, "TOO_LARGE"),
    ],
)
def test_strict_parser_refuses(text: str | bytes, problem: str) -> None:
    """Each kind of unsafe document is refused under its code."""
    with pytest.raises(StrictJSONError) as caught:
        parse_strict(text, max_bytes=1_000_000)
    assert caught.value.problem == problem
    assert f"({problem})" in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("null", None),
        (b'"\xc3\xa9"', "é"),
        ("\t[ 1 , 2.5e-1 , true ]\r\n", [1, 0.25, True]),
        ('"\\ud83d\\ude00 \\\\ud83d"', "\U0001f600 \\ud83d"),
        ('"a\\u0000b"', "a\0b"),
        ("9007199254740993", 9007199254740993),
        ("1" * 400, int("1" * 400)),
        ("-" + "1" * 400, -int("1" * 400)),
        ("1e308", 1e308),
        ("-0." + "1" * 398, -float("0." + "1" * 398)),
        ("1e-400", 0.0),
        ("[" * 64 + "]" * 64, nested(64)),
        ('["' + "[{" * 99 + '"]', ["[{" * 99]),
        ("[" + "[],{}," * 99 + "1]", [*[[], {}] * 99, 1]),
        ('{"long": "' + "x" * 400 + '", "n": 12}', {"long": "x" * 400, "n": 12}),
    ],
)
def test_strict_parser_accepts(text: str | bytes, value: Any) -> None:
    """Documents at the limits are read exactly."""
    result = parse_strict(text, max_bytes=1_000)
    assert result == value
    assert type(result) is type(value)


def test_size_is_counted_in_bytes() -> None:
    """The limit counts UTF-8 bytes and is inclusive; the message gives both figures."""
    assert parse_strict('"é"', max_bytes=4) == "é"
    for text in ('"é"', '"é"'.encode()):
        with pytest.raises(StrictJSONError, match="4 bytes, 3 at most"):
            parse_strict(text, max_bytes=3)


def test_limits_can_be_narrowed() -> None:
    """Depth and digits follow the arguments; digits never rise above the module's limit."""
    with pytest.raises(StrictJSONError, match="1 levels at most"):
        parse_strict("[[1]]", max_bytes=99, max_depth=1)
    with pytest.raises(StrictJSONError, match="3 at most"):
        parse_strict("1234", max_bytes=99, max_digits=3)
    with pytest.raises(StrictJSONError, match="400 at most"):
        parse_strict("1" * 401, max_bytes=999, max_digits=10**6)


@given(any_json, st.booleans())
def test_strict_parser_reads_what_json_writes(value: Any, ascii_only: bool) -> None:
    """Every plain value comes back equal, with its types."""
    text = json.dumps(value, ensure_ascii=ascii_only)
    for document in (text, text.encode()):
        result = parse_strict(document, max_bytes=10**6)
        assert repr(result) == repr(value)


@given(
    st.text(max_size=30) | st.text('{}[]",:\\u0123abdDeE+-. NaInfty', max_size=30) | st.binary(max_size=30)
)
def test_strict_parser_accepts_no_more_than_json(text: str | bytes) -> None:
    """Any input either raises `StrictJSONError` or is what the standard parser reads, and has a form."""
    try:
        value = parse_strict(text, max_bytes=10**6)
    except StrictJSONError:
        return
    assert repr(value) == repr(json.loads(text))
    canonical(value)


def test_parser_errors_hold_no_text() -> None:
    """No problem repeats any of the document, in the message or in the printed traceback."""
    for text in (
        SECRET,
        f'{{"{SECRET}":1,"{SECRET}":2}}',
        f'["{SECRET}", NaN]',
        f'"{SECRET}\\ud800"',
        f'"{SECRET}\ud800"',
    ):
        with pytest.raises(StrictJSONError) as caught:
            parse_strict(text, max_bytes=1000)
        assert SECRET not in "".join(traceback.format_exception(caught.value))
