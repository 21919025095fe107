"""Logs to audit, of any length, made as they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from memoflow.causal.ctag import ActionClass, Domain, encode
from memoflow.causal.record import Actor, CausalRecord

__all__ = ["LOGS"]

_HUMAN: Final = Actor(kind="human", name="alice")
_AGENTS: Final = tuple(Actor(kind="agent", name=f"agent-{number}") for number in range(16))
_DIGEST: Final = f"sha256:{'0' * 64}"
_TURN: Final = 8


def _record(position: int, parent: str | None, **more: object) -> CausalRecord:
    given = {
        "action": "read",
        "object": {"tool": "look"},
        "permitted_by": "r0",
        "actor": _AGENTS[position % 16],
    }
    return CausalRecord(id=f"r{position}", timestamp=position, parent_cause=parent, **{**given, **more})  # type: ignore[arg-type]


def _root() -> CausalRecord:
    return _record(0, None, actor=_HUMAN, permitted_by="root_event:bench", object=None)


def line(records: int) -> Iterator[CausalRecord]:
    """One line of parents."""
    yield _root()
    for position in range(1, records):
        yield _record(position, f"r{position - 1}")


def turns(records: int) -> Iterator[CausalRecord]:
    """Turns of parallel calls that are joined, secrets that are read, and approvals that are used once."""
    yield _root()
    cursor, position = "r0", 1
    while position < records:
        branches = [f"r{position + step}" for step in range(_TURN - 3)]
        for step, _ in enumerate(branches):
            target = {"tool": "look", "path": "/secrets/key"} if step == 0 else {"tool": "look"}
            yield _record(position + step, cursor, object=target)
        position += len(branches)
        yield _record(position, cursor, action="join", joins=tuple(branches), object=None)
        yield from _sending(position + 1, f"r{position}")
        cursor, position = f"r{position}", position + 3


def _sending(position: int, parent: str) -> Iterator[CausalRecord]:
    """An approval, and what it permits: on the line of parents, so that it is looked for there."""
    name = f"human_approval:{position}"
    terms = {
        "status": "approved",
        "tool": "send",
        "arguments_digest": _DIGEST,
        "expires_at": 2**62,
        "requested_by": _AGENTS[(position + 1) % 16].key,
    }
    yield _record(
        position, parent, actor=_HUMAN, action="approve", permitted_by=name, object={"approval": terms}
    )
    sent = {"tool": "send", "risk_level": "high", "evidence_bundle": {"request_digest": _DIGEST}}
    parent = f"r{position}"
    tag = encode(Domain.AGENT, ActionClass.DATA_EGRESS, parent=parent)
    yield _record(position + 1, parent, action="send", permitted_by=name, object=sent, ctag=tag)


def cycle(records: int) -> Iterator[CausalRecord]:
    """One cycle: every record names the next one as its cause, and the last the first."""
    for position in range(records):
        yield _record(position, f"r{(position + 1) % records}")


LOGS: Final[dict[str, Callable[[int], Iterator[CausalRecord]]]] = {
    "line": line,
    "turns": turns,
    "cycle": cycle,
}
