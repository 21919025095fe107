"""What was spent, by account, model, tool, day or basis of the input, and what unknowns still hold.

Everything is summed by the database: a report reads as many rows as it has groups and accounts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from sqlalchemy import BigInteger, ColumnElement, Connection, Select, and_, case, func, literal_column, select

from memoflow.budget import DIMENSIONS, Amounts
from memoflow.ledger import schema as s
from memoflow.ledger.account_queries import currencies
from memoflow.ledger.holdings import chain_of
from memoflow.ledger.queries import Filter, charged_to
from memoflow.ledger.unknowns import undecided, undecided_effect
from memoflow.periods import DAY_US, to_datetime

__all__ = ["Grouping", "Spending", "ToolUse", "spending", "tool_use"]

Grouping = Literal["account", "model", "day", "basis"]

_i, _r, _a, _e = (table.c for table in (s.invocations, s.reservations, s.activities, s.effects))


@dataclass(slots=True)
class Spending:
    """The invocations of one group whose cost is in one currency (None: no account of theirs counts cost).

    Attributes:
        key: the account, model, day (UTC) or basis. An account includes the accounts below it.
        invocations: how many there are; settled and unknown: how many of them are.
        reserved: what the settled ones had reserved; actual: what they used.
        measured: the input of those that have usage, as it was measured beforehand; counted: as the
            provider counted it; exceeded: how many had more than was measured.
        exposure: what the unknown ones hold.
    """

    key: str
    currency: str | None
    invocations: int = 0
    settled: int = 0
    unknown: int = 0
    reserved: Amounts = field(default_factory=Amounts)
    actual: Amounts = field(default_factory=Amounts)
    measured: int = 0
    counted: int = 0
    exceeded: int = 0
    exposure: Amounts = field(default_factory=Amounts)

    def add(self, row: Any) -> None:
        """Add the sums of one row."""
        for name in ("invocations", "settled", "unknown", "measured", "counted", "exceeded"):
            setattr(self, name, getattr(self, name) + int(getattr(row, name)))
        for name in ("reserved", "actual", "exposure"):
            more = Amounts(*[int(getattr(row, f"{name}_{dimension}")) for dimension in DIMENSIONS])
            setattr(self, name, getattr(self, name).plus(more))


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The executions of one version of a tool, by what became of them.

    ``refused``: bad calls; ``denied``: what a judge or a person did not permit; ``waiting``: for a person.
    """

    tool_namespace: str
    tool_name: str
    tool_version: str
    executions: int
    done: int
    failed: int
    refused: int
    denied: int
    waiting: int
    unknown: int


def spending(connection: Connection, namespace: str, now: int, by: Grouping, only: Filter) -> list[Spending]:
    """What the invocations that ``only`` selects reserved, used and hold, in order of their keys."""
    key, text = _KEYS[by]
    rows = connection.execute(_sums(namespace, now, key, only)).all()
    paths = {path for row in rows for path in row.account.split("\n")}
    known = currencies(connection, namespace, paths)
    groups: dict[tuple[str, str], Spending] = {}
    for row in rows:
        leaves = row.account.split("\n")
        currency = next((known[path] for path in leaves if path in known), None)
        for name in text(row, leaves):
            # An ancestor of the account that was asked for has spent more than what is seen here.
            if by == "account" and only.account is not None and only.account not in chain_of(name):
                continue
            group = groups.setdefault((name, currency or ""), Spending(name, currency))
            group.add(row)
    return [groups[place] for place in sorted(groups, key=lambda place: (place[0].split("/"), place[1]))]


def _chains(row: Any, leaves: list[str]) -> Iterable[str]:
    return {link for leaf in leaves for link in chain_of(leaf)}


def _day(row: Any, leaves: list[str]) -> Iterable[str]:
    return (to_datetime(row.key * DAY_US).date().isoformat(),)


def _itself(row: Any, leaves: list[str]) -> Iterable[str]:
    return (row.key,)


_KEYS: Final[dict[str, tuple[ColumnElement[Any], Callable[[Any, list[str]], Iterable[str]]]]] = {
    "account": (_r.account, _chains),
    "model": (_i.model, _itself),
    "day": (_i.started_at // literal_column(str(DAY_US), BigInteger), _day),
    "basis": (_i.input_basis, _itself),
}


def _sums(namespace: str, now: int, key: ColumnElement[Any], only: Filter) -> Select[Any]:
    settled, unknown = _r.state == "SETTLED", undecided(namespace, now)
    usage = and_(_i.input_tokens.is_not(None), _i.input_measured.is_not(None))
    sums = [
        _sum(settled, 1, "settled"),
        _sum(unknown, 1, "unknown"),
        _sum(usage, _i.input_measured, "measured"),
        _sum(usage, _i.input_tokens, "counted"),
        _sum(and_(usage, _i.input_tokens > _i.input_measured), 1, "exceeded"),
    ]
    for name in DIMENSIONS:
        sums.append(_sum(settled, _r[f"reserved_{name}"], f"reserved_{name}"))
        sums.append(_sum(settled, _r[f"actual_{name}"], f"actual_{name}"))
        sums.append(_sum(unknown, _r[f"reserved_{name}"], f"exposure_{name}"))
    query = (
        select(key.label("key"), _r.account, func.count().label("invocations"), *sums)
        .select_from(s.invocations)
        .join(s.reservations, _r.id == _i.id)
        .join(s.activities, _a.id == _i.activity_id)
        .where(_i.namespace == namespace, *_within(only, _i.started_at))
        .group_by(key, _r.account)
    )
    return query if only.account is None else query.where(charged_to(only.account))


def tool_use(connection: Connection, namespace: str, now: int, only: Filter) -> list[ToolUse]:
    """How often each tool was run, and what became of it. Calls that ran at the provider count as done."""
    named = (_e.tool_namespace, _e.tool_name, _e.tool_version)
    counts = [
        _sum(condition, 1, name)
        for name, condition in (
            ("done", _e.state.in_(("DONE", "PROVIDER_SIDE"))),
            ("failed", _e.state == "FAILED"),
            ("refused", _e.state == "REFUSED"),
            ("denied", _e.state == "DENIED"),
            ("waiting", _e.state == "AWAITING_APPROVAL"),
            ("unknown", undecided_effect(now)),
        )
    ]
    query = (
        select(*named, func.count().label("executions"), *counts)
        .select_from(s.effects)
        .join(s.invocations, _i.id == _e.invocation_id)
        .join(s.reservations, _r.id == _i.id)
        .join(s.activities, _a.id == _e.activity_id)
        .where(_e.namespace == namespace, *_within(only, _e.started_at))
        .group_by(*named)
        .order_by(*named)
    )
    if only.account is not None:
        query = query.where(charged_to(only.account))
    return [ToolUse(*row[:3], *map(int, row[3:])) for row in connection.execute(query)]


def _within(only: Filter, started_at: ColumnElement[int]) -> list[ColumnElement[bool]]:
    conditions = []
    if only.since is not None:
        conditions.append(started_at >= only.since)
    if only.until is not None:
        conditions.append(started_at < only.until)
    if only.model is not None:
        conditions.append(_i.model == only.model)
    return conditions


def _sum(condition: ColumnElement[bool], value: Any, name: str) -> ColumnElement[int]:
    return func.sum(case((condition, value), else_=0)).label(name)
