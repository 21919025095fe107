"""What is kept of every record that was audited: some machine words, none of its content."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final

__all__ = ["NOWHERE", "Index", "Node"]

NOWHERE: Final = -1
"""The position of a record that is not there."""

_LATEST: Final = 2**63 - 1


class Node:
    """What one record leaves behind for those that descend from it.

    Attributes:
        parent: position of the parent, or `NOWHERE`; ``joins``: those of what it joins besides.
        missing: causes that it names and that are not before it.
        failed: position of the first record that failed among it and its ancestors.
        tainted: position of a secret among it and its ancestors.
        granted: one bit for each rule that this record satisfies for its descendants.
    """

    __slots__ = ("failed", "granted", "joins", "missing", "parent", "tainted", "timestamp")

    def __init__(
        self, *, parent: int, joins: tuple[int, ...] = (), missing: tuple[str, ...] = (), timestamp: int = 0
    ) -> None:
        self.parent, self.joins, self.missing = parent, joins, missing
        self.timestamp = max(-_LATEST, min(timestamp, _LATEST))
        self.failed = self.tainted = NOWHERE
        self.granted = 0


class Index:
    """All records of a log by position, in arrays. Every record has one; of equal ids the first is found."""

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        self.ids: list[str] = []
        self.parents = array("q")
        self.joins: dict[int, tuple[int, ...]] = {}
        self.missing: dict[int, tuple[str, ...]] = {}
        self.timestamps = array("q")
        self.failed = array("q")
        self.tainted = array("q")
        self.granted: list[int] = []
        self._depths = array("q")
        self._jumps = array("q")

    def __len__(self) -> int:
        return len(self.ids)

    def find(self, record_id: str | None) -> int:
        """The position of an id."""
        return NOWHERE if record_id is None else self.positions.get(record_id, NOWHERE)

    def first(self, values: array[int], causes: Iterable[int]) -> int:
        """The first value that is somewhere, of those that some records have."""
        return next((values[cause] for cause in causes if values[cause] != NOWHERE), NOWHERE)

    def add(self, record_id: str, node: Node) -> None:
        """Put a record behind those that are there."""
        position = len(self.ids)
        self.positions.setdefault(record_id, position)
        self.ids.append(record_id)
        self.parents.append(node.parent)
        self.timestamps.append(node.timestamp)
        self.failed.append(node.failed)
        self.tainted.append(node.tainted)
        self.granted.append(node.granted)
        if node.joins:
            self.joins[position] = node.joins
        if node.missing:
            self.missing[position] = node.missing
        self._add_jump(position, node.parent)

    def _add_jump(self, position: int, parent: int) -> None:
        # Myers, "An applicative random-access stack" (1983): one more pointer for each record, and a
        # line of n parents is searched in log n steps.
        if parent == NOWHERE:
            self._depths.append(0)
            self._jumps.append(position)
            return
        depths, jumps = self._depths, self._jumps
        jump = jumps[parent]
        even = depths[parent] - depths[jump] == depths[jump] - depths[jumps[jump]]
        depths.append(depths[parent] + 1)
        jumps.append(jumps[jump] if even else parent)

    def in_line(self, ancestor: int, descendant: int) -> bool:
        """Whether a record is another, or in its line of parents, in time like the line's logarithm."""
        if ancestor == NOWHERE or descendant == NOWHERE:
            return False
        wanted = self._depths[ancestor]
        current = descendant
        while self._depths[current] > wanted:
            jump = self._jumps[current]
            current = jump if self._depths[jump] >= wanted else self.parents[current]
        return current == ancestor
