"""Rules about what a record carries: tags, provider envelopes, digests, claims, and risks without a class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from memoflow.canonical import JSON, Digester, key_of
from memoflow.causal.classes import action_class
from memoflow.causal.codes import Code
from memoflow.causal.ctag import ActionClass, Ctag, Domain, decode, lineage_hint
from memoflow.causal.envelopes import broken, content_digests, section
from memoflow.causal.strict.case import Case
from memoflow.errors import InvalidRequest

__all__ = ["check_payload", "request_digest"]

_HARMLESS: Final = frozenset({ActionClass.NONE, ActionClass.READ})


def check_payload(case: Case) -> None:
    """Everything that is wrong with what a record carries."""
    if case.record.ctag is not None:
        _tag(case, case.record.ctag)
    _digests(case)
    _envelope(case)
    _claim(case)
    if (
        case.acts
        and case.classified.basis == "action"
        and case.payload.get("risk_level") in case.rules.approval_risks
    ):
        case.found(
            Code.UNCLASSIFIED,
            f"It is of risk {case.payload['risk_level']}, and its class {case.action_class.name} comes from "
            "its action alone. Add a rule to 'classes' or a tag.",
        )


def _tag(case: Case, value: int) -> None:
    try:
        tag = decode(value)
    except InvalidRequest:
        case.found(Code.CTAG_RANGE, "Its tag is not a number of 16 bits.")
        return
    if tag.domain == Domain.RESERVED:
        case.found(Code.CTAG_RANGE, "Its tag is of the reserved domain.")
    hint = lineage_hint(case.record.parent_cause, tag.domain, tag.action_class, tag.generation)
    if tag.hint != hint:
        case.found(Code.CTAG_HINT, f"Its tag has the lineage hint {tag.hint}; its parent gives {hint}.")
    if tag.seal and tag.action_class != ActionClass.OVERRIDE:
        case.found(Code.CTAG_SEAL, f"Its tag is sealed, and of the class {tag.action_class.name}.")
    _tag_class(case, tag)


def _tag_class(case: Case, tag: Ctag) -> None:
    """A tag may say more than the name of the action, but not that it is harmless."""
    named = action_class(case.record.action)
    if tag.action_class != case.action_class:
        case.found(
            Code.CTAG_CLASS, f"Its tag says {tag.action_class.name}, the rules say {case.action_class.name}."
        )
    elif tag.action_class in _HARMLESS and named not in (ActionClass.NONE, tag.action_class):
        case.found(
            Code.CTAG_CLASS, f"Its tag says {tag.action_class.name}, its action is of class {named.name}."
        )


def request_digest(payload: Mapping[str, JSON], digester: Digester) -> JSON:
    """The digest of a call's arguments: of the arguments where they stand there, else the stated one."""
    stated = section(payload, "evidence_bundle").get("request_digest")
    if "request" not in payload or not _checkable(stated, digester):
        return stated
    actual = content_digests(payload["request"], digester)
    return stated if stated in actual else next(iter(actual), None)


def _checkable(digest: JSON, digester: Digester) -> bool:
    """Whether a digest can be made again: not without the key that it was made with."""
    return digest is None or (isinstance(digest, str) and key_of(digest) == digester.key_id)


def _digests(case: Case) -> None:
    evidence, digester = section(case.payload, "evidence_bundle"), case.rules.digester
    for name in ("request", "result"):
        stated = evidence.get(f"{name}_digest")
        if stated is None or name not in case.payload or not _checkable(stated, digester):
            continue
        if stated not in content_digests(case.payload[name], digester):
            case.found(Code.DIGEST_DIFFERS, f"Its {name}_digest is not that of the {name} beside it.")


def _envelope(case: Case) -> None:
    if (envelope := case.payload.get("provider_envelope")) is None:
        return
    if problems := list(broken(case.payload, envelope)):
        case.found(Code.ENVELOPE_BROKEN, f"Its provider envelope {'; '.join(problems)}.")


def _claim(case: Case) -> None:
    """What the host noted when it compared a model's claim with what it saw itself."""
    noted = section(case.payload, "claim").get("disagrees")
    if isinstance(noted, tuple) and noted:
        about = ", ".join(sorted(part[:40] for part in noted if isinstance(part, str)))
        case.found(Code.CLAIM_DISAGREES, f"The model's claim is not what the host sees: {about}.")
