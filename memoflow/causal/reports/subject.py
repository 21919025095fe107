"""What a report is about: where records stand, and what is above them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from memoflow.causal.record import CausalRecord

__all__ = ["Subject"]

_LONGEST: Final = 64


@dataclass(slots=True)
class Subject:
    """A log that is audited: filled while it is read, so that no record has to be kept.

    Attributes:
        name: of the file, as a reader knows it.
        lines: the line in which an id stands first.
        parents: the parent that it has there.
    """

    name: str
    lines: dict[str, int] = field(default_factory=dict)
    parents: dict[str, str | None] = field(default_factory=dict)

    def passing(self, numbered: Iterable[tuple[int, CausalRecord]]) -> Iterator[CausalRecord]:
        """The records, noted as they pass by."""
        for line, record in numbered:
            if record.id not in self.lines:
                self.lines[record.id] = line
                self.parents[record.id] = record.parent_cause
            yield record

    def chain(self, record_id: str) -> list[str]:
        """Ids of the line of parents down to a record, from the top, as far as it is worth showing."""
        chain: list[str] = []
        current: str | None = record_id
        while (
            current is not None and current in self.parents and current not in chain and len(chain) < _LONGEST
        ):
            chain.append(current)
            current = self.parents[current]
        return chain[::-1]
