"""Inspection as a type checker sees it; checked, never run."""

from __future__ import annotations

from typing import Any, Literal, assert_type

from memoflow import Judge, Runtime, tool
from memoflow.inspection import (
    Decision,
    Event,
    Finding,
    Inspection,
    Inspector,
    KnownValues,
    ManifestSeen,
    Policy,
    Prompt,
    Session,
    Source,
    ToolCall,
    ToolResult,
    audit_record,
    load_policy,
)
from memoflow.inspection.calls import AssembledCall, Holder, Out, Refusal, calls_in_reply, history
from memoflow.inspection.gate import InspectionJudge

send = Inspection(action="network", sensitive={"to": "recipient"}, results="untrusted")
policy = load_policy("policy.yaml")
assert_type(policy, Policy)
inspector = Inspector(
    policy, mode="enforce", on_ask="ask", declarations={"send": send}, known=KnownValues({})
)
session = inspector.session()
assert_type(session, Session)
session.judge(Event("s", 1, Prompt("Hello.")))
session.judge(Event("s", 2, ToolResult("read", "text", Source("mcp", "mail"))))
decision = session.judge(Event("s", 3, ToolCall("send", {"to": "a"})))
assert_type(decision, Decision)
assert_type(decision.verdict, Literal["allow", "ask", "deny"])
assert_type(decision.effect, Literal["run", "ask", "refuse"])
assert_type(decision.findings, tuple[Finding, ...])
assert_type(audit_record(decision, inspector.digester), dict[str, Any])

holder = Holder("responses", session)
assert_type(holder.feed(b"data: {}\n\n"), Out)
assert_type(holder.refused, Refusal | None)
assert_type(calls_in_reply("chat", {}), tuple[AssembledCall, ...])
assert_type(history("messages", {}), tuple[Prompt | ToolResult | ManifestSeen, ...])

Inspection(action="harmless")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Inspector(mode="off")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

judge: Judge = InspectionJudge(inspector, hosts=True)
Runtime.open(inspection=inspector)
Runtime.open(inspection="policy.yaml", judges=[judge])
Runtime.open(inspection=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@tool(version="v1", effect="at_most_once", inspect=send)
def send_email(to: str) -> str:
    return to


assert_type(send_email.inspect, Inspection | None)
tool(send_email.function, version="v1", effect="read_only", inspect="network")  # type: ignore[call-overload]  # pyright: ignore
