"""Sets of rows, read and written with one statement each, by the driver itself.

The hot path of the ledger. SQLAlchemy keeps the connection, the transaction and the schema; the SQL
made from that schema is a constant text for any number of rows, so that the driver prepares it
once, and no work is done for each row that the driver can do. Sets travel as one JSON array
(SQLite) or as one array a column (PostgreSQL); SQLite's writes are the driver's own loop.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

from sqlalchemy import Column, Connection, Select, Table
from sqlalchemy.dialects import registry
from sqlalchemy.exc import DBAPIError

from memoflow.ledger.arrays import array_writers, placeholder

__all__ = ["Keys", "Sets", "columns_of"]

Row = tuple[Any, ...]
Keys = Sequence[Column[Any]]


@cache
def columns_of(table: Table) -> tuple[str, ...]:
    """The names of a table's columns, in their order."""
    return tuple(column.name for column in table.columns)


class Sets:
    """Reads and writes sets of rows in the transaction of a connection.

    Errors are SQLAlchemy's, as if it had run the statement.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._dialect: Any = connection.dialect
        self._sqlite = self._dialect.name == "sqlite"
        self._begin: Callable[[], object] | None = None

    @property
    def alone(self) -> bool:
        """Whether nobody else can write from the beginning of this transaction to its end."""
        return self._sqlite

    # Reading

    def select(
        self, what: Table | Select[Any], keys: Keys, values: Sequence[Any], *, lock: bool = False
    ) -> list[Row]:
        """The rows whose key columns have one of these values: plain ones for one column, tuples for more.

        Args:
            what: a table, or a query without a WHERE clause.
            lock: lock the rows, in the order of the first column, so that two batches cannot wait for
                each other.
        """
        return self.ask(what, keys, values, lock=lock)()

    def ask(
        self, what: Table | Select[Any], keys: Keys, values: Sequence[Any], *, lock: bool = False
    ) -> Callable[[], list[Row]]:
        """The same, to be fetched later: in `at_once`, after the end of the block."""
        if not values:
            return list
        sql = _select(self._sqlite, what, tuple(keys), lock)
        cursor = self._run(sql, self._set(values, tuple(keys)))

        def fetched() -> list[Row]:
            with self._told(sql):
                found: list[Row] = cursor.fetchall()
                return found

        return fetched

    def value(self, sql: str) -> Any:
        """The one value that a query gives."""
        cursor = self._run(sql, ())
        with self._told(sql):
            (found,) = cursor.fetchone()
            return found

    def _run(self, sql: str, parameters: Any, *, many: bool = False) -> Any:
        """Execute a statement; the cursor that will have its result."""
        if self._begin is not None:
            begin, self._begin = self._begin, None
            begin()
        with self._told(sql):
            cursor = self._connection.connection.cursor()
            (self._dialect.do_executemany if many else self._dialect.do_execute)(cursor, sql, parameters)
            return cursor

    def _set(self, values: Sequence[Any], keys: tuple[Column[Any], ...]) -> tuple[Any, ...]:
        if self._sqlite:
            return (json.dumps(values),)
        return _arrays_of(keys, values if len(keys) > 1 else zip(values))

    # Writing

    def insert(
        self, table: Table, names: Sequence[str], rows: Sequence[Row], *, unless_there: Keys = ()
    ) -> None:
        """Add rows.

        Args:
            names: the columns that are given; the others get their default.
            unless_there: the columns of a unique key; a row whose key is taken is left out.
        """
        self._write(_insert(self._sqlite, table, tuple(names), tuple(unless_there)), table, names, rows)

    def update(
        self, table: Table, match: Sequence[str], names: Sequence[str], rows: Sequence[Row]
    ) -> Callable[[], int]:
        """Alter columns of rows.

        Args:
            match: the columns that find a row.
            names: the columns to alter.
            rows: the new values of a row, followed by those that find it.

        Returns:
            Says how many rows were there: in `at_once`, after the end of the block.
        """
        sql = _update(self._sqlite, table, tuple(match), tuple(names))
        cursor = self._write(sql, table, (*names, *match), rows)
        return lambda: int(cursor.rowcount)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Send what the block asks and writes in one go where the driver can, not waiting for each answer.

        Errors may come at the end of the block; rows and counts are known after it.
        """
        driver: Any = self._connection.connection.driver_connection
        if self._sqlite or not self._dialect.loaded_dbapi.Pipeline.is_supported():
            yield
            return
        with self._told("(several statements)"), ExitStack() as opened:
            # By the first statement: the end of a pipeline is waited for even where nothing was sent.
            self._begin = lambda: opened.enter_context(driver.pipeline())
            try:
                yield
            finally:
                self._begin = None

    def _write(self, sql: str, table: Table, names: Sequence[str], rows: Sequence[Row]) -> Any:
        if self._sqlite:
            return self._run(sql, rows, many=True)
        return self._run(sql, _arrays_of(_columns(table, tuple(names)), rows))

    @contextmanager
    def _told(self, sql: str) -> Iterator[None]:
        """Let SQLAlchemy know of an error, and of a connection that is gone."""
        try:
            yield
        except self._dialect.loaded_dbapi.Error as error:
            lost = self._dialect.is_disconnect(error, self._connection.connection, None)
            wrapped = DBAPIError.instance(
                sql,
                None,
                error,
                self._dialect.loaded_dbapi.Error,
                hide_parameters=True,
                connection_invalidated=lost,
                dialect=self._dialect,
            )
            if lost:
                self._connection.invalidate(error)
            raise wrapped from error


# The SQL, made once from the schema


@cache
def _select(sqlite: bool, what: Table | Select[Any], keys: tuple[Column[Any], ...], lock: bool) -> str:
    base = what if isinstance(what, Select) else what.select()
    text = f"{base.compile(dialect=_dialect(sqlite))} WHERE {_among(sqlite, keys)}"
    if lock:
        text += f" ORDER BY {_name(keys[0])}" + ("" if sqlite else " FOR UPDATE")
    return text


def _among(sqlite: bool, keys: tuple[Column[Any], ...]) -> str:
    names = ", ".join(map(_name, keys))
    if sqlite:
        fields = [f"json_extract(value, '$[{i}]')" for i in range(len(keys))] if len(keys) > 1 else ["value"]
        return f"({names}) IN (SELECT {', '.join(fields)} FROM json_each(?))"
    return f"({names}) IN (SELECT * FROM unnest({_arrays(keys)}))"


@cache
def _insert(sqlite: bool, table: Table, names: tuple[str, ...], key: tuple[Column[Any], ...]) -> str:
    columns = _columns(table, names)
    source = f"VALUES ({_marks(columns)})" if sqlite else f"SELECT * FROM unnest({_arrays(columns)})"
    clash = f" ON CONFLICT ({', '.join(column.name for column in key)}) DO NOTHING" if key else ""
    return f"INSERT INTO {table.name} ({', '.join(names)}) {source}{clash}"


@cache
def _update(sqlite: bool, table: Table, match: tuple[str, ...], names: tuple[str, ...]) -> str:
    if sqlite:
        changes = ", ".join(f"{name} = ?" for name in names)
        return f"UPDATE {table.name} SET {changes} WHERE {' AND '.join(f'{name} = ?' for name in match)}"
    changes = ", ".join(f"{name} = new_{name}" for name in names)
    found = " AND ".join(f"{name} = old_{name}" for name in match)
    aliases = ", ".join([*(f"new_{name}" for name in names), *(f"old_{name}" for name in match)])
    arrays = _arrays(_columns(table, (*names, *match)))
    return f"UPDATE {table.name} SET {changes} FROM unnest({arrays}) AS given ({aliases}) WHERE {found}"


@cache
def _columns(table: Table, names: tuple[str, ...]) -> tuple[Column[Any], ...]:
    return tuple(table.c[name] for name in names)


def _name(column: Column[Any]) -> str:
    return f"{column.table.name}.{column.name}"


def _marks(columns: Sequence[Any]) -> str:
    return ", ".join("?" for _ in columns)


def _arrays(columns: Iterable[Column[Any]]) -> str:
    dialect = _dialect(False)
    return ", ".join(f"{placeholder(c)}::{c.type.compile(dialect=dialect)}[]" for c in columns)


def _arrays_of(columns: tuple[Column[Any], ...], rows: Iterable[Row]) -> tuple[Any, ...]:
    return tuple(write(v) for write, v in zip(array_writers(columns), zip(*rows, strict=True), strict=True))


@cache
def _dialect(sqlite: bool) -> Any:
    # By name, because a dialect takes long to import, and a program seldom uses both.
    return registry.load("sqlite" if sqlite else "postgresql")()
