"""What a running tool may know about its own call."""

from __future__ import annotations

from dataclasses import dataclass

from memoflow.identity import ActivityIdentity

__all__ = ["ToolCall"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The call a tool is serving; given to a function with a keyword-only ``call: ToolCall`` parameter.

    Attributes:
        idempotency_key: stable across attempts, and another for any other effect; pass it on.
        call_id: the provider's id of the call, for correlation only.
        attempt: attempt of the activity, from 1.
        ordinal: position among the calls of the reply, from 0.
        round: round of the tool loop, from 0.
        identity: the activity the call belongs to.
    """

    idempotency_key: str
    call_id: str
    attempt: int
    ordinal: int
    round: int
    identity: ActivityIdentity
