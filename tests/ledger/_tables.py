"""Whole tables before and after, for tests of what must not change."""

from __future__ import annotations

from functools import partial
from typing import Any

from sqlalchemy import Connection, select

from memoflow.ledger import schema as s
from tests.ledger._calls import Ledger

__all__ = ["Statements", "changed", "tables"]

Tables = dict[str, list[tuple[Any, ...]]]


def tables(ledger: Ledger) -> Tables:
    """Every row of every table but the writers' own."""

    def read(connection: Connection) -> Tables:
        return {
            table.name: [tuple(row) for row in connection.execute(_in_order(table))]
            for table in s.metadata.sorted_tables
            if table is not s.writers
        }

    return ledger.read(read)


def _in_order(table: Any) -> Any:
    return select(table).order_by(*table.primary_key.columns)


def changed(before: Tables, after: Tables) -> set[str]:
    """The names of the tables that differ."""
    return {name for name in before if before[name] != after[name]}


class Statements:
    """Counts the statements of a ledger, those that fetch the clock aside."""

    def __init__(self, ledger: Ledger) -> None:
        self.texts: list[str] = []
        for engine in {ledger.database.engine, ledger.database.writing}:
            dialect: Any = engine.dialect
            for name in ("do_execute", "do_executemany"):
                setattr(dialect, name, partial(self._note, getattr(dialect, name)))

    def _note(self, execute: Any, cursor: Any, statement: str, *rest: Any) -> None:
        self.texts.append(statement)
        execute(cursor, statement, *rest)

    def take(self) -> list[str]:
        """The statements since the last time."""
        texts, self.texts = self.texts, []
        return texts
