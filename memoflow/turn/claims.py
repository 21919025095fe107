"""What a model claims about its call, beside what its host sees: kept with the effect, by digest."""

from __future__ import annotations

from memoflow.canonical import canonical
from memoflow.tools import BoundArguments, Claim, read_claim
from memoflow.turn.call import Call
from memoflow.turn.judging import Judgement

__all__ = ["claim_text"]


def claim_text(call: Call, arguments: BoundArguments | None, judgement: Judgement | None) -> str | None:
    """What is kept of a call's claim, as JSON: its digest, whether it is none, and where it is not true.

    The evidence that it names is not compared: only the whole log tells which records there are. None if
    nothing was claimed.
    """
    raw = None if arguments is None else arguments.claim
    if raw is None:
        return None
    claim = read_claim(raw)
    kept = {
        "digest": call.attempt.digester.json(raw),
        "malformed": claim is None,
        "disagrees": [] if claim is None else _disagreements(call, judgement, claim),
    }
    return canonical(kept).decode()


def _disagreements(call: Call, judgement: Judgement | None, claim: Claim) -> list[str]:
    """Of ``approval``, ``parent`` and ``risk``, what the host sees otherwise."""
    needed = judgement is not None and judgement.said != "permit"
    given = (None, call.cause, call.attempt.fence.activity_id)
    wrong = {
        "approval": claim.approval_needed != needed,
        "parent": claim.parent_record not in given,
        "risk": needed and claim.risk_level != "high",
    }
    return [part for part, differs in wrong.items() if differs]
