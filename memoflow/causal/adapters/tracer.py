"""Records of calls, and the cursor that says what caused what."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from memoflow.canonical import JSON, Digester
from memoflow.causal._frozen import thaw
from memoflow.causal.adapters.correlation import Pair, correlate
from memoflow.causal.adapters.seen import Seen, SeenCall, SeenResult
from memoflow.causal.classes import ClassRule, classify
from memoflow.causal.ctag import ActionClass, Domain, encode
from memoflow.causal.findings import Finding
from memoflow.causal.record import Actor, CausalRecord
from memoflow.identity import new_id

__all__ = ["Terms", "Tracer", "call_record"]

_HOST: Final = Actor(kind="host", name="memoflow")
_AGENT: Final = Actor(kind="agent", name="agent")


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
    """
    payload = _payload(call, result, terms, digester or Digester(), refused)
    record = CausalRecord(
        id=id,
        timestamp=timestamp,
        actor=terms.actor or actor,
        action=terms.action,
        object=payload,
        permitted_by=terms.permitted_by,
        parent_cause=parent,
    )
    action_class = (
        classify(record, classes).action_class if terms.action_class is None else terms.action_class
    )
    tag = encode(terms.domain, action_class, parent=parent)
    kept = payload if payloads else {key: value for key, value in payload.items() if key not in _PLAIN}
    return replace(record, object=kept, ctag=tag)


_RAW_INPUT: Final = frozenset({"custom", "custom_tool_call"})
_PLAIN: Final = frozenset({"intent_description", "request", "result"})


def _payload(
    call: SeenCall, result: SeenResult | None, terms: Terms, digester: Digester, refused: bool
) -> dict[str, JSON]:
    request_digest = _digest(call.arguments, digester, raw=call.kind in _RAW_INPUT)
    result_digest = None if result is None else _digest(result.output, digester)
    payload: dict[str, JSON] = {
        "tool": call.name,
        "intent_description": terms.intent,
        "risk_level": terms.risk,
        "human_approval": {"required": terms.approval_required, "status": terms.approval_status},
        "request": call.arguments,
    }
    if result is not None:
        payload["result"] = result.output
    payload["evidence_bundle"] = {
        "request_digest": request_digest,
        "result_digest": result_digest,
        "artifacts": [],
        "simulated": terms.simulated,
    }
    payload["provider_envelope"] = _envelope(call, result, request_digest, result_digest)
    if terms.tool_version is not None:
        payload["tool_version"] = terms.tool_version
    if refused:
        payload["execution"] = "refused"
    return payload


def _digest(value: JSON, digester: Digester, *, raw: bool = False) -> str:
    # As the ledger does: the input of a custom tool is not JSON, and is digested as the bytes that it is.
    return digester.bytes(value.encode()) if raw and isinstance(value, str) else digester.json(thaw(value))


def _envelope(
    call: SeenCall, result: SeenResult | None, request_digest: str, result_digest: str | None
) -> dict[str, JSON]:
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


class Tracer:
    """Writes a log as things happen, and knows what the next thing will be caused by. Not thread-safe.

    Args:
        agent: who acts, unless the terms of a call say otherwise.
        host: who joins parallel branches.
        clock: nanoseconds.
        make_id: ids of records.
        classes: how calls are classified.
        digester: makes the digests.
        payloads: whether arguments and results stand in the records; see `call_record`.
    """

    def __init__(
        self,
        agent: Actor = _AGENT,
        *,
        host: Actor = _HOST,
        clock: Callable[[], int] = time.time_ns,
        make_id: Callable[[], str] = new_id,
        classes: Sequence[ClassRule] = (),
        digester: Digester | None = None,
        payloads: bool = False,
    ) -> None:
        self.agent, self.host = agent, host
        self.records: list[CausalRecord] = []
        self.problems: list[Finding] = []
        self.cursor: str | None = None
        self._clock, self._make_id = clock, make_id
        self._how: dict[str, Any] = {"classes": classes, "digester": digester, "payloads": payloads}

    def event(
        self,
        actor: Actor,
        action: str,
        *,
        permitted_by: str,
        object: JSON = None,
        domain: Domain = Domain.UNKNOWN,
        action_class: ActionClass = ActionClass.NONE,
        joins: Iterable[str] = (),
        id: str | None = None,
    ) -> CausalRecord:
        """Record what is no call: a request of a user, an approval, a join. It is caused by the cursor."""
        record = CausalRecord(
            id=id or self._make_id(),
            timestamp=self._clock(),
            actor=actor,
            action=action,
            object=object,
            permitted_by=permitted_by,
            parent_cause=self.cursor,
            joins=tuple(joins),
            ctag=encode(domain, action_class, parent=self.cursor),
        )
        return self._append(record)

    def turn(self, seen: Seen, terms: Callable[[SeenCall], Terms]) -> tuple[CausalRecord, ...]:
        """Record the calls of one turn, with their results, after the fact.

        Calls that stand side by side have the same parent, each on a branch of its own; where there are
        several, a record of the host joins the branches, and what comes next is caused by that.
        """
        pairs, orphans = correlate(seen)
        parent = self.cursor
        records = tuple(self._call(pair, terms(pair.call), parent) for pair in pairs)
        if len(records) > 1:
            self.cursor = parent
            branches = [record.id for record in records]
            self.event(
                self.host, "join", permitted_by=parent or branches[0], joins=branches, domain=Domain.SERVICE
            )
        if orphans:
            self.problems += [problem.finding(self.cursor or "") for problem in orphans]
        return records

    def _call(self, pair: Pair, terms: Terms, parent: str | None) -> CausalRecord:
        id = self._make_id()
        record = call_record(
            pair.call,
            pair.result,
            terms,
            id=id,
            timestamp=self._clock(),
            actor=self.agent,
            parent=parent,
            **self._how,
        )
        self.problems += [problem.finding(id) for problem in pair.problems]
        return self._append(record)

    def _append(self, record: CausalRecord) -> CausalRecord:
        self.records.append(record)
        self.cursor = record.id
        return record
