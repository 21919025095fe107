"""What a check reports, and how rows are streamed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from sqlalchemy import Connection, Row, Select

__all__ = ["Children", "Finding", "stream"]

BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact that does not hold.

    Attributes:
        code: which fact, for example ``CHAIN_BROKEN``.
        table: the table of the row that differs.
        id: the row; in the journal ``<balance>/<seq>``.
        message: a sentence with the figures.
    """

    code: str
    table: str
    id: str
    message: str


def stream(connection: Connection, query: Select[Any]) -> Generator[Row[Any]]:
    """The rows of an ordered query, fetched from the server in batches."""
    options = {"stream_results": True, "yield_per": BATCH}
    with connection.execute(query, execution_options=options) as result:
        yield from result


class Children:
    """The rows that belong to each of a stream of parents, both in the parents' order.

    Keys are compared for equality only: text is ordered by the database's collation, not by Python's.
    """

    def __init__(self, rows: Iterator[Row[Any]], key: Callable[[Row[Any]], Any]) -> None:
        self._groups = groupby(rows, key)
        self._head = next(self._groups, None)

    def of(self, key: Any) -> Iterator[Row[Any]]:
        """The rows of one parent; to be read to their end before the next parent's."""
        if self._head is not None and self._head[0] == key:
            yield from self._head[1]
            self._head = next(self._groups, None)
