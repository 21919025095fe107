"""Budgets and money: exact integers, and nothing else."""

from __future__ import annotations

import copy
import decimal
import enum
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoflow.budget import DIMENSIONS, MAX_AMOUNT, Amounts, Budget, Money, check_amount
from memoflow.errors import InvalidBudget
from memoflow.figures import NANO

COUNTS = [name for name in DIMENSIONS if name != "cost"]
amounts = st.integers(0, MAX_AMOUNT)
signed = st.builds(Amounts, *[st.integers(-(10**18), 10**18)] * 7)


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [0, 1, MAX_AMOUNT])
def test_every_dimension_takes_whole_amounts(name: str, value: int) -> None:
    """0 and the largest amount are valid in each dimension, and 0 is not the same as left out."""
    budget = Budget(**{name: value})
    assert getattr(budget, name) == value
    assert dict(budget.items()) == {**dict.fromkeys(DIMENSIONS), name: value}


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (-1, "the value given is negative"),
        (MAX_AMOUNT + 1, f"the value given is above {MAX_AMOUNT}"),
        (10**5000, f"the value given is above {MAX_AMOUNT}"),
        (-(10**5000), "the value given is negative"),
        (True, "an integer, not bool"),
        (False, "an integer, not bool"),
        (1.0, "an integer, not float"),
        (float("nan"), "an integer, not float"),
        (float("inf"), "an integer, not float"),
        (Decimal(5), "an integer, not Decimal"),
        ("10", "an integer, not str"),
        ([1], "an integer, not list"),
    ],
    ids=lambda value: str(value)[:12] if isinstance(value, str | float) else type(value).__name__,
)
def test_other_amounts_are_refused(name: str, bad: Any, says: str) -> None:
    """The refusal names the dimension and what is wrong with the value."""
    with pytest.raises(InvalidBudget, match=rf"^{name} must be .*{says}\."):
        Budget(**{name: bad})


@pytest.mark.parametrize("bad", [5, 0.25, "0.25", Decimal("0.25"), True], ids=repr)
def test_a_cost_is_money(bad: Any) -> None:
    """A bare number has no currency, so it is no cost; the refusal shows how to write one."""
    with pytest.raises(InvalidBudget, match=rf"Money\.of\('0\.25'\), not {type(bad).__name__}"):
        Budget(cost=bad)


def test_budgets_take_names_only() -> None:
    """Amounts cannot be given by position or under a misspelt name."""
    with pytest.raises(TypeError):
        Budget(5)  # type: ignore[misc]
    with pytest.raises(TypeError):
        Budget(tokens=5)  # type: ignore[call-arg]


def test_items_and_values_follow_the_dimensions() -> None:
    """Both list all seven in the order of `DIMENSIONS`; cost is in nano-units."""
    budget = Budget(cost=Money.of("0.25"), total_tokens=5)
    assert list(dict(budget.items())) == list(DIMENSIONS)
    assert budget.values() == (5, None, None, None, None, 250_000_000, None)
    assert budget.currency == "USD"
    assert Budget().currency is None


def test_dimensions_are_those_of_the_ledger() -> None:
    """The names and their order are part of the schema."""
    assert DIMENSIONS == (
        "total_tokens",
        "input_tokens",
        "output_tokens",
        "model_calls",
        "tool_calls",
        "cost",
        "wall_clock_ms",
    )


def test_budgets_are_values() -> None:
    """Equal budgets are equal and hash alike, cannot be changed, and survive copy and pickle."""
    budget = Budget(total_tokens=5, cost=Money(7, "EUR"))
    assert len({budget, copy.deepcopy(budget), pickle.loads(pickle.dumps(budget))}) == 1
    with pytest.raises(AttributeError):
        budget.total_tokens = 6  # type: ignore[misc]


def test_an_integer_enum_is_an_integer() -> None:
    """A subclass of int other than bool counts as the number it is."""

    class Size(enum.IntEnum):
        SMALL = 100

    assert check_amount("total_tokens", Size.SMALL) == 100


# --- money ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "nanos"),
    [
        ("0.25", 250_000_000),
        ("0.000000001", 1),
        ("-0", 0),
        (0, 0),
        ("1e-9", 1),
        ("1E3", 1_000 * NANO),
        (1_000_000, MAX_AMOUNT),
        (Decimal("1.10"), 1_100_000_000),
        ("0e999999", 0),
        ("1." + "0" * 5_000, NANO),
        (" 2 ", 2 * NANO),
    ],
    ids=str,
)
def test_money_is_exact(amount: Any, nanos: int) -> None:
    """A decimal amount becomes nano-units without rounding."""
    assert Money.of(amount).nanos == nanos


@given(amounts)
def test_money_is_read_as_it_is_written(nanos: int) -> None:
    """The text of an amount is the shortest exact one and gives the amount back."""
    number, currency = str(Money(nanos, "EUR")).split()
    assert Money.of(number, currency) == Money(nanos, "EUR")
    assert not (number.endswith("0") and "." in number)


@pytest.mark.parametrize(
    ("amount", "says"),
    [
        (0.1, "str, int or Decimal, not float"),
        (True, "str, int or Decimal, not bool"),
        (None, "str, int or Decimal, not NoneType"),
        (b"1", "str, int or Decimal, not bytes"),
        ("", "finite decimal number"),
        ("one", "finite decimal number"),
        ("1,5", "finite decimal number"),
        ("NaN", "finite decimal number"),
        ("sNaN", "finite decimal number"),
        ("-Infinity", "finite decimal number"),
        ("-0.01", "negative"),
        ("0.0000000001", "finer than"),
        ("1e-999999999", "finer than"),
        ("0." + "3" * 40, "finer than"),
        ("0.1" + "0" * 60 + "1", "finer than"),
        ("1000000.000000001", "above"),
        (10**50, "from 0 to"),
        ("1e999999999", "from 0 to"),
    ],
    ids=lambda value: str(value)[:16],
)
def test_money_that_is_not_exact_is_refused(amount: Any, says: str) -> None:
    """Floats, NaN, fractions of a nano-unit and boundless amounts are refused, however they are written."""
    with pytest.raises(InvalidBudget, match=says):
        Money.of(amount)


def test_the_decimal_context_of_the_caller_does_not_round() -> None:
    """Money is exact under any precision, and finer amounts are still noticed."""
    with decimal.localcontext(prec=3):
        assert Money.of("123456.789012345").nanos == 123_456_789_012_345
        with pytest.raises(InvalidBudget, match="finer than"):
            Money.of("123456.7890123451")


def test_a_context_without_traps_makes_no_money() -> None:
    """Where the caller's context turns bad text into NaN, it is still refused."""
    with decimal.localcontext(traps=[]), pytest.raises(InvalidBudget, match="finite decimal number"):
        Money.of("one")


@pytest.mark.parametrize("currency", ["usd", "US", "USDT", "US ", "ÜSD", "", None, 840])
@pytest.mark.parametrize(
    "make", [lambda currency: Money(1, currency), lambda currency: Money.of("1", currency)]
)
def test_a_currency_is_three_capital_letters(make: Callable[[Any], Money], currency: Any) -> None:
    """Other spellings would make two currencies of one."""
    with pytest.raises(InvalidBudget, match="three capital letters"):
        make(currency)


@pytest.mark.parametrize("nanos", [-1, MAX_AMOUNT + 1, 1.0, True, "1"])
def test_nano_units_are_checked(nanos: Any) -> None:
    """Money made from nano-units is as strict as any amount."""
    with pytest.raises(InvalidBudget, match="cost in nano-units must be"):
        Money(nanos)


def test_money_of_two_currencies_differs() -> None:
    """The currency is part of the value."""
    assert Money(1, "USD") != Money(1, "EUR")


# --- amounts ----------------------------------------------------------------------------------------


@given(signed, signed)
def test_amounts_add_up_dimension_by_dimension(a: Amounts, b: Amounts) -> None:
    """Sum, difference and sign are those of the single dimensions, and undo each other."""
    assert a.plus(b) == tuple(x + y for x, y in zip(a, b, strict=True))
    assert a.plus(b).minus(b) == a
    assert a.minus(b) == a.plus(b.negated())
    assert type(a.plus(b)) is type(a.minus(b)) is type(a.negated()) is Amounts


def test_amounts_are_not_lengthened_by_plus() -> None:
    """The plain tuple operator would join two tuples; `plus` adds."""
    assert Amounts(1).plus(Amounts(2, cost=3)) == Amounts(3, cost=3)
    assert Amounts().plus(Amounts()) == Amounts() == (0,) * 7
