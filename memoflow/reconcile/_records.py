"""What the reconciler hands out."""

from __future__ import annotations

from dataclasses import dataclass

from memoflow.ledger.decisions import Decision
from memoflow.ledger.queries import EffectInfo, InvocationInfo
from memoflow.ledger.unknowns import EvidenceInfo, Exposure

__all__ = ["Attempted", "Case", "Queue"]


@dataclass(frozen=True, slots=True)
class Queue:
    """What waits for a decision, oldest first, and how much of each account it holds."""

    invocations: tuple[InvocationInfo, ...]
    effects: tuple[EffectInfo, ...]
    exposures: tuple[Exposure, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """All that is known about one unknown, or one that was: the row, decisions, and late writes about it."""

    invocation: InvocationInfo | None
    effect: EffectInfo | None
    decisions: tuple[Decision, ...]
    evidence: tuple[EvidenceInfo, ...]


@dataclass(frozen=True, slots=True)
class Attempted:
    """What an automatic resolver could do about one invocation: a decision, or the code of why it was left.

    Codes: ``NOT_FOUND`` (the provider has no such reply), ``WRONG_REPLY`` (what came has another id),
    ``PENDING``, ``USAGE_MISSING``, ``RETRIEVE_FAILED``, ``RESPONSE_ID_NOT_RETAINED``,
    ``ACTIVITY_RUNNING``, ``DECIDED_MEANWHILE``, or the reason of an `UnreadableReply`.
    """

    invocation_id: str
    decision: Decision | None = None
    left: str | None = None
