"""The rows of one namespace without what differs from run to run: ids, times, ciphertext, durations."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from sqlalchemy import Connection, Table, select

from memoflow.ledger import schema as s

__all__ = ["snapshot"]

_DROPPED = {"namespace", "hash", "head", "nonce", "ciphertext", "seq", "period_start", "period_end"}
_IDS = {
    "id",
    "activity_id",
    "turn_id",
    "invocation_id",
    "reservation_id",
    "owner_id",
    "subject_id",
    "idempotency_key",
}
# What passes on a clock while something else is waited for.
_MEASURED = {f"{kind}_wall_clock_ms" for kind in ("settled", "actual")}
# Parents first, so that a child's reference has its name already.
_ORDER = (
    s.activities,
    s.attempts,
    s.turns,
    s.invocations,
    s.reservations,
    s.effects,
    s.outputs,
    s.evidence,
    s.decisions,
)
Row = dict[str, Any]


class _Names:
    """Gives every id a name by the order in which it is met."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._counts: dict[str, int] = defaultdict(int)

    def known(self, value: Any) -> Any:
        """The name of an id that was met before; anything else as it is."""
        return self._known.get(value, value)

    def of(self, kind: str, id: str | None) -> str | None:
        if id is None:
            return None
        if id not in self._known:
            self._counts[kind] += 1
            self._known[id] = f"{kind} {self._counts[kind]}"
        return self._known[id]


def snapshot(connection: Connection, namespace: str) -> dict[str, list[Row]]:
    """All rows of a namespace by table, in the order in which they came to be."""
    names = _Names()
    found = {table.name: _rows(connection, table, namespace, names) for table in _ORDER}
    found["balances"], found["journal"] = _books(connection, namespace, names)
    return found


def _rows(connection: Connection, table: Table, namespace: str, names: _Names) -> list[Row]:
    query = select(table)
    if table is s.attempts:
        query = query.join(s.activities, s.activities.c.id == table.c.activity_id)
        query = query.where(s.activities.c.namespace == namespace).order_by(table.c.number)
    else:
        query = query.where(table.c.namespace == namespace)
    rows = [dict(row) for row in connection.execute(query).mappings()]
    if table is s.outputs:
        rows.sort(key=lambda row: (names.of("unknown", row["owner_id"]), row["kind"]))
    elif table is not s.attempts:
        # Ids are made in order of time.
        rows.sort(key=lambda row: row["id"])
    return [_clean(table.name, row, names) for row in rows]


def _books(connection: Connection, namespace: str, names: _Names) -> tuple[list[Row], list[Row]]:
    a, b, j = s.accounts.c, s.balances.c, s.journal.c
    balances = (
        select(a.path, *[c for c in s.balances.columns if c.name not in ("id", "account_id")])
        .join(s.accounts, a.id == b.account_id)
        .where(a.namespace == namespace)
        .order_by(a.path)
    )
    journal = (
        select(a.path, *[c for c in s.journal.columns if c.name != "balance_id"])
        .join(s.balances, b.id == j.balance_id)
        .join(s.accounts, a.id == b.account_id)
        .where(a.namespace == namespace)
        .order_by(a.path, j.seq)
    )
    found = []
    for name, query in (("balances", balances), ("journal", journal)):
        found.append([_clean(name, dict(row), names) for row in connection.execute(query).mappings()])
    return found[0], found[1]


def _clean(table: str, row: Row, names: _Names) -> Row:
    kept: Row = {}
    for column, value in row.items():
        if column in _DROPPED or column in _MEASURED:
            continue
        if column in _IDS:
            kept[column] = names.of(table if column == "id" else column.removesuffix("_id"), value)
        elif column == "at" or column.endswith("_at"):
            kept[column] = value is not None
        else:
            kept[column] = names.known(value)
    return kept
