"""Decisions for tests, on a ledger with one account."""

from __future__ import annotations

import uuid
from typing import Any, Final

from memoflow.budget import Amounts
from memoflow.ledger.decisions import DecideEffect, DecideInvocation, Retrieved
from memoflow.ledger.invocations import TokenUse
from tests.ledger._calls import NAMESPACE, ask

__all__ = ["RESERVED", "WANTED", "decide", "decide_effect", "retrieved"]

WANTED: Final = ask(
    total_tokens=100, input_tokens=30, output_tokens=70, tool_calls=2, cost=500, wall_clock_ms=9_000
)
RESERVED: Final[Amounts] = WANTED.hold()


def decide(id: str, verdict: Any = "settle", **changes: Any) -> DecideInvocation:
    """A decision on an invocation."""
    values = {"decision_id": str(uuid.uuid4()), "actor": "ann", "reason": "asked the provider"} | changes
    if verdict == "release":
        values.setdefault("evidence_digest", "sha256:evidence")
    return DecideInvocation(
        namespace=values.pop("namespace", NAMESPACE), invocation_id=id, verdict=verdict, **values
    )


def decide_effect(id: str, verdict: Any = "happened", **changes: Any) -> DecideEffect:
    """A decision on an effect."""
    values = {"decision_id": str(uuid.uuid4()), "actor": "ann", "reason": "asked the bank"} | changes
    if verdict == "happened":
        values.setdefault("result_digest", "sha256:result")
    else:
        values.setdefault("evidence_digest", "sha256:evidence")
    return DecideEffect(namespace=values.pop("namespace", NAMESPACE), effect_id=id, verdict=verdict, **values)


def retrieved(state: str = "SUCCEEDED", **changes: Any) -> Retrieved:
    """A reply that was fetched afterwards."""
    return Retrieved(
        state,
        "stop",
        None,
        "sha256:reply",
        "model-1-0125",
        "default",
        TokenUse(12, 3, 2, 20, 5, 77),
        **changes,
    )
