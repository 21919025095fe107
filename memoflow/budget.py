"""Budgets: what may be spent, in seven dimensions, as exact integers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from operator import add, neg, sub
from typing import Final, NamedTuple, Self

from memoflow.errors import InvalidBudget
from memoflow.figures import NANO, figure

__all__ = ["DIMENSIONS", "MAX_AMOUNT", "Amounts", "Budget", "Money", "check_amount"]

MAX_AMOUNT: Final = 10**15
"""Largest amount of one dimension in one limit or reservation.

Far above any real use (a million units of money in nano-units), and small enough that a
balance can hold thousands of them before a 64-bit column could overflow.
"""

_CURRENCY = re.compile(r"[A-Z]{3}")


def check_amount(name: str, value: object) -> int:
    """Return ``value`` if it is an integer from 0 to `MAX_AMOUNT`; bool and float are refused."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidBudget(f"{name} must be an integer, not {type(value).__name__}.")
    if not 0 <= value <= MAX_AMOUNT:
        size = "negative" if value < 0 else f"above {MAX_AMOUNT}"
        raise InvalidBudget(f"{name} must be from 0 to {MAX_AMOUNT}; the value given is {size}.")
    return value


@dataclass(frozen=True, slots=True)
class Money:
    """An exact amount of money: integer nano-units (10⁻⁹) of a currency, named by its ISO 4217 code."""

    nanos: int
    currency: str = "USD"

    def __post_init__(self) -> None:
        check_amount("cost in nano-units", self.nanos)
        if not isinstance(self.currency, str) or not _CURRENCY.fullmatch(self.currency):
            raise InvalidBudget("A currency is three capital letters, for example 'USD'.")

    @classmethod
    def of(cls, amount: str | int | Decimal, currency: str = "USD") -> Self:
        """Money from a decimal amount, for example ``Money.of("0.25")``.

        Floats are refused: 0.1 has no exact binary form.

        Raises:
            InvalidBudget: not a decimal number, negative, or finer than a nano-unit.
        """
        if isinstance(amount, bool) or not isinstance(amount, (str, int, Decimal)):
            raise InvalidBudget(f"A money amount is a str, int or Decimal, not {type(amount).__name__}.")
        try:
            value = Decimal(amount)
        except InvalidOperation:
            raise InvalidBudget(_NOT_A_DECIMAL) from None
        return cls(_nanos(value), currency)

    def __str__(self) -> str:
        return figure("cost", self.nanos, self.currency)


_NOT_A_DECIMAL: Final = "A money amount must be a finite decimal number, for example '0.25'."
_TOO_FINE: Final = "A money amount must not be finer than 0.000000001."


def _nanos(value: Decimal) -> int:
    # Not with Decimal arithmetic: it rounds to the precision of the caller's context.
    if not value.is_finite():
        raise InvalidBudget(_NOT_A_DECIMAL)
    # Before the exponent becomes digits: 1e999999999 would have a thousand million of them.
    if value and value.adjusted() > len(str(MAX_AMOUNT // NANO)):
        raise InvalidBudget(f"A money amount must be from 0 to {MAX_AMOUNT // NANO}.")
    if value and value.adjusted() < -9:
        raise InvalidBudget(_TOO_FINE)
    numerator, denominator = value.as_integer_ratio()
    nanos, rest = divmod(numerator * NANO, denominator)
    if rest:
        raise InvalidBudget(_TOO_FINE)
    return nanos


class Amounts(NamedTuple):
    """One exact integer for each dimension; the arithmetic of balances. Cost is in nano-units."""

    total_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    cost: int = 0
    wall_clock_ms: int = 0

    def plus(self, other: Amounts) -> Amounts:
        """The sum, dimension by dimension."""
        return Amounts._make(map(add, self, other))

    def minus(self, other: Amounts) -> Amounts:
        """The difference, dimension by dimension; may be negative."""
        return Amounts._make(map(sub, self, other))

    def negated(self) -> Amounts:
        """Every dimension with its sign turned."""
        return Amounts._make(map(neg, self))


DIMENSIONS: Final = Amounts._fields
"""The names of the seven dimensions, in the order used everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Amounts per dimension: a limit of an account, or the reservation of a call.

    A dimension left out is not limited (in a limit) or derived from the request (in a reservation).

    Args:
        total_tokens: input plus output tokens.
        input_tokens: input tokens, cached ones included.
        output_tokens: output tokens, reasoning included.
        model_calls: provider requests.
        tool_calls: tool executions.
        cost: money.
        wall_clock_ms: milliseconds of provider time.

    Raises:
        InvalidBudget: an amount is negative, not an integer, or above `MAX_AMOUNT`.
    """

    total_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    model_calls: int | None = None
    tool_calls: int | None = None
    cost: Money | None = None
    wall_clock_ms: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "cost":
                if value is not None and not isinstance(value, Money):
                    raise InvalidBudget(
                        f"cost must be Money, for example Money.of('0.25'), not {type(value).__name__}."
                    )
            elif value is not None:
                check_amount(field.name, value)

    @property
    def currency(self) -> str | None:
        """The currency of ``cost``, or None without one."""
        return None if self.cost is None else self.cost.currency

    def values(self) -> tuple[int | None, ...]:
        """The amounts in the order of `DIMENSIONS`, None where not given."""
        return tuple(value for _, value in self.items())

    def items(self) -> Iterator[tuple[str, int | None]]:
        """Pairs of dimension and amount (cost in nano-units), None where not given."""
        for name in DIMENSIONS:
            value = getattr(self, name)
            yield name, value.nanos if isinstance(value, Money) else value
