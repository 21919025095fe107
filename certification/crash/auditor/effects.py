"""Tool effects against what the tools really did."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from certification.crash.auditor.outside import Line, Outside
from certification.crash.auditor.tables import Row, Tables
from certification.crash.auditor.violation import Violation

__all__ = ["audit_effects"]


NOT_RUN = ("REFUSED", "AWAITING_APPROVAL", "DENIED")
"""The states of a call of which nothing may have come about."""


def audit_effects(tables: Tables, outside: Outside) -> Iterator[Violation]:
    """Every execution has a row, no effect came about twice that may not, and what is done was done.

    Nothing came about that waits for a person or was denied, and what waited began under an approval.
    """
    effects: dict[str, list[Row]] = defaultdict(list)
    query = "SELECT * FROM effects WHERE idempotency_key IS NOT NULL ORDER BY execution"
    for row in tables.rows(query):
        effects[row["idempotency_key"]].append(row)
    for key, executions in outside.executions.items():
        yield from _audit_executions(key, executions, effects.get(key, []))
    yield from _audit_items(outside)
    for key, rows in effects.items():
        yield from _audit_rows(key, rows, outside.executions.get(key, []))
    yield from _audit_approvals(tables)


def _audit_executions(key: str, executions: list[Line], rows: list[Row]) -> Iterator[Violation]:
    item = executions[0]["item"]
    begun = [row for row in rows if row["state"] not in NOT_RUN]
    if len(executions) > len(begun):
        yield Violation(
            "EXECUTED_WITHOUT_ROW", f"{item} {key}", f"{len(executions)} executions, {len(begun)} rows"
        )
    if executions[0]["effect"] == "at_most_once" and len(executions) > 1:
        yield Violation("EXECUTED_TWICE", f"{item} {key}", f"{len(executions)} executions")


def _audit_items(outside: Outside) -> Iterator[Violation]:
    """A call has one key whatever attempt runs it, and shares it with no other call."""
    items: dict[str, str] = {}
    for key, executions in outside.executions.items():
        names = {line["item"] for line in executions}
        if len(names) > 1:
            yield Violation("KEY_SHARED", key, f"by {sorted(names)}")
        for name in names:
            if items.setdefault(name, key) != key:
                yield Violation("KEY_CHANGED", name, f"from {items[name]} to {key}")


def _audit_rows(key: str, rows: list[Row], executions: list[Line]) -> Iterator[Violation]:
    numbers = [row["execution"] for row in rows]
    if numbers != list(range(1, len(rows) + 1)):
        yield Violation("EXECUTIONS_DIFFER", key, f"the executions are numbered {numbers}")
    for row in rows:
        if row["state"] == "DONE" and not executions:
            yield Violation("DONE_UNDONE", key, f"effect {row['id']} is DONE, and its tool did nothing")
        if row["state"] == "DONE" and row is not rows[-1]:
            yield Violation(
                "RUN_AFTER_DONE", key, f"execution {row['execution'] + 1} began after it was DONE"
            )


def _audit_approvals(tables: Tables) -> Iterator[Violation]:
    """Whatever waited for a person and has begun was approved for it, by somebody else, before it began."""
    query = """
        SELECT e.id, e.state, e.started_at, e.arguments_digest AS runs, r.arguments_digest AS asked,
               r.requester, d.verdict, d.approver, d.expires_at, u.used_at
        FROM approval_requests r JOIN effects e ON e.id = r.id
        LEFT JOIN approval_decisions d ON d.id = r.id LEFT JOIN approval_uses u ON u.id = r.id
    """
    for row in tables.rows(query):
        begun = row["state"] not in NOT_RUN
        if begun != (row["used_at"] is not None):
            yield Violation("APPROVAL_USE", row["id"], f"it is {row['state']}, used at {row['used_at']}")
        if not begun:
            continue
        if row["verdict"] != "approved" or (row["used_at"] or 0) >= (row["expires_at"] or 0):
            yield Violation("NOT_APPROVED", row["id"], f"{row['verdict']}, until {row['expires_at']}")
        if row["approver"] == row["requester"] or row["runs"] != row["asked"]:
            yield Violation("APPROVAL_DIFFERS", row["id"], f"asked {row['asked']}, runs {row['runs']}")
