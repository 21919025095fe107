"""The reserved member of a tool's arguments in which a model may be asked for an audit claim.

It is added to the schema and taken out again before anything else sees the arguments: their check, their
digest and the tool know nothing of it. What stands in it permits nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from memoflow.canonical import JSON, Digester, StrictJSONError, canonical, freeze_json, parse_strict
from memoflow.errors import InvalidTool

__all__ = ["RESERVED", "Claim", "TakenClaim", "read_claim", "take_claim", "with_claim", "without_claim"]

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
    claim = read_claim(raw)
    return rest, TakenClaim(claim, (digester or Digester()).json(raw), claim is None)


def without_claim(raw: str, max_bytes: int) -> tuple[str, JSON]:
    """The text of arguments without the reserved member, and what stood in it; as it is without one.

    Args:
        raw: the provider's text, which need not be acceptable.
        max_bytes: most UTF-8 bytes of it.
    """
    try:
        value = parse_strict(raw, max_bytes=max_bytes)
    except StrictJSONError:
        return raw, None
    if not isinstance(value, dict) or RESERVED not in value:
        return raw, None
    claim = value.pop(RESERVED)
    return canonical(value).decode(), claim


def read_claim(raw: JSON) -> Claim | None:
    """A claim, if what stands there is one."""
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
