"""The record of one call: from what was seen of it, and what its host says about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from memoflow.canonical import JSON, Digester
from memoflow.causal._frozen import thaw
from memoflow.causal.adapters.seen import SeenCall, SeenResult
from memoflow.causal.classes import ClassRule, classify
from memoflow.causal.ctag import ActionClass, Domain, encode
from memoflow.causal.record import Actor, CausalRecord

__all__ = ["Terms", "call_envelope", "call_record"]

_RAW_INPUT: Final = frozenset({"custom", "custom_tool_call"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the host says about a call. Nothing of it comes from the model.

    Attributes:
        permitted_by: a reference to what permits it.
        action: the boundary that it crosses.
        intent: one sentence; payload, so only with ``payloads``.
        risk: low, medium or high.
        approval_required: whether the host asks for an approval.
        approval_status: for example ``approved:ticket-42`` or ``missing``.
        actor: who acts, if not the agent.
        domain: where it comes from.
        action_class: its class, if not by the rules.
        tool_version: the version of the tool.
        simulated: whether nothing real was done.
    """

    permitted_by: str
    action: str = "exec"
    intent: str | None = None
    risk: str = "low"
    approval_required: bool = False
    approval_status: str = "not_required"
    actor: Actor | None = None
    domain: Domain = Domain.AGENT
    action_class: ActionClass | None = None
    tool_version: str | None = None
    simulated: bool = False


def call_record(
    call: SeenCall,
    result: SeenResult | None,
    terms: Terms,
    *,
    id: str,
    timestamp: int,
    actor: Actor,
    parent: str | None,
    classes: Sequence[ClassRule] = (),
    digester: Digester | None = None,
    payloads: bool = False,
    refused: bool = False,
) -> CausalRecord:
    """The record of one call: proposed while it has no result, observed when it has one.

    Args:
        call: see `openai_responses.read` and its like.
        result: what came of it; None for a proposal, or where it is not known.
        terms: what the host says about it.
        id: of the record; the same for the proposal and what is observed.
        timestamp: nanoseconds.
        actor: who acts, unless the terms say otherwise.
        parent: id of the record that caused it; never the id of a call.
        classes: how it is classified, with its arguments, where the terms give no class.
        digester: makes the digests.
        payloads: whether arguments, result and intent stand in the record; else only their digests.
        refused: whether the host did not execute it.

    Raises:
        InvalidRequest: arguments or result have no JSON form.
    """
    digester = digester or Digester()
    digests = _object(
        call,
        result,
        terms,
        request_digest=_digest(call.arguments, digester, raw=call.kind in _RAW_INPUT),
        result_digest=None if result is None else _digest(result.output, digester),
        refused=refused,
    )
    whole = digests | _plain(call, result, terms)
    record = CausalRecord(
        id=id,
        timestamp=timestamp,
        actor=terms.actor or actor,
        action=terms.action,
        object=whole,
        permitted_by=terms.permitted_by,
        parent_cause=parent,
    )
    # With the arguments, though they may not stand in the record: the class is kept in the tag.
    known = classify(record, classes).action_class if terms.action_class is None else terms.action_class
    tag = encode(terms.domain, known, parent=parent)
    return replace(record, object=whole if payloads else digests, ctag=tag)


def _object(
    call: SeenCall,
    result: SeenResult | None,
    terms: Terms,
    *,
    request_digest: str,
    result_digest: str | None,
    refused: bool,
) -> dict[str, JSON]:
    """What stands in every record: of the content only its digests."""
    payload: dict[str, JSON] = {
        "tool": call.name,
        "risk_level": terms.risk,
        "human_approval": {"required": terms.approval_required, "status": terms.approval_status},
        "evidence_bundle": {
            "request_digest": request_digest,
            "result_digest": result_digest,
            "artifacts": [],
            "simulated": terms.simulated,
        },
        "provider_envelope": call_envelope(call, result, request_digest, result_digest),
    }
    if terms.tool_version is not None:
        payload["tool_version"] = terms.tool_version
    if refused:
        payload["execution"] = "refused"
    return payload


def _plain(call: SeenCall, result: SeenResult | None, terms: Terms) -> dict[str, JSON]:
    """The content of a call, which stands in a record only where that is wanted."""
    plain: dict[str, JSON] = {"intent_description": terms.intent, "request": call.arguments}
    return plain if result is None else {**plain, "result": result.output}


def _digest(value: JSON, digester: Digester, *, raw: bool = False) -> str:
    # As the ledger does: the input of a custom tool is not JSON, and is digested as the bytes that it is.
    return digester.bytes(value.encode()) if raw and isinstance(value, str) else digester.json(thaw(value))


def call_envelope(
    call: SeenCall, result: SeenResult | None, request_digest: str | None, result_digest: str | None
) -> dict[str, JSON]:
    """How the messages of a call are found again at its provider; of its content only the digests."""
    shape = call.shape
    envelope: dict[str, JSON] = {
        "provider": shape.provider,
        "api": shape.api,
        "execution_boundary": shape.hosted if call.hosted else shape.host,
    }
    if call.stop_reason is not None:
        envelope["assistant_stop_reason"] = call.stop_reason
    envelope[shape.request] = {
        "type": call.kind,
        shape.request_id: call.call_id,
        "name": call.name,
        shape.input_digest: request_digest,
    }
    if result is not None:
        given: dict[str, JSON] = {"type": result.kind, shape.result_id: result.call_id}
        if shape.provider == "claude":
            given["is_error"] = result.is_error
        envelope[shape.result] = {**given, shape.output_digest: result_digest}
    return envelope
