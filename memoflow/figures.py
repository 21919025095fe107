"""Amounts as people read them."""

from __future__ import annotations

from typing import Final

__all__ = ["NANO", "figure", "nanos"]

NANO: Final = 10**9
"""Nano-units in a unit of money."""


def nanos(amount: int) -> str:
    """Nano-units as a decimal number."""
    sign, rest = ("-", -amount) if amount < 0 else ("", amount)
    whole, part = divmod(rest, NANO)
    return f"{sign}{whole}.{part:09d}".rstrip("0").rstrip(".")


def figure(dimension: str, amount: int, currency: str | None = None) -> str:
    """An amount of a dimension; money as a decimal number, with its currency where that is known."""
    if dimension != "cost":
        return str(amount)
    return nanos(amount) if currency is None else f"{nanos(amount)} {currency}"
