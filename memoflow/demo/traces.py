"""The traces of the audit demo: what two providers sent, as objects of their SDKs, and what a host recorded.

An agent searches, calculates, writes a file and sends a report to somebody outside. In the valid trace a
human approved the sending; in the invalid one nobody did. The structure is that of the demo of the Causal
Memory Layer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from memoflow.canonical import JSON, Digester
from memoflow.causal.adapters import Seen, SeenCall, Terms, Tracer, anthropic_messages, openai_responses
from memoflow.causal.ctag import ActionClass, Domain
from memoflow.causal.findings import Finding
from memoflow.causal.record import Actor, CausalRecord

__all__ = ["INVALID", "LINEAGE_INVALID", "LINEAGE_VALID", "PROVIDERS", "VALID", "Trace", "record"]

HUMAN: Final = Actor(kind="human", name="alice", pid=100, uid=1000, comm="alice")
AGENT: Final = Actor(kind="agent", name="reporter", pid=200, uid=2000, comm="reporter")
SANDBOX: Final = Actor(kind="tool", name="sandbox", pid=300, uid=3000, comm="sandbox")
_UNSENT: Final = "simulated_not_executed"
_EXPIRES: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a tool, with what its host knows about it; ``parent`` where it is not what came before."""

    id: str
    tool: str
    arguments: dict[str, JSON]
    result: dict[str, JSON]
    terms: Terms
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class _Word:
    """Something a human said: a request, or an approval of the call that follows."""

    id: str
    action: str
    permitted_by: str
    approves: _Call | None = None


_Step = _Call | _Word


@dataclass(frozen=True, slots=True)
class Trace:
    """What was recorded, and what was wrong with ids of calls and results."""

    records: tuple[CausalRecord, ...]
    problems: tuple[Finding, ...]


def _terms(action: str, action_class: ActionClass, permitted_by: str, intent: str, **more: Any) -> Terms:
    return Terms(action=action, action_class=action_class, permitted_by=permitted_by, intent=intent, **more)


_SEARCH: Final = _Call(
    "tool-web-search-1",
    "web_search",
    {"query": "delivery times of the last quarter"},
    {"status": "ok", "hits": 3},
    _terms("read", ActionClass.READ, "task:quarterly-report", "Find the delivery times."),
)
_CALCULATE: Final = _Call(
    "tool-code-exec-1",
    "run_code",
    {"code": "sum(days) / len(days)"},
    {"status": "ok", "mean_days": "4.2"},
    _terms(
        "exec",
        ActionClass.EXEC,
        "policy:sandboxed-code",
        "Calculate the mean.",
        risk="medium",
        actor=SANDBOX,
        domain=Domain.SANDBOX,
    ),
)
_WRITE: Final = _Call(
    "tool-file-write-1",
    "write_file",
    {"path": "reports/q3.md", "text": "Mean delivery time: 4.2 days."},
    {"status": "ok", "bytes": 29},
    _terms("write", ActionClass.WRITE, "task:quarterly-report", "Write the report."),
)


def _send(permission: str, status: str, result: str, parent: str | None = None) -> _Call:
    return _Call(
        "tool-external-api-1",
        "send_report",
        {"recipient": "board@example.com", "path": "reports/q3.md"},
        {"status": result},
        _terms(
            "send",
            ActionClass.DATA_EGRESS,
            f"human_approval:{permission}",
            "Send the report to the board.",
            risk="high",
            approval_required=True,
            approval_status=status,
            domain=Domain.THIRD_PARTY,
        ),
        parent,
    )


_TICKET: Final = "ticket-42"
_APPROVED: Final = _send(_TICKET, f"approved:{_TICKET}", "sent")
_BEFORE: Final[tuple[_Step, ...]] = (
    _Word("request-1", "approve_task", "root_event:quarterly-report"),
    _SEARCH,
    _CALCULATE,
    _WRITE,
)
INVALID: Final[tuple[_Step, ...]] = (*_BEFORE, _send("missing", "missing", _UNSENT, "missing-human-approval"))
VALID: Final[tuple[_Step, ...]] = (
    *_BEFORE,
    _Word("human-approval-external-send-1", "approve_external_send", f"human_approval:{_TICKET}", _APPROVED),
    _APPROVED,
)


def _step(id: str, tool: str, action: str, action_class: ActionClass, permitted_by: str) -> _Call:
    return _Call(
        id, tool, {"of": "model-7"}, {"status": "ok"}, _terms(action, action_class, permitted_by, "Roll out.")
    )


_READ: Final = _step("read-metrics", "read_metrics", "read", ActionClass.READ, "task:rollout")
_PLAN: Final = _step("write-plan", "write_plan", "write", ActionClass.WRITE, "task:rollout")
_SELECT: Final = _step("select-model", "select_model", "select", ActionClass.ML_ACTION, "policy_approval:p-7")
_DEPLOY: Final = _step("deploy", "deploy", "exec", ActionClass.EXEC, "human_approval:t-7")
_ROLLOUT: Final[tuple[_Step, ...]] = (_Word("rollout", "approve_task", "root_event:rollout"), _READ, _PLAN)
LINEAGE_INVALID: Final[tuple[_Step, ...]] = (*_ROLLOUT, _SELECT, _DEPLOY)
LINEAGE_VALID: Final[tuple[_Step, ...]] = (
    *_ROLLOUT,
    _Word("policy-7", "approve_model", "policy_approval:p-7", _SELECT),
    _SELECT,
    _Word("approval-7", "approve_deployment", "human_approval:t-7", _DEPLOY),
    _DEPLOY,
)


def record(steps: Sequence[_Step], provider: str) -> Trace:
    """Let a provider send the calls of some steps, and write down what its host would."""
    moments, ids = count(1), iter([step.id for step in steps])
    tracer = Tracer(
        AGENT,
        clock=lambda: next(moments),
        make_id=lambda: next(ids),
        payloads=True,
    )
    sent = PROVIDERS[provider]
    numbers = count(1)
    for step in steps:
        if isinstance(step, _Word):
            _say(tracer, step)
            continue
        tracer.cursor = step.parent or tracer.cursor
        tracer.turn(sent(step, next(numbers)), _always(step.terms))
    return Trace(tuple(tracer.records), tuple(tracer.problems))


def _say(tracer: Tracer, step: _Word) -> None:
    tracer.event(
        HUMAN,
        step.action,
        permitted_by=step.permitted_by,
        object=None if step.approves is None else {"approval": _approval(step.approves)},
        domain=Domain.USER,
        action_class=ActionClass.OVERRIDE,
    )


def _approval(call: _Call) -> dict[str, JSON]:
    """What an approval must say to permit exactly one call."""
    return {
        "status": "approved",
        "tool": call.tool,
        "arguments_digest": Digester().json(call.arguments),
        "requested_by": AGENT.key,
        "expires_at": _EXPIRES,
    }


def _always(terms: Terms) -> Callable[[SeenCall], Terms]:
    return lambda _: terms


def _openai(call: _Call, number: int) -> Seen:
    from openai.types.responses import Response

    call_id = f"call_cml_openai_{number}"
    item = {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": call_id,
        "name": call.tool,
        "arguments": json.dumps(call.arguments),
        "status": "completed",
    }
    reply = Response.model_validate({**_REPLY, "id": f"resp_{number}", "output": [item]})
    answer = {"type": "function_call_output", "call_id": call_id, "output": json.dumps(call.result)}
    return openai_responses.read([*reply.output, answer])


_REPLY: Final[dict[str, JSON]] = {
    "object": "response",
    "created_at": 0,
    "model": "simulated-model",
    "status": "completed",
    "parallel_tool_calls": False,
    "tool_choice": "auto",
    "tools": [],
}


def _claude(call: _Call, number: int) -> Seen:
    from anthropic.types import Message

    call_id = f"toolu_cml_claude_{number}"
    message = Message.model_validate(
        {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": "simulated-model",
            "content": [{"type": "tool_use", "id": call_id, "name": call.tool, "input": call.arguments}],
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
    )
    answer = {
        "type": "tool_result",
        "tool_use_id": call_id,
        "content": json.dumps(call.result),
        "is_error": call.result["status"] in ("error", _UNSENT),
    }
    return anthropic_messages.read([*message.content, answer], stop_reason=message.stop_reason)


PROVIDERS: Final[dict[str, Callable[[_Call, int], Seen]]] = {"openai": _openai, "claude": _claude}
