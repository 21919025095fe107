"""Balances of accounts as rows with bars."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from memoflow.budget import DIMENSIONS
from memoflow.cli._text import moment, plain
from memoflow.figures import figure
from memoflow.ledger.accounts import AccountInfo

__all__ = ["HEADERS", "account_json", "balance_rows", "bar", "period_text"]

HEADERS = ("ACCOUNT", "PERIOD", "DIMENSION", "SETTLED", "HELD", "UNKNOWN", "LIMIT", "USE", "NOTES")
WIDTH = 20


@dataclass(frozen=True, slots=True)
class _Use:
    """What is used of one dimension of an account."""

    dimension: str
    settled: int
    held: int
    unknown: int
    limit: int | None
    soft: int | None

    @property
    def used(self) -> int:
        return self.settled + self.held + self.unknown


def _uses(info: AccountInfo) -> Iterator[_Use]:
    """The dimensions that are limited or used."""
    columns = (DIMENSIONS, info.settled, info.held, info.unknown, info.hard.values(), info.soft.values())
    for use in (_Use(*values) for values in zip(*columns, strict=True)):
        if use.used or use.limit is not None or use.soft is not None:
            yield use


def bar(settled: int, held: int, unknown: int, limit: int) -> str:
    """A limit and what is used of it: ``#`` settled, ``=`` held, ``?`` unknown, ``.`` free.

    What is used is never drawn as nothing, and less than the limit never as full.
    """
    used = settled + held + unknown
    ends = [_cells(part, limit) for part in (settled, settled + held, used)]
    filled = min(WIDTH, max(ends[2], 1 if used else 0))
    if used < limit:
        filled = min(filled, WIDTH - 1)
    ends = [min(end, filled) for end in ends[:2]] + [filled]
    drawn = "#" * ends[0] + "=" * (ends[1] - ends[0])
    last = "?" if unknown else "=" if held else "#"
    drawn += last * (ends[2] - ends[1])
    percent = 100 if limit == 0 and used else 0 if limit == 0 else used * 100 // limit
    return f"[{drawn:.<{WIDTH}}] {percent}%"


def _cells(amount: int, limit: int) -> int:
    if limit == 0:
        return WIDTH if amount else 0
    return min(WIDTH, amount * WIDTH // limit)


def balance_rows(info: AccountInfo) -> list[tuple[str, ...]]:
    """One row for each dimension that is limited or used; the account is named in the first."""
    rows = []
    for use in _uses(info):
        rows.append(
            (
                _amount(info, use.dimension, use.settled),
                _amount(info, use.dimension, use.held),
                _amount(info, use.dimension, use.unknown),
                "-" if use.limit is None else _amount(info, use.dimension, use.limit),
                "" if use.limit is None else bar(use.settled, use.held, use.unknown, use.limit),
                ", ".join(_notes(info, use)),
            )
        )
    names = [use.dimension for use in _uses(info)] or ["-"]
    rows = rows or [("0", "0", "0", "-", "", ", ".join(_state(info)))]
    first = [(info.path, period_text(info)), *[("", "")] * (len(rows) - 1)]
    return [(*head, name, *row) for head, name, row in zip(first, names, rows, strict=True)]


def _notes(info: AccountInfo, use: _Use) -> Iterator[str]:
    yield from _state(info)
    if use.limit is not None and use.used > use.limit:
        yield "OVER LIMIT"
    if use.soft is not None:
        above = "above" if use.used > use.soft else "of"
        yield f"{above} soft {_amount(info, use.dimension, use.soft)}"


def _state(info: AccountInfo) -> Iterator[str]:
    if info.state != "OPEN":
        yield info.state


def _amount(info: AccountInfo, dimension: str, amount: int) -> str:
    return figure(dimension, amount, info.currency)


def period_text(info: AccountInfo) -> str:
    """The period for people: its kind, and when it ends."""
    if info.period_end is None:
        return info.period
    zone = "" if info.time_zone == "UTC" else f" ({info.time_zone})"
    return f"{info.period}{zone} to {moment(info.period_end)}"


def account_json(info: AccountInfo) -> dict[str, object]:
    """An account with what follows from its balance."""
    more = {"used": plain(info.used), "over_limit": plain(info.over_limit), "alerts": plain(info.alerts)}
    return {**plain(info), **more}
