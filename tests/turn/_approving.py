"""Asking for what a person has to allow, and being that person."""

from __future__ import annotations

import json
from typing import Any

from memoflow import (
    ApprovalRequired,
)
from memoflow.testing import call, calls, text, usage
from tests.turn._asks import loop, stream
from tests.turn._worlds import World

__all__ = ["DONE", "LOOPS", "PAY", "approve", "deny", "required", "told"]

LOOPS = {"whole": loop, "streamed": stream}
PAY = calls(call("pay", {"n": 82}), usage=usage(10, 5))
DONE = text("Done.", usage=usage(20, 6))


def required(w: World, ask: Any, **options: Any) -> ApprovalRequired:
    """Ask, and be told that somebody has to allow something."""
    error: ApprovalRequired = w.ask(ask, **options).raised(ApprovalRequired)
    return error


def approve(w: World, error: ApprovalRequired, **options: Any) -> None:
    """Allow everything that waits."""
    for request in error.requests:
        w.rt.approvals.approve(request.id, **{"approver": "ann", "reason": "fine", **options})


def deny(w: World, error: ApprovalRequired, **options: Any) -> None:
    """Refuse everything that waits."""
    for request in error.requests:
        w.rt.approvals.deny(request.id, **{"approver": "ann", "reason": "too much", **options})


def told(w: World) -> dict[str, Any]:
    """The last output that the provider was handed, decoded."""
    (*_, output) = w.api.told(w.provider.requests[-1].json)
    found: dict[str, Any] = json.loads(output[1])
    return found
