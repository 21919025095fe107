"""Audit claims: what models are asked to say about their calls, and how much of it is true.

A claim is one sentence of intent, the id of the record that caused the call, a risk level, whether an
approval is needed, and the ids of records used as evidence. It travels in a reserved member of the arguments
and is taken out before the tool sees them. It permits nothing: the host derives all of it itself, and where
the two disagree, that is a finding. Only its digest is kept.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from memoflow.canonical import JSON, freeze_json
from memoflow.causal.envelopes import section
from memoflow.causal.record import CausalRecord
from memoflow.tools import RESERVED, Claim, TakenClaim, take_claim, with_claim

__all__ = ["RESERVED", "Claim", "TakenClaim", "ask_for_claims", "disagreements", "take_claim", "with_claim"]


def ask_for_claims(tools: Iterable[Mapping[str, JSON]]) -> list[dict[str, JSON]]:
    """Definitions of tools as an API takes them, each function's schema with the reserved member.

    OpenAI's (Responses and Chat Completions) and Anthropic's are known by their shape; what has no schema,
    as hosted and custom tools, is passed on as it is.

    Raises:
        InvalidTool: as `with_claim`.
    """
    return [_asking(freeze_json(tool)) for tool in tools]


def _asking(tool: dict[str, Any]) -> dict[str, JSON]:
    if isinstance(inner := tool.get("function"), dict):
        return {**tool, "function": _asking(inner)}
    for key in ("parameters", "input_schema"):
        if isinstance(tool.get(key), dict):
            return {**tool, key: with_claim(tool[key], strict=tool.get("strict") is True)}
    return tool


def disagreements(claim: Claim, record: CausalRecord, known: Container[str]) -> tuple[str, ...]:
    """Where a claim is not what its host derived: of ``approval``, ``evidence``, ``parent`` and ``risk``.

    Args:
        record: of the call, as the host made it.
        known: ids of the records that there are, for example an `Audit`: a model may invent others.
    """
    payload = record.object if isinstance(record.object, dict) else {}
    wrong = {
        "approval": claim.approval_needed != (section(payload, "human_approval").get("required") is True),
        "evidence": not all(item in known for item in claim.evidence),
        "parent": claim.parent_record != record.parent_cause,
        "risk": claim.risk_level != payload.get("risk_level"),
    }
    return tuple(part for part, differs in wrong.items() if differs)
