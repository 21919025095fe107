"""Logs as JSON Lines."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoflow.causal.jsonl import MAX_LINE_BYTES, dump_record, read_jsonl, read_numbered, write_jsonl
from memoflow.causal.record import RecordRefused
from tests.causal._records import nested, rec
from tests.causal.test_record import PLAIN, plain_records

GOOD = json.dumps(PLAIN).encode()
SECRET = "s3cr3t-payload"


@settings(max_examples=30)
@given(st.lists(plain_records(), max_size=3))
def test_a_log_comes_back_as_it_was(plain: list[dict[str, Any]]) -> None:
    """Written and read again without loss, whatever is in it."""
    file = io.BytesIO()
    written = write_jsonl(read_jsonl([json.dumps(one).encode() for one in plain]), file)
    assert written == len(plain)
    assert [json.loads(line) for line in file.getvalue().splitlines()] == plain


def test_records_are_read_when_they_are_asked_for() -> None:
    """A log is never held whole: the second line is not looked at before the first record is taken."""
    taken: list[int] = []

    def lines() -> Iterator[bytes]:
        for number in range(3):
            taken.append(number)
            yield GOOD

    records = read_jsonl(lines())
    next(records)
    assert taken == [0]


def test_lines_are_counted_and_blank_ones_skipped() -> None:
    """Numbers are those of an editor."""
    numbered = list(read_numbered(io.BytesIO(b"\n" + GOOD + b"\n  \n" + GOOD + b"\r\n")))
    assert [line for line, _ in numbered] == [2, 4]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "MALFORMED"),
        (b"\xff\xfe", "MALFORMED"),
        (b"[]", "JSON object, not an array"),
        (b"null", "JSON object, not null"),
        (b'{"id": 1, "id": 2}', "DUPLICATE_KEY"),
        (GOOD[:-1] + b', "x": NaN}', "NOT_FINITE"),
        (GOOD[:-1] + b', "x": 1e999}', "NOT_FINITE"),
        (GOOD[:-1] + b', "x": ' + b"9" * 500 + b"}", "TOO_MANY_DIGITS"),
        (GOOD[:-1] + b', "x": ' + nested(70).encode() + b"}", "TOO_DEEP"),
        (nested(200_000).encode(), "TOO_DEEP"),
        (GOOD[:-1] + b', "x": "\\ud800"}', "LONE_SURROGATE"),
        (b'{"id": "' + SECRET.encode() + b'"}', "missing required field"),
        (b" " * (10 << 20) + GOOD, "longer than"),
        (GOOD[:-1] + b', "x": "' + b"y" * (10 << 20) + b'"}', "longer than"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_line_that_is_no_record_is_named(line: bytes, words: str) -> None:
    """By its number and what is wrong with it, never by its text; whatever it is, nothing else is raised."""
    for source in (io.BytesIO(GOOD + b"\n" + line + b"\n"), [GOOD, line]):
        with pytest.raises(RecordRefused, match=words) as caught:
            list(read_jsonl(source))
        assert caught.value.line == 2
        assert str(caught.value).startswith("Line 2: ")
        assert SECRET not in str(caught.value)


def test_no_more_of_a_line_is_held_than_is_allowed() -> None:
    """A line without an end is not read to its end."""

    class Endless(io.BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            assert size is not None
            assert 0 < size <= MAX_LINE_BYTES + 8
            return b"x" * size

    with pytest.raises(RecordRefused, match="longer than"):
        next(read_jsonl(Endless()))


def test_a_line_is_compact() -> None:
    """No blanks, and text as it is."""
    line = dump_record(rec("ä", object={"b": [1, 2]}))
    assert line.startswith('{"id":"ä","timestamp":5,"actor":{"kind":"agent"')
    assert '"object":{"b":[1,2]}' in line
