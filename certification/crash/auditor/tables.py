"""The tables, read by the plain drivers in one snapshot."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

__all__ = ["DIMENSIONS", "Row", "Tables", "amounts", "open_tables", "with_ancestors"]

DIMENSIONS = (
    "total_tokens",
    "input_tokens",
    "output_tokens",
    "model_calls",
    "tool_calls",
    "cost",
    "wall_clock_ms",
)
Row = dict[str, Any]


def amounts(row: Row, kind: str) -> tuple[int, ...]:
    """The seven figures of one kind in a row; zero where there is none."""
    return tuple(row[f"{kind}_{name}"] or 0 for name in DIMENSIONS)


def with_ancestors(path: str) -> list[str]:
    """An account and all above it."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]


class Tables:
    """One snapshot of a ledger's database."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def rows(self, query: str) -> Iterator[Row]:
        """The rows of a query, as they come."""
        cursor = self._connection.cursor()
        cursor.execute(query)
        names = [column[0] for column in cursor.description]
        while batch := cursor.fetchmany(1000):
            yield from (dict(zip(names, row, strict=True)) for row in batch)


@contextmanager
def open_tables(url: str) -> Iterator[Tables]:
    """Read a database; nothing is written to it."""
    scheme, _, rest = url.partition("://")
    if scheme.startswith("sqlite"):
        with closing(sqlite3.connect(rest.removeprefix("/"), isolation_level=None)) as connection:
            connection.execute("BEGIN")
            yield Tables(connection)
        return
    import psycopg

    with psycopg.connect(f"postgresql://{rest}") as server:
        server.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        server.read_only = True
        yield Tables(server)
