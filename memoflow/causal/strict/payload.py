"""Rules about what a record carries: tags, provider envelopes, digests, and risks without a class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from memoflow.canonical import JSON, Digester, key_of
from memoflow.causal._frozen import EMPTY
from memoflow.causal.ctag import ActionClass, Ctag, Domain, decode, lineage_hint
from memoflow.causal.strict.case import Case
from memoflow.causal.strict.codes import Code
from memoflow.errors import InvalidRequest

__all__ = ["check_payload", "request_digest"]


def check_payload(case: Case) -> None:
    """Everything that is wrong with what a record carries."""
    _tag(case)
    _digests(case)
    _envelope(case)
    if case.acts and case.classified.basis == "action" and case.payload.get("risk_level") in case.rules.approval_risks:
        case.found(
            Code.UNCLASSIFIED,
            f"It is of risk {case.payload['risk_level']}, and its class {case.action_class.name} comes from its "
            "action alone. Add a rule to 'classes' or a tag.",
        )


def _tag(case: Case) -> None:
    record = case.record
    if record.ctag is None:
        return
    try:
        tag = decode(record.ctag)
    except InvalidRequest:
        case.found(Code.CTAG_RANGE, "Its tag is not a number of 16 bits.")
        return
    if tag.domain == Domain.RESERVED:
        case.found(Code.CTAG_RANGE, "Its tag is of the reserved domain.")
    _tag_fields(case, tag)


def _tag_fields(case: Case, tag: Ctag) -> None:
    hint = lineage_hint(case.record.parent_cause, tag.domain, tag.action_class, tag.generation)
    if tag.hint != hint:
        case.found(Code.CTAG_HINT, f"Its tag has the lineage hint {tag.hint}; its parent gives {hint}.")
    if tag.seal and tag.action_class != ActionClass.OVERRIDE:
        case.found(Code.CTAG_SEAL, f"Its tag is sealed, and of the class {tag.action_class.name}.")
    if tag.action_class != case.action_class:
        case.found(Code.CTAG_CLASS, f"Its tag says {tag.action_class.name}, the rules say {case.action_class.name}.")


def request_digest(payload: Mapping[str, JSON], digester: Digester) -> JSON:
    """The digest of a call's arguments: of the arguments where they stand there, else the one that is stated."""
    stated = _section(payload, "evidence_bundle").get("request_digest")
    if "request" not in payload or not _checkable(stated, digester):
        return stated
    return digester.json(payload["request"])


def _checkable(digest: JSON, digester: Digester) -> bool:
    """Whether a digest can be made again: not without the key that it was made with."""
    return digest is None or (isinstance(digest, str) and key_of(digest) == digester.key_id)


def _digests(case: Case) -> None:
    evidence = _section(case.payload, "evidence_bundle")
    for name in ("request", "result"):
        stated = evidence.get(f"{name}_digest")
        if stated is None or name not in case.payload or not _checkable(stated, case.rules.digester):
            continue
        try:
            same = case.rules.digester.json(case.payload[name]) == stated
        except InvalidRequest:
            same = False
        if not same:
            case.found(Code.DIGEST_DIFFERS, f"Its {name}_digest is not that of the {name} beside it.")


class _Shape(NamedTuple):
    """Where an envelope has what: the same thing is called otherwise by each provider."""

    request: str
    result: str
    request_id: str
    result_id: str
    input_digest: str
    output_digest: str


_SHAPES: Final = {
    ("openai", "responses"): _Shape(
        "request_item", "result_item", "call_id", "call_id", "arguments_digest", "output_digest"
    ),
    ("openai", "chat_completions"): _Shape(
        "request_item", "result_item", "id", "tool_call_id", "arguments_digest", "content_digest"
    ),
    ("claude", "messages"): _Shape(
        "request_block", "result_block", "id", "tool_use_id", "input_digest", "content_digest"
    ),
}


def _envelope(case: Case) -> None:
    envelope = case.payload.get("provider_envelope")
    if envelope is None:
        return
    problems = list(_broken(case.payload, envelope)) if isinstance(envelope, dict) else ["is no JSON object"]
    if problems:
        case.found(Code.ENVELOPE_BROKEN, f"Its provider envelope {'; '.join(problems)}.")


def _broken(payload: Mapping[str, JSON], envelope: dict[str, JSON]) -> Iterator[str]:
    shape = _SHAPES.get((envelope.get("provider"), envelope.get("api")))
    if shape is None:
        yield "is of no provider and API that are known"
        return
    request, result = _section(envelope, shape.request), _section(envelope, shape.result)
    evidence = _section(payload, "evidence_bundle")
    call_id = request.get(shape.request_id)
    if not isinstance(call_id, str) or not call_id:
        yield "has no id of the call"
    if request.get("name") != payload.get("tool"):
        yield "names another tool"
    if request.get(shape.input_digest) != evidence.get("request_digest"):
        yield f"has another {shape.input_digest}"
    if result:
        if result.get(shape.result_id) != call_id:
            yield "has the result of another call"
        if result.get(shape.output_digest) != evidence.get("result_digest"):
            yield f"has another {shape.output_digest}"


def _section(payload: Mapping[str, JSON], key: str) -> Mapping[str, JSON]:
    value = payload.get(key)
    return value if isinstance(value, dict) else EMPTY
