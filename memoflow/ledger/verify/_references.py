"""Rows that name others: each must exist, and a decision must be about the row that names it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Connection, Row, Select, Table, and_, exists, select, true

from memoflow.ledger.schema import decisions, effects, journal, metadata, reservations
from memoflow.ledger.verify._finding import Finding, stream

__all__ = ["reference_findings"]

VERDICTS: Final = {
    "settle": ("invocation", "SETTLED"),
    "release": ("invocation", "RELEASED"),
    "happened": ("effect", "DONE"),
    "did_not_happen": ("effect", "FAILED"),
}
"""What each verdict is about, and the state it leads to."""


def reference_findings(connection: Connection, namespace: str | None) -> Iterator[Finding]:
    """References to rows that do not exist, and decisions that do not fit what they decided."""
    for column, target in _references():
        for row in stream(connection, _dangling(column, target, namespace)):
            id = "/".join(map(str, row[:-1]))
            table = column.table.name
            message = (
                f"Row {id} of {table} names {column.name} {row[-1]}, which is not in {target.table.name}."
            )
            yield Finding("REFERENCE_BROKEN", table, id, message)
    for decided in (reservations, effects):
        for row in stream(connection, _decided(decided, namespace)):
            yield from _check_decided(decided.name, row)
    for row in stream(connection, _unapplied(namespace)):
        message = f"Decision {row.id} ({row.verdict}) is about {row.target_id}, which does not name it."
        yield Finding("DECISION_UNUSED", "decisions", row.id, message)


def _references() -> Iterator[tuple[Column[Any], Column[Any]]]:
    """Foreign keys, which SQLite keeps only on connections that ask for it, and what could not be one."""
    for table in metadata.sorted_tables:
        for key in table.foreign_keys:
            yield key.parent, key.column
    yield journal.c.reservation_id, reservations.c.id
    yield reservations.c.decision_id, decisions.c.id
    yield effects.c.decision_id, decisions.c.id


def _dangling(column: Column[Any], target: Column[Any], namespace: str | None) -> Select[Any]:
    table, other = column.table, target.table.alias("other")
    keys = list(table.primary_key.columns)
    return (
        select(*keys, column.label("named"))
        .where(
            column.is_not(None), ~exists().where(other.c[target.name] == column), _within(table, namespace)
        )
        .order_by(*keys)
    )


def _within(table: Any, namespace: str | None) -> ColumnElement[bool]:
    """Whether a row is in a namespace: its own, or that of the row it belongs to."""
    if namespace is None:
        return true()
    if "namespace" in table.c:
        return table.c.namespace == namespace  # type: ignore[no-any-return]
    key = next(iter(table.foreign_keys))
    owners = key.column.table.alias()
    return key.parent.in_(select(owners.c[key.column.name]).where(_within(owners, namespace)))  # type: ignore[no-any-return]


def _decided(table: Table, namespace: str | None) -> Select[Any]:
    return (
        select(
            table.c.id,
            table.c.namespace,
            table.c.state,
            decisions.c.id.label("decision"),
            decisions.c.namespace.label("decided_in"),
            decisions.c.kind,
            decisions.c.target_id,
            decisions.c.verdict,
            _agree(table).label("agree"),
        )
        .join(decisions, decisions.c.id == table.c.decision_id)
        .where(_within(table, namespace))
        .order_by(table.c.id)
    )


def _agree(table: Table) -> ColumnElement[bool]:
    """Whether a decision charges what its reservation was settled with; effects have no amounts."""
    charged = [c for c in decisions.c if c.name.startswith("actual_") and c.name in table.c]
    return and_(true(), *[c.is_not_distinct_from(table.c[c.name]) for c in charged])


def _check_decided(table: str, row: Row[Any]) -> Iterator[Finding]:
    kind = "invocation" if table == "reservations" else "effect"
    about = (row.target_id, row.decided_in, row.kind, VERDICTS.get(row.verdict))
    if about != (row.id, row.namespace, kind, (kind, row.state)):
        message = (
            f"Row {row.id} of {table} is {row.state} by decision {row.decision}, which says {row.verdict} "
            f"of {row.kind} {row.target_id} in namespace {row.decided_in!r}."
        )
        yield Finding("DECISION_DIFFERS", table, row.id, message)
    elif not row.agree:
        message = f"Row {row.id} of {table} has other actual amounts than decision {row.decision} says."
        yield Finding("DECISION_DIFFERS", table, row.id, message)


def _unapplied(namespace: str | None) -> Select[Any]:
    named = [exists().where(table.c.decision_id == decisions.c.id) for table in (reservations, effects)]
    return (
        select(decisions.c.id, decisions.c.verdict, decisions.c.target_id)
        .where(decisions.c.kind != "unpriced", ~named[0], ~named[1], _within(decisions, namespace))
        .order_by(decisions.c.id)
    )
