"""Audit claims: what models are asked to say about their calls, and how much of it is true.

A claim is one sentence of intent, the id of the record that caused the call, a risk level, whether an
approval is needed, and the ids of records used as evidence. It travels in a reserved member of the arguments
and is taken out before the tool sees them. It permits nothing: the host derives all of it itself, and where
the two disagree, that is a finding. Only its digest is kept.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from memoflow.canonical import JSON, Digester, freeze_json
from memoflow.causal.envelopes import section
from memoflow.causal.record import CausalRecord
from memoflow.errors import InvalidTool

__all__ = ["RESERVED", "Claim", "TakenClaim", "ask_for_claims", "disagreements", "take_claim", "with_claim"]

RESERVED: Final = "audit_claim"
"""The member of the arguments that a claim stands in."""

_LEVELS: Final = ("low", "medium", "high")
_MAX_INTENT: Final = 2_000
_MAX_EVIDENCE: Final = 64
_MAX_ID: Final = 256
_MEMBERS: Final[dict[str, dict[str, JSON]]] = {
    "intent": {"type": "string", "description": "One sentence: what this call is for."},
    "parent_record": {
        "type": ["string", "null"],
        "description": "The record id, as given by the host, that this call follows from, or null.",
    },
    "risk_level": {"type": "string", "enum": list(_LEVELS)},
    "approval_needed": {"type": "boolean", "description": "Whether a human should approve this call first."},
    "evidence": {
        "type": "array",
        "items": {"type": "string"},
        "description": "Record ids, as given by the host, that this call relies on. Never invent any.",
    },
}
_DESCRIPTION: Final = (
    "A claim about this call, for its audit. It permits nothing and is not passed to the tool."
)


def with_claim(schema: Mapping[str, JSON], *, strict: bool = False) -> dict[str, JSON]:
    """A tool's JSON schema with the reserved member added.

    Args:
        schema: of an object; it is not changed.
        strict: as for OpenAI's strict mode, where every property is required: the claim may be null there.

    Raises:
        InvalidTool: the schema is not one of an object, or has a property of that name already.
    """
    copy: dict[str, JSON] = freeze_json(schema)
    properties = copy.get("properties", {})
    if copy.get("type") != "object" or not isinstance(properties, dict):
        raise InvalidTool(
            "Audit claims can only be asked for with a schema of an object that has 'properties'."
        )
    if RESERVED in properties:
        raise InvalidTool(
            f"The schema has a property {RESERVED!r} of its own. Rename it, or ask for no claims."
        )
    copy["properties"] = {**properties, RESERVED: _claim_schema(["object", "null"] if strict else "object")}
    if strict:
        copy["required"] = [*copy.get("required", []), RESERVED]
    return copy


def _claim_schema(kind: JSON) -> dict[str, JSON]:
    return {
        "type": kind,
        "description": _DESCRIPTION,
        "properties": freeze_json(_MEMBERS),
        "required": list(_MEMBERS),
        "additionalProperties": False,
    }


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


@dataclass(frozen=True, slots=True)
class Claim:
    """What a model says about its call. None of it is trusted."""

    intent: str = field(repr=False)
    parent_record: str | None
    risk_level: str
    approval_needed: bool
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TakenClaim:
    """What stood in the reserved member.

    Attributes:
        claim: None if there was none, or it has another shape.
        digest: of what stood there; None if nothing did.
        malformed: whether what stood there is no claim. The call is not worse for it.
    """

    claim: Claim | None
    digest: str | None
    malformed: bool

    def noted(self, disagrees: Iterable[str] = ()) -> dict[str, JSON]:
        """What a record keeps of it, under ``object.claim``."""
        return {"digest": self.digest, "malformed": self.malformed, "disagrees": sorted(disagrees)}


def take_claim(
    arguments: Mapping[str, JSON], digester: Digester | None = None
) -> tuple[dict[str, JSON], TakenClaim]:
    """The arguments without the reserved member, which are what the tool is called with, and the claim.

    Raises:
        InvalidRequest: what stands in the member has no JSON form.
    """
    rest = {key: value for key, value in arguments.items() if key != RESERVED}
    raw = arguments.get(RESERVED)
    if raw is None:
        return rest, TakenClaim(None, None, False)
    claim = _read(raw)
    return rest, TakenClaim(claim, (digester or Digester()).json(raw), claim is None)


def _read(raw: JSON) -> Claim | None:
    if not isinstance(raw, dict) or raw.keys() != _MEMBERS.keys():
        return None
    parent, evidence = raw["parent_record"], raw["evidence"]
    fits = (
        _is_text(raw["intent"], _MAX_INTENT)
        and (parent is None or _is_text(parent, _MAX_ID))
        and raw["risk_level"] in _LEVELS
        and isinstance(raw["approval_needed"], bool)
        and isinstance(evidence, list)
        and len(evidence) <= _MAX_EVIDENCE
        and all(_is_text(item, _MAX_ID) for item in evidence)
    )
    if not fits:
        return None
    return Claim(raw["intent"], parent, raw["risk_level"], raw["approval_needed"], tuple(evidence))


def _is_text(value: object, limit: int) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= limit


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
