"""Calls that wait for a person, on a ledger whose clock shows the present: the database asks its own, too."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from memoflow.ledger import schema as s
from memoflow.ledger.activities import Fence
from memoflow.ledger.approval_queries import find_approval
from memoflow.ledger.approvals import ContinueEffects, DecideApproval, Resumed, Resumption
from memoflow.ledger.effects import NewEffect, NewRequest
from memoflow.ledger.verify import verify
from tests.ledger._calls import NAMESPACE, SECOND, Ledger, ask, effect, open_ledger

__all__ = [
    "HOUR",
    "LAPSES",
    "allow",
    "asked",
    "deny",
    "go_on",
    "ledger",
    "parked",
    "resumption",
    "shown",
    "state",
    "to_the_present",
    "waits",
]

HOUR = 3600 * SECOND
LAPSES = 24 * HOUR


def to_the_present(ledger: Ledger) -> None:
    """Set a ledger's clock."""
    ledger.now = time.time_ns() // 1000


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """A fresh ledger with one account on each kind of database, in which every fact must hold afterwards."""
    with open_ledger(database_url) as opened:
        to_the_present(opened)
        opened.put("acme")
        yield opened
        assert opened.read(verify) == []


def state(ledger: Ledger, id: str) -> tuple[str, str | None]:
    """State and reason of an effect."""
    row = ledger.row(s.effects, id)
    return row.state, row.reason


def shown(ledger: Ledger, id: str) -> Any:
    """A request as people see it."""
    found = ledger.read(lambda connection: find_approval(connection, NAMESPACE, ledger.now, id))
    assert found is not None
    return found


def waits(invocation_id: str, ordinal: int = 0, **changes: Any) -> NewEffect:
    """A call that waits for a person."""
    request = NewRequest("agent:answer", LAPSES)
    return effect(invocation_id, ordinal, **{"state": "AWAITING_APPROVAL", "request": request, **changes})


def asked(ledger: Ledger, fence: Fence, *effects: Any, **changes: Any) -> list[NewEffect]:
    """A settled reply whose calls wait, one for each effect class."""
    id = ledger.start(fence, ask(tool_calls=8))
    new = [waits(id, i, effect_class=of, **changes) for i, of in enumerate(effects or ("at_most_once",))]
    ledger.settle(fence, id, effects=tuple(new))
    return new


def parked(ledger: Ledger, effect_class: str = "at_most_once") -> tuple[Fence, NewEffect]:
    """A call that waits, and the attempt that came back to it."""
    first = ledger.claim()
    (new,) = asked(ledger, first, effect_class)
    ledger.end(first, "PARKED")
    return ledger.claim(), new


def allow(id: str, approver: str = "ann", valid_us: int = HOUR, **changes: Any) -> DecideApproval:
    """An approval."""
    return replace(DecideApproval(NAMESPACE, id, "approved", approver, "seen", valid_us), **changes)


def deny(id: str, approver: str = "ann", **changes: Any) -> DecideApproval:
    """A denial."""
    return replace(DecideApproval(NAMESPACE, id, "denied", approver, "too much", None), **changes)


def resumption(one: NewEffect, **changes: Any) -> Resumption:
    """What a turn says of a waiting effect that it comes back to."""
    return replace(Resumption(one.id, one.idempotency_key, one.arguments_digest, None), **changes)


def go_on(ledger: Ledger, fence: Fence, *waiting: NewEffect) -> list[Resumed]:
    """Begin what has been allowed."""
    found, _ = ledger.do(ContinueEffects(fence, tuple(map(resumption, waiting))))
    return list(found)
