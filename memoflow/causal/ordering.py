"""Putting records in the order of a log: causes before effects, whatever the clock says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memoflow.causal.record import CausalRecord

__all__ = ["CausesFirst"]


class CausesFirst:
    """Lets records through once their causes have passed; it holds back only those that come too early."""

    def __init__(self) -> None:
        self._passed: dict[str, int] = {}
        self._waiting: dict[str, list[CausalRecord]] = {}
        self._held: dict[str, CausalRecord] = {}
        self._sought: set[str] = set()

    def place(self, record: CausalRecord) -> Iterator[CausalRecord]:
        """The record and what waited for it; nothing if it has to wait itself."""
        ready = [record]
        while ready:
            one = ready.pop()
            missing = next((id for id in _causes(one) if id not in self._passed), None)
            if missing is not None:
                self._held[one.id] = one
                self._waiting.setdefault(missing, []).append(one)
                continue
            yield self._pass(one)
            ready += reversed(self._waiting.pop(one.id, []))

    def _pass(self, record: CausalRecord) -> CausalRecord:
        self._held.pop(record.id, None)
        earliest = max((self._passed.get(id, 0) for id in _causes(record)), default=0)
        if earliest > record.timestamp:
            record = replace(record, timestamp=earliest)
        self._passed[record.id] = record.timestamp
        return record

    def missing(self) -> set[str]:
        """Causes that are waited for, are not held here, and were not sought before."""
        wanted = self._waiting.keys() - self._held.keys() - self._sought
        self._sought |= wanted
        return wanted

    def rest(self) -> Iterator[CausalRecord]:
        """What waits in vain, as far as possible in order: its causes are in no log that is known here."""
        for id in [id for id in self._waiting if id not in self._held]:
            for record in self._waiting.pop(id):
                self._passed.setdefault(id, 0)
                yield from self.place(record)
        yield from list(self._held.values())


def _causes(record: CausalRecord) -> tuple[str, ...]:
    return record.joins if record.parent_cause is None else (record.parent_cause, *record.joins)
