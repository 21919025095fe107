"""What is reserved for an input, beside what a real model counted."""

from __future__ import annotations

import pytest

from certification.estimate.cases import CASES
from certification.estimate.program import Row, measure
from certification.estimate.server import Llama

LARGE = 5_000  # bytes; what is larger takes the model long, and shows nothing else


@pytest.fixture(scope="module")
def rows(llama: Llama) -> list[Row]:
    """All inputs that are not large, over each API."""
    return list(measure(llama, [case for case in CASES if sum(map(len, case.turns)) < LARGE]))


def test_a_bound_is_never_below_the_actual(rows: list[Row]) -> None:
    """Whatever the text: bytes and the documented frames are enough for a byte-level vocabulary."""
    assert [row for row in rows if row.bound < row.actual] == []


def test_a_count_is_the_actual(rows: list[Row]) -> None:
    """The server's count of an input is what its reply reports."""
    assert [row for row in rows if row.counted not in (None, row.actual)] == []
    assert {row.api for row in rows if row.counted is None} == {"chat"}


def test_the_margin_for_unknown_vocabularies_is_enough(rows: list[Row]) -> None:
    """This one is a quarter the size of the one that is counted with, and still no estimate is exceeded."""
    assert [row for row in rows if row.estimate < row.actual] == []


def test_an_estimate_is_never_above_the_bound(rows: list[Row]) -> None:
    """It is there to leave more of a budget for the output, and does."""
    assert [row for row in rows if row.estimate > row.bound] == []
    code = [row for row in rows if row.case == "Python"]
    assert all(row.estimate < row.bound * 2 / 3 for row in code)
