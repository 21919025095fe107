"""The ledger as a causal log: a view of its rows, no second copy of the truth.

- An **activity** (``start``) is permitted by ``root_event:…``, or by ``task:<workflow>/<run>`` where it
  descends from the cause that it was started with.
- An **invocation** (``ask_model``) is permitted by ``budget:<account>`` and descends from its cause or its
  activity; one of a later round from the tool calls of the round before.
- A **tool effect** (``read`` or ``write``) is permitted by ``tool:<name>@<version>`` and descends from its
  invocation; or by ``human_approval:<effect>``, and descends from the approval. What the provider ran itself
  (``provider_side``) is permitted by ``provider:<name>``.
- An **approval** is asked for (``request_approval``) by its invocation, and given or refused (``approve``,
  ``deny``) because of the request. A call that a judge denied (``deny``) is permitted by ``policy:denied``.
- A **decision** about an unknown is permitted by ``operator:<decision>`` and descends from what it is about.

Calls that were refused because they could not be run at all crossed no boundary and have no record. Times
are the database's, raised to the time of the cause where its clock was set back in between: that one came
after the other is certain without it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import singledispatchmethod
from typing import Final

from memoflow.canonical import JSON
from memoflow.causal.adapters.calls import call_envelope
from memoflow.causal.adapters.seen import SeenCall, SeenResult
from memoflow.causal.ctag import ActionClass, Domain, encode
from memoflow.causal.envelopes import CLAUDE_MESSAGES, OPENAI_CHAT, OPENAI_RESPONSES, Shape
from memoflow.causal.ordering import CausesFirst
from memoflow.causal.record import MAX_JOINS, Actor, CausalRecord
from memoflow.causal.strict.case import REFUSED
from memoflow.causal.strict.rules import StrictRules
from memoflow.identity import tool_label
from memoflow.ledger.causes import (
    ActivityRow,
    ApprovalRow,
    CauseRow,
    DecisionRow,
    EffectRow,
    InvocationRow,
    RequestRow,
)

__all__ = ["ROOT", "Find", "ledger_rules", "records_of"]

ROOT: Final = "root_event:"
"""A cause that begins so names an event outside of all logs: what descends from it is a root."""

Find = Callable[[Collection[str]], Iterable[CauseRow]]
"""Looks up rows of other runs by id."""

_NANOS: Final = 1_000
_PERMISSIONS: Final = ("budget:*", "operator:*", "policy:*", "provider:*", "task:*", "tool:*")
_SHAPES: Final = {
    ("openai", "responses"): OPENAI_RESPONSES,
    ("openai", "chat.completions"): OPENAI_CHAT,
    ("anthropic", "messages"): CLAUDE_MESSAGES,
}
_KINDS: Final = {
    OPENAI_RESPONSES: {
        "function": ("function_call", "function_call_output"),
        "custom": ("custom_tool_call", "custom_tool_call_output"),
    },
    OPENAI_CHAT: {"function": ("function", "tool"), "custom": ("custom", "tool")},
    CLAUDE_MESSAGES: {"function": ("tool_use", "tool_result")},
}
"""What each API calls a call, and the result that it is given."""


def ledger_rules(rules: StrictRules | None = None) -> StrictRules:
    """Rules for a ledger's own records, whose permissions are rows of it: budgets, tools, runs, decisions."""
    rules = rules or StrictRules()
    return replace(rules, permissions=(*rules.permissions, *_PERMISSIONS))


def records_of(rows: Iterable[CauseRow], find: Find = lambda ids: ()) -> Iterator[CausalRecord]:
    """The causal records of a run, causes before effects.

    Args:
        rows: in the order of `memoflow.ledger.causes.cause_rows`.
        find: looks up the causes that lie in other runs, with the calls that these belong to; without it
            they are missing parents.
    """
    view, order = _View(), CausesFirst()
    for row in rows:
        for record in view.records(row):
            yield from order.place(record)
    # Activities, calls and tools of other runs that began something here, and what they descend from.
    known: dict[str, CausalRecord] = {}
    while wanted := order.missing():
        foreign = _View()
        for row in find(wanted - known.keys()):
            known.update((record.id, record) for record in foreign.records(row))
        for id in sorted(wanted & known.keys()):
            yield from order.place(known.pop(id))
    yield from order.rest()


class _View:
    """Makes records of rows, and remembers what later ones of the same call descend from."""

    def __init__(self) -> None:
        self._rounds: dict[tuple[str, int], str] = {}
        """The last request of each round of each call."""
        self._calls: dict[str, dict[int, str]] = defaultdict(dict)
        """What stands for each tool call of a request, by its place in the reply."""
        self._approved: set[str] = set()
        """The effects that a person allowed; an approval bears the id of its effect."""
        self._holding: dict[tuple[str, int], str] = {}
        """The approval under which a call was begun: it holds for its further executions, not for earlier."""

    @singledispatchmethod
    def records(self, row: CauseRow) -> Iterable[CausalRecord]:
        """The records that a row stands for: one, or none."""
        raise TypeError(type(row).__name__)

    @records.register
    def _(self, row: ActivityRow) -> Iterable[CausalRecord]:
        root = row.cause is None or row.cause.startswith(ROOT)
        permitted = f"task:{row.workflow_id}/{row.run_id}"
        if root:
            permitted = row.cause or f"{ROOT}activity:{row.activity_type}"
        yield _record(
            row,
            Actor(kind="host", name=row.activity_type),
            "start",
            {
                "workflow_id": row.workflow_id,
                "run_id": row.run_id,
                "activity_id": row.activity_id,
                "activity": f"{row.activity_type}@{row.activity_version}",
                "input_digest": row.input_digest,
            },
            permitted,
            None if root else row.cause,
            (Domain.SERVICE, ActionClass.NONE),
        )

    @records.register
    def _(self, row: InvocationRow) -> Iterable[CausalRecord]:
        *joins, parent = self._before(row)
        if row.turn_id is not None:
            self._rounds[row.turn_id, row.round] = row.id
        yield _record(
            row,
            Actor(kind="agent", name=row.activity_type),
            "ask_model",
            {
                "provider": row.provider,
                "api": row.api,
                "model": row.model,
                "round": row.round,
                "evidence_bundle": _evidence(row.request_digest, row.response_digest),
            },
            f"budget:{row.account.splitlines()[0]}",
            parent,
            (Domain.AGENT, ActionClass.ML_ACTION),
            tuple(joins[-MAX_JOINS:]),
        )

    def _before(self, row: InvocationRow) -> list[str]:
        """What a request descends from: the calls of the round before, else its request, else its cause."""
        before = None if row.turn_id is None else self._rounds.get((row.turn_id, row.round - 1))
        if before is not None:
            calls = self._calls.get(before, {})
            return [calls[ordinal] for ordinal in sorted(calls)] or [before]
        return [row.activity if row.cause is None or row.cause.startswith(ROOT) else row.cause]

    @records.register
    def _(self, row: EffectRow) -> Iterable[CausalRecord]:
        denied = row.state == "DENIED"
        if row.state in ("REFUSED", "AWAITING_APPROVAL") or (denied and row.request_id is not None):
            return
        self._calls[row.invocation_id][row.ordinal] = row.id
        yield (self._denied if denied else self._hosted if row.kind == "hosted" else self._run)(row)

    def _run(self, row: EffectRow) -> CausalRecord:
        call = (row.invocation_id, row.ordinal)
        if row.id in self._approved:
            self._holding[call] = row.id
        approval = self._holding.get(call)
        reads = row.effect_class == "read_only"
        return _record(
            row,
            Actor(kind="agent", name=row.activity_type),
            "read" if reads else "write",
            _payload(row, "not_required" if approval is None else f"approved:{approval}"),
            f"tool:{_tool(row)}" if approval is None else f"human_approval:{approval}",
            row.invocation_id if approval is None else f"approval:{approval}",
            # Its action says as much; a tag would contradict rules that put the tool into another class.
            None,
        )

    def _hosted(self, row: EffectRow) -> CausalRecord:
        return _record(
            row,
            Actor(kind="provider", name=row.provider),
            "provider_side",
            _payload(row, "not_required"),
            f"provider:{row.provider}",
            row.invocation_id,
            (Domain.THIRD_PARTY, ActionClass.NONE),
        )

    def _denied(self, row: EffectRow) -> CausalRecord:
        """A call that a judge turned down. One that a person did has an approval's records."""
        return _record(
            row,
            Actor(kind="host", name=row.activity_type),
            "deny",
            {**_payload(row, "not_required"), "execution": REFUSED},
            "policy:denied",
            row.invocation_id,
            (Domain.SERVICE, ActionClass.NONE),
        )

    @records.register
    def _(self, row: RequestRow) -> Iterable[CausalRecord]:
        own = self._calls[row.invocation_id][row.ordinal] = f"request:{row.id}"
        yield _record(
            row,
            _requester(row),
            "request_approval",
            {"approval_request": {"tool": _tool(row), "arguments_digest": row.arguments_digest}},
            f"tool:{_tool(row)}",
            row.invocation_id,
            (Domain.AGENT, ActionClass.NONE),
            id=own,
        )

    @records.register
    def _(self, row: ApprovalRow) -> Iterable[CausalRecord]:
        own = self._calls[row.invocation_id][row.ordinal] = f"approval:{row.id}"
        approved = row.verdict == "approved"
        if approved:
            self._approved.add(row.id)
        terms: dict[str, JSON] = {
            "status": row.verdict,
            "tool": row.tool_name,
            "tool_namespace": row.tool_namespace,
            "tool_version": row.tool_version,
            "run": f"{row.workflow_id}/{row.run_id}",
            "arguments_digest": row.arguments_digest,
            "requested_by": _requester(row).key,
        }
        if row.expires_at is not None:
            terms["expires_at"] = row.expires_at * _NANOS
        yield _record(
            row,
            Actor(kind="human", name=row.approver),
            "approve" if approved else "deny",
            {"approval": terms},
            f"human_approval:{row.id}",
            f"request:{row.id}",
            (Domain.USER, ActionClass.OVERRIDE if approved else ActionClass.NONE),
            id=own,
        )

    @records.register
    def _(self, row: DecisionRow) -> Iterable[CausalRecord]:
        yield _record(
            row,
            Actor(kind="human", name=row.actor),
            row.verdict,
            {"about": row.kind, "evidence_digest": row.evidence_digest},
            f"operator:{row.id}",
            row.target_id,
            (Domain.ADMIN, ActionClass.OVERRIDE),
        )


def _record(
    row: CauseRow,
    actor: Actor,
    action: str,
    payload: dict[str, JSON],
    permitted_by: str,
    parent: str | None,
    tag: tuple[Domain, ActionClass] | None,
    joins: tuple[str, ...] = (),
    *,
    id: str | None = None,
) -> CausalRecord:
    return CausalRecord(
        id=row.id if id is None else id,
        timestamp=row.at * _NANOS,
        actor=actor,
        action=action,
        object=payload,
        permitted_by=permitted_by,
        parent_cause=parent,
        joins=joins,
        ctag=None if tag is None else encode(*tag, parent=parent),
    )


def _payload(row: EffectRow, status: str) -> dict[str, JSON]:
    payload: dict[str, JSON] = {
        "tool": row.tool_name,
        "tool_namespace": row.tool_namespace,
        "tool_version": row.tool_version,
        "run": f"{row.workflow_id}/{row.run_id}",
        "effect_class": row.effect_class,
        "number": row.execution,
        "idempotency_key": row.idempotency_key,
        "human_approval": {"required": status != "not_required", "status": status},
        "evidence_bundle": _evidence(row.arguments_digest, row.result_digest),
    }
    if row.claim is not None:
        payload["claim"] = json.loads(row.claim)
    if (shape := _SHAPES.get((row.provider, row.api))) is not None:
        payload["provider_envelope"] = _envelope(row, shape)
    return payload


def _envelope(row: EffectRow, shape: Shape) -> dict[str, JSON]:
    # The ledger names what the provider ran by its type alone.
    kind, answer = _KINDS[shape].get(row.kind, (row.tool_name, row.tool_name))
    hosted = row.kind == "hosted"
    call = SeenCall(shape, kind, row.call_id, row.tool_name, arguments=None, hosted=hosted)
    result = None
    if row.result_digest is not None:
        result = SeenResult(answer, row.call_id, output=None, is_error=row.state != "DONE")
    return call_envelope(call, result, row.arguments_digest, row.result_digest)


def _evidence(request: str | None, result: str | None) -> JSON:
    return {"request_digest": request, "result_digest": result}


def _requester(row: RequestRow | ApprovalRow) -> Actor:
    """Who asked: an agent by the name of its activity, or whoever the run named, by kind or a person."""
    kind, _, name = row.requester.partition(":")
    return Actor(kind=kind, name=name) if kind and name else Actor(kind="human", name=row.requester)


def _tool(row: EffectRow | RequestRow) -> str:
    return f"{tool_label(row.tool_namespace, row.tool_name)}@{row.tool_version}"
