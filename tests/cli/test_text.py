"""Values as text and as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from memoflow.budget import Amounts, Budget, Money
from memoflow.cli._balances import bar
from memoflow.cli._screen import show_fields, show_table
from memoflow.cli._text import clean, json_text, moment, plain
from memoflow.figures import nanos


@dataclass
class Record:
    """A record with one field of each kind."""

    at: int
    finished_at: int | None
    cost: int | None
    metadata: str | None
    amounts: Amounts
    limits: Budget
    paths: tuple[str, ...]
    held: bool


def test_a_record_has_one_json_form() -> None:
    """Times are text in UTC, money a decimal text, limits only those given, metadata what it was."""
    record = Record(
        1_800_000_000_000_001,
        None,
        1_250_000_000,
        '{"customer":7}',
        Amounts(total_tokens=5, cost=1),
        Budget(model_calls=3, cost=Money.of("0.5")),
        ("a", "b"),
        True,
    )
    assert plain(record) == {
        "at": "2027-01-15T08:00:00.000001Z",
        "finished_at": None,
        "cost": "1.25",
        "metadata": {"customer": 7},
        "amounts": {
            "total_tokens": 5,
            "input_tokens": 0,
            "output_tokens": 0,
            "model_calls": 0,
            "tool_calls": 0,
            "cost": "0.000000001",
            "wall_clock_ms": 0,
        },
        "limits": {"model_calls": 3, "cost": "0.5"},
        "paths": ["a", "b"],
        "held": True,
    }


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0"),
        (1, "0.000000001"),
        (10**9, "1"),
        (1_500_000_000, "1.5"),
        (10**18, "1000000000"),
        (-250_000_000, "-0.25"),
    ],
)
def test_money_is_exact(amount: int, text: str) -> None:
    """No float is involved, and no digit is lost."""
    assert nanos(amount) == text


def test_times_are_in_utc_to_the_second() -> None:
    """Nothing depends on the machine's own zone."""
    assert (moment(1_800_000_000_999_999), moment(None)) == ("2027-01-15T08:00:00Z", "")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 漢 💰", "plain ü 漢 💰"),
        ("a\nb", "a\\nb"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\u202edrawkcab", "\\u202edrawkcab"),
        ("\ud800", "\\ud800"),
    ],
)
def test_text_cannot_steer_the_terminal(text: str, shown: str) -> None:
    """What comes from a provider is shown, not obeyed."""
    assert clean(text) == shown


def test_json_cannot_steer_the_terminal_either() -> None:
    """It is the same JSON for whoever reads it with a program."""
    value = {"plain": "ü 漢 💰", "steering": "\u202e\x9b2J\x1b[2J\u200b\U000e0001"}
    shown = json_text(value)
    assert shown.replace("\n", "").isprintable()
    assert "ü 漢 💰" in shown
    assert json.loads(shown) == value


@pytest.mark.parametrize(
    ("figures", "drawn"),
    [
        ((0, 0, 0, 100), "[....................] 0%"),
        ((50, 0, 0, 100), "[##########..........] 50%"),
        ((50, 25, 20, 100), "[##########=====????.] 95%"),
        ((100, 0, 0, 100), "[####################] 100%"),
        ((1, 0, 0, 1_000), "[#...................] 0%"),
        ((0, 0, 1, 1_000), "[?...................] 0%"),
        ((0, 1, 0, 1_000), "[=...................] 0%"),
        ((999, 0, 0, 1_000), "[###################.] 99%"),
        ((999, 0, 1, 1_000), "[###################?] 100%"),
        ((300, 0, 0, 100), "[####################] 300%"),
        ((50, 100, 0, 100), "[##########==========] 150%"),
        ((0, 0, 0, 0), "[....................] 0%"),
        ((1, 0, 0, 0), "[####################] 100%"),
    ],
)
def test_bars_round_to_the_careful_side(figures: tuple[int, int, int, int], drawn: str) -> None:
    """Something used is never drawn as nothing, and something free never as full."""
    assert bar(*figures) == drawn


def test_tables_are_aligned_plain_text_when_piped(capsys: pytest.CaptureFixture[str]) -> None:
    """Columns by their widest cell, wide characters counted as two; nothing behind the last."""
    show_table(("A", "BB"), [("漢", 1), ("x\ny", None)], empty="none")
    assert capsys.readouterr().out == "A     BB\n漢    1\nx\\ny\n"


def test_an_empty_table_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing looks like something that went wrong."""
    show_table(("A", "BB"), [], empty="Nothing there.")
    assert capsys.readouterr().out == "Nothing there.\n"


def test_fields_without_a_value_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """Zero is a value, an empty text is not."""
    show_fields([("a", 0), ("long name", "x"), ("b", None), ("c", "")])
    assert capsys.readouterr().out == "a:          0\nlong name:  x\n"
