"""Columns of values as PostgreSQL array literals, for statements that take one array a column.

The driver finds out for each value how to write it, which cost more than everything else done for a
batch. Here the type of the column says it.
https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Column, Integer, LargeBinary, Text

__all__ = ["array_writers", "placeholder"]

ArrayWriter = Callable[[Sequence[Any]], Any]


@cache
def array_writers(columns: Sequence[Column[Any]]) -> tuple[ArrayWriter, ...]:
    """For each column, the function that makes the parameter of an array of its values."""
    return tuple(_writer(column) for column in columns)


def placeholder(column: Column[Any]) -> str:
    """What stands for the parameter: text, but for binary values, which as text would be twice as long."""
    return "%b" if isinstance(column.type, LargeBinary) else "%t"


def _writer(column: Column[Any]) -> ArrayWriter:
    if isinstance(column.type, LargeBinary):
        return list
    if isinstance(column.type, Integer):
        return _integers
    if isinstance(column.type, Text):
        return _texts
    raise TypeError(f"columns of type {column.type} are not written in sets")


def _integers(values: Sequence[int | None]) -> str:
    return f"{{{','.join(['NULL' if value is None else str(value) for value in values])}}}"


def _texts(values: Sequence[str | None]) -> str:
    # Quoted always: bare, the text NULL would be a missing value, and braces and commas a structure.
    if not values or None in values:
        return f"{{{','.join(['NULL' if value is None else _quoted(value) for value in values])}}}"
    joined = "".join(values)  # type: ignore[arg-type]
    if "\\" in joined or '"' in joined:
        return f"{{{','.join(map(_quoted, values))}}}"  # type: ignore[arg-type]
    # Ids and digests, and nearly all else: nothing has to be looked at one by one.
    return '{"' + '","'.join(values) + '"}'  # type: ignore[arg-type]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
