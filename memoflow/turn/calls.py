"""The tool calls of one reply: which may run, which are refused, and how each ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from memoflow.errors import ResultNotEncodable, ToolKnownFailure, ToolNotStarted, ToolTimedOut
from memoflow.identity import idempotency_key, new_id
from memoflow.ledger.effects import EffectResult, NewEffect, NewRequest
from memoflow.ledger.places import result_place
from memoflow.ledger.replay import EffectRecord
from memoflow.providers.base import HostedCall, PreparedRequest, Reply, RequestedCall
from memoflow.tools import (
    BoundArguments,
    Refusal,
    Tool,
    ToolCall,
    encode_result,
    known_failure_text,
    not_encodable_text,
    review_required_text,
    too_large_text,
)
from memoflow.turn.call import Call
from memoflow.turn.claims import claim_text
from memoflow.turn.judging import Judgement
from memoflow.turn.results import ToolResult
from memoflow.turn.steps import Execution, Finished, NotStarted, Raised, Returned, TimedOut

__all__ = ["JUDGED", "PlannedCall", "Settled", "hosted_effects", "plan_calls", "settle"]

# Not payload: what stands in the ledger for a name that the model invented.
UNKNOWN_NAME: Final = "(unknown)"
JUDGED: Final = "JUDGED"
"""The reason of an effect that judges denied."""

_STATES: Final = {"permit": "STARTED", "approval": "AWAITING_APPROVAL", "refuse": "DENIED"}


@dataclass(frozen=True, slots=True, eq=False)
class PlannedCall:
    """One requested call, checked: either it has a tool and bound arguments, or a refusal.

    ``judgement`` is what the judges say of one that has a tool; None before they were asked.
    """

    request: RequestedCall
    round: int
    tool: Tool[..., Any] | None = None
    arguments: BoundArguments | None = field(default=None, repr=False)
    key: str | None = None
    digest: str | None = None
    refusal: Refusal | None = None
    judgement: Judgement | None = None

    @property
    def state(self) -> str:
        """The state in which its next execution is recorded."""
        if self.refusal is not None:
            return "REFUSED"
        return _STATES["permit" if self.judgement is None else self.judgement.said]

    def effect(self, call: Call, invocation_id: str, before: EffectRecord | None = None) -> NewEffect:
        """The ledger row of the next execution of this call, or of its refusal."""
        tool, request, state = self.tool, self.request, self.state
        return NewEffect(
            id=new_id(),
            invocation_id=invocation_id,
            ordinal=request.ordinal,
            execution=1 if before is None else before.execution + 1,
            call_id=request.call_id.replace("\0", "\\0"),
            kind=request.kind,
            tool_namespace="" if tool is None else tool.namespace or "",
            tool_name=UNKNOWN_NAME if tool is None else tool.name,
            tool_version="" if tool is None else tool.version,
            effect_class="read_only" if tool is None else tool.effect,
            idempotency_key=self.key,
            arguments_digest=self.digest,
            state=state,
            reason=JUDGED if state == "DENIED" else None if self.refusal is None else self.refusal.code,
            supersedes=None if before is None else before.id,
            judgement=None if self.judgement is None else self.judgement.text(),
            claim=claim_text(call, self.arguments, self.judgement),
            request=self._request(call) if state == "AWAITING_APPROVAL" else None,
        )

    @staticmethod
    def _request(call: Call) -> NewRequest:
        return NewRequest(call.attempt.requester, call.attempt.approval_us)

    def execution(self, effect_id: str, call: Call) -> Execution:
        """What the driver runs for a STARTED row."""
        assert self.tool is not None, "only a call that has a tool is started"
        assert self.arguments is not None
        assert self.key is not None
        about = ToolCall(
            idempotency_key=self.key,
            call_id=self.request.call_id,
            attempt=call.attempt.fence.attempt,
            ordinal=self.request.ordinal,
            round=self.round,
            identity=call.attempt.identity,
        )
        return Execution(effect_id, self.tool, self.arguments, about)

    def result(self, state: str, output: str, *, restored: bool) -> ToolResult:
        """What the caller gets to see of this call."""
        return ToolResult(
            name=UNKNOWN_NAME if self.tool is None else self.tool.name,
            call_id=self.request.call_id,
            round=self.round,
            ordinal=self.request.ordinal,
            state=state,
            output=output,
            restored=restored,
            idempotency_key=self.key,
        )

    @property
    def denial(self) -> str:
        """What the model is told when a judge does not permit it."""
        return review_required_text(() if self.judgement is None else self.judgement.findings)


def plan_calls(call: Call, prepared: PreparedRequest, reply: Reply, number: int) -> list[PlannedCall]:
    """Check every call of a reply. A bad one is refused by itself; its siblings go on."""
    return [_plan(call, prepared, request, number) for request in reply.calls]


def _plan(call: Call, prepared: PreparedRequest, request: RequestedCall, number: int) -> PlannedCall:
    tool = None if call.toolset is None else call.toolset.lookup(request.namespace, request.name)
    refusal = _refusal(prepared, request, tool)
    if tool is None or refusal is not None:
        return PlannedCall(request, number, tool=tool, refusal=refusal)
    bound = tool.bind(request.arguments)
    if isinstance(bound, Refusal):
        return PlannedCall(request, number, tool=tool, refusal=bound)
    digest = bound.digest(call.attempt.digester)
    key = idempotency_key(
        call.attempt.identity,
        replay_key=call.replay_key or "",
        round=number,
        ordinal=request.ordinal,
        tool_namespace=tool.namespace,
        tool_name=tool.name,
        tool_version=tool.version,
        arguments_digest=digest,
    )
    return PlannedCall(request, number, tool=tool, arguments=bound, key=key, digest=digest)


def _refusal(
    prepared: PreparedRequest, request: RequestedCall, tool: Tool[..., Any] | None
) -> Refusal | None:
    if not request.complete:
        return Refusal("INCOMPLETE_CALL", "The call was not complete, so it was not run.")
    if not prepared.calls_allowed:
        return Refusal("NOT_OFFERED", "This request allows no tool calls, so the call was not run.")
    offered = prepared.offered is None or (request.namespace, request.name) in prepared.offered
    if tool is None or not offered or tool.custom != (request.kind == "custom"):
        return Refusal("UNKNOWN_TOOL", "No tool of this name and kind is offered, so nothing was run.")
    return None


def hosted_effects(reply: Reply, invocation_id: str) -> list[NewEffect]:
    """Rows for what the provider ran itself. Their ordinals count down from -1, apart from our own calls'."""
    return [_hosted(item, invocation_id) for item in reply.hosted]


def _hosted(item: HostedCall, invocation_id: str) -> NewEffect:
    return NewEffect(
        id=new_id(),
        invocation_id=invocation_id,
        ordinal=-1 - item.ordinal,
        execution=1,
        call_id=(item.id or "").replace("\0", "\\0"),
        kind="hosted",
        tool_namespace="",
        tool_name=_type_name(item.type),
        tool_version="",
        effect_class="at_most_once",
        idempotency_key=None,
        arguments_digest=None,
        state="PROVIDER_SIDE",
        reason=None,
    )


def _type_name(type: str) -> str:
    """An item type as far as it is a plain identifier; anything else is not repeated."""
    plain = type.isascii() and type.replace("_", "").isalnum() and len(type) <= 64
    return type if plain else UNKNOWN_NAME


# Finishing


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """How an execution is recorded, what the model is told, and what leaves the call.

    ``blocks`` says that the call is not run again before somebody has decided what it did.
    """

    record: EffectResult
    result: ToolResult | None = None
    raises: BaseException | None = None
    blocks: bool = False


def settle(call: Call, planned: PlannedCall, finished: Finished) -> Settled:
    """Turn the end of an execution into its record. What may have happened is never called failed."""
    effect_id = finished.execution.effect_id
    match finished.ending:
        case Returned(value):
            return _done(call, planned, effect_id, value)
        case Raised(error) if isinstance(error, ToolKnownFailure):
            return _told(
                call, planned, effect_id, "FAILED", "KNOWN_FAILURE", known_failure_text(_text(error))
            )
        case NotStarted():
            return Settled(EffectResult(effect_id, "FAILED", "NOT_STARTED"))
        case Raised(error) if isinstance(error, ToolNotStarted):
            kind = type(error).__name__[:128]
            return Settled(EffectResult(effect_id, "FAILED", "NOT_STARTED", error_type=kind), raises=error)
        case Raised(error):
            return _open(planned, effect_id, "TOOL_ERROR", error)
        case TimedOut(seconds):
            tool = finished.execution.tool
            return _open(
                planned,
                effect_id,
                "TOOL_TIMEOUT",
                ToolTimedOut(tool=tool.name, effect_id=effect_id, seconds=seconds),
            )


def _text(error: ToolKnownFailure) -> str:
    """What the tool says; nothing if its exception cannot say it, for that nothing happened still holds."""
    try:
        return str(error)
    except Exception:
        return ""


def _open(planned: PlannedCall, effect_id: str, reason: str, error: BaseException) -> Settled:
    """An exception says nothing about the outside world, except for a tool that only reads."""
    assert planned.tool is not None
    effect = planned.tool.effect
    state = "FAILED" if effect == "read_only" else "OUTCOME_UNKNOWN"
    record = EffectResult(effect_id, state, reason, error_type=type(error).__name__[:128])
    return Settled(record, raises=error, blocks=effect == "at_most_once")


def _done(call: Call, planned: PlannedCall, effect_id: str, value: Any) -> Settled:
    limit = call.terms.max_result_bytes
    try:
        encoded = encode_result(value, limit)
    except ResultNotEncodable:
        return _told(call, planned, effect_id, "DONE", "RESULT_NOT_ENCODABLE", not_encodable_text())
    if encoded.too_large:
        digest = call.attempt.digester.bytes(encoded.text.encode())
        text = too_large_text(digest, encoded.size, limit)
        return _told(
            call, planned, effect_id, "DONE", "RESULT_TOO_LARGE", text, digest=digest, size=encoded.size
        )
    return _told(call, planned, effect_id, "DONE", None, encoded.text)


def _told(
    call: Call,
    planned: PlannedCall,
    effect_id: str,
    state: str,
    reason: str | None,
    text: str,
    *,
    digest: str | None = None,
    size: int | None = None,
) -> Settled:
    assert planned.key is not None
    assert planned.digest is not None
    data = text.encode()
    place = result_place(planned.key, planned.digest)
    output = call.attempt.vault.seal(
        call.attempt.identity, effect_id, "result", place=place.place, binding=place.binding, value=data
    )
    record = EffectResult(
        effect_id,
        state,
        reason,
        result_digest=digest or call.attempt.digester.bytes(data),
        result_bytes=len(data) if size is None else size,
        output=output,
    )
    return Settled(record, planned.result(state, text, restored=False))
