"""Runs of a ledger as causal logs, and the tools that they use."""

from __future__ import annotations

import io
from typing import Any

from memoflow import tool
from memoflow.causal.jsonl import read_jsonl
from memoflow.causal.record import CausalRecord
from tests.turn._worlds import World

__all__ = ["breaks", "clean", "exported", "look", "pay", "shape"]


@tool(version="v1", effect="read_only")
def look(n: int) -> int:
    """Look."""
    return n


@tool(version="v3", effect="idempotent", approval="human")
def pay(n: int) -> int:
    """Pay."""
    return n


@tool(version="v1", effect="at_most_once")
def breaks() -> None:
    """Break."""
    raise ValueError


def exported(w: World, **run: Any) -> list[CausalRecord]:
    """What an export of the run holds, read back by the strict loader."""
    file = io.BytesIO()
    written = w.rt.audit.export(file, **{"workflow_id": "w", "run_id": "r", **run})
    file.seek(0)
    records = list(read_jsonl(file))
    assert len(records) == written
    return records


def clean(w: World, **run: Any) -> None:
    """The strict audit finds nothing."""
    result = w.rt.audit.check(**{"workflow_id": "w", "run_id": "r", **run})
    assert (result.findings, result.passed, result.total) == ((), True, len(exported(w, **run)))


def shape(records: list[CausalRecord]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Action, permission and causes of each, with the places of causes in the log instead of their ids."""
    places = {record.id: str(place) for place, record in enumerate(records)}
    return [
        (
            record.action,
            str(record.permitted_by).split(":")[0],
            tuple(places.get(id, id) for id in (record.parent_cause, *record.joins) if id is not None),
        )
        for record in records
    ]
