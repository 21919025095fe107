"""Where records come from: lines of parents, ancestries, and the view of one chain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from memoflow.canonical import JSON
from memoflow.causal.record import Actor, CausalRecord
from memoflow.causal.secrets import SecretPatterns

__all__ = ["REFERENCE_CAP", "Chain", "Lineage", "view_chain"]

REFERENCE_CAP: Final = 256
"""Most records of a chain, its start included, that the Causal Memory Layer looks at."""


class Lineage:
    """An index over records. Of records with one id the last counts, as in the Causal Memory Layer.

    Args:
        records: in any order.
        cap: most records of one line; None for no bound, which costs time in proportion to the line.
    """

    def __init__(self, records: Iterable[CausalRecord], *, cap: int | None = None) -> None:
        self._by_id = {record.id: record for record in records}
        self._cap = cap

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[CausalRecord]:
        return iter(self._by_id.values())

    def __contains__(self, record_id: object) -> bool:
        return record_id in self._by_id

    def get(self, record_id: str) -> CausalRecord | None:
        """The record of an id."""
        return self._by_id.get(record_id)

    def upward(self, record_id: str) -> Iterator[CausalRecord]:
        """A record, its parent, and so on; ends where none is, at a missing or repeated one, or the cap."""
        seen: set[str] = set()
        current: str | None = record_id
        while current is not None and current not in seen and len(seen) != self._cap:
            record = self._by_id.get(current)
            if record is None:
                return
            seen.add(current)
            yield record
            current = record.parent_cause

    def line(self, record_id: str) -> tuple[CausalRecord, ...]:
        """The line of parents down to a record, from the top."""
        return tuple(self.upward(record_id))[::-1]

    def line_ids(self, record_id: str) -> set[str]:
        """Ids of the strict ancestors in the line of parents: without the record's own."""
        return {record.id for record in self.upward(record_id)} - {record_id}

    def ancestors(self, record_id: str) -> set[str]:
        """Ids of all strict ancestors, through parents and joins alike; the cap does not count here."""
        seen: set[str] = set()
        waiting = [record_id]
        while waiting:
            record = self._by_id.get(waiting.pop())
            if record is None:
                continue
            for cause in (record.parent_cause, *record.joins):
                if cause in self._by_id and cause not in seen and cause is not None:
                    seen.add(cause)
                    waiting.append(cause)
        return seen - {record_id}


@dataclass(frozen=True, slots=True)
class Chain:
    """One record with the line of parents that led to it.

    Attributes:
        target_id: the record asked for.
        records: from the top down to it; empty if there is none.
        gap: why the line does not begin with a root, or None if it does.
        secret: for what goes out (connect, send): the first secret that the same actor opened or read, and
            that is not in the chain.
    """

    target_id: str
    records: tuple[CausalRecord, ...]
    gap: str | None
    secret: CausalRecord | None = None

    @property
    def secret_note(self) -> str | None:
        """What is said about that secret."""
        if self.secret is None:
            return None
        return f"Its actor accessed the secret {self.secret.id!r}, which is not in this chain."

    def to_dict(self) -> dict[str, JSON]:
        """Plain JSON: ``target_id``, ``chain``, ``has_gap``, ``gap_note`` and ``r3_context``."""
        return {
            "target_id": self.target_id,
            "chain": [record.to_dict() for record in self.records],
            "has_gap": self.gap is not None,
            "gap_note": self.gap,
            "r3_context": None
            if self.secret is None
            else {"secret_record": self.secret.to_dict(), "note": self.secret_note},
        }


def view_chain(lineage: Lineage, record_id: str, root_prefix: str = "root_event:") -> Chain:
    """The chain of a record, whether it begins with a root, and a secret that may be missing in it."""
    records = lineage.line(record_id)
    return Chain(record_id, records, _gap(lineage, records, root_prefix), _unlinked_secret(lineage, records))


def _unlinked_secret(lineage: Lineage, records: tuple[CausalRecord, ...]) -> CausalRecord | None:
    if not records or records[-1].action not in ("connect", "send"):
        return None
    actor, chain, secrets = records[-1].actor, {record.id for record in records}, SecretPatterns()
    for record in lineage:
        accessed = record.action in ("open", "read") and secrets.match(record.object)
        if accessed and record.id not in chain and _same(record.actor, actor):
            return record
    return None


def _same(one: Actor, other: Actor) -> bool:
    """Whether two actors are one: the same process, whoever it ran for, or the same logical actor."""
    return one.pid == other.pid if one.pid is not None else one.key == other.key


def _gap(lineage: Lineage, records: tuple[CausalRecord, ...], root_prefix: str) -> str | None:
    if not records:
        return "The record is not in the log."
    top = records[0]
    if top.parent_cause is not None:
        if top.parent_cause not in lineage:
            return f"The parent {top.parent_cause!r} of {top.id!r} is not in the log."
        if any(record.id == top.parent_cause for record in records):
            return f"The parents of {top.id!r} form a cycle."
        return f"The chain is longer than the {len(records)} records that are looked at."
    if isinstance(top.permitted_by, str) and top.permitted_by.startswith(root_prefix):
        return None
    if top.permitted_by == "unobserved_parent":
        return f"{top.id!r} is a marked gap: what caused it was not observed."
    return f"{top.id!r} is neither a root nor a marked gap."
