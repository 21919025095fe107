"""Inspection of what an agent does: every call is judged before it runs, by what is known of its session.

::

    inspector = Inspector(
        load_policy("policy.yaml"),
        mode="enforce",
        known=KnownValues.from_environment(os.environ),
        declarations={"send_email": Inspection(action="network", sensitive={"to": "recipient"})},
    )
    session = inspector.session()
    session.judge(Event("s-1", 1, Prompt("Summarise my inbox.")))
    session.judge(Event("s-1", 2, ToolResult("read_inbox", mail, Source("mcp", "mail"))))
    decision = session.judge(Event("s-1", 3, ToolCall("send_email", {"to": "x@example.net", "body": "…"})))
    decision.effect        # "run", "ask" or "refuse"

It is pure: it reads no network, no ledger and no files but policies. Matching takes linear time and texts are
looked at up to a size; what was too long, or could not be looked at, is told in the decision. Records hold
rule and detector ids, severities, lengths, digests and host names, never the text.

Needs the extra ``inspection``. Found and falsely found by the shipped policy: see ``certification
inspection``.
"""

from __future__ import annotations

from memoflow.declarations import Action, Inspection, Sensitive, Trust
from memoflow.inspection.audit import audit_record
from memoflow.inspection.detectors import KnownValues
from memoflow.inspection.engine import ENGINE_VERSION, Decision, Effect, Inspector, Mode, OnAsk, Session
from memoflow.inspection.events import (
    Event,
    ManifestSeen,
    ManifestTool,
    Prompt,
    SessionEnd,
    SessionStart,
    Source,
    SubagentReport,
    SubagentSpawn,
    ToolCall,
    ToolResult,
    Unknown,
    event_plain,
    parse_event,
)
from memoflow.inspection.findings import Facet, Finding, Severity
from memoflow.inspection.policy import Policy, Rule, Verdict, When
from memoflow.inspection.policy_file import load_policy
from memoflow.inspection.sessions import LabelledSession, Outcome, play, read_sessions
from memoflow.inspection.shipped import shipped_policy

__all__ = [
    "ENGINE_VERSION",
    "Action",
    "Decision",
    "Effect",
    "Event",
    "Facet",
    "Finding",
    "Inspection",
    "Inspector",
    "KnownValues",
    "LabelledSession",
    "ManifestSeen",
    "ManifestTool",
    "Mode",
    "OnAsk",
    "Outcome",
    "Policy",
    "Prompt",
    "Rule",
    "Sensitive",
    "Session",
    "SessionEnd",
    "SessionStart",
    "Severity",
    "Source",
    "SubagentReport",
    "SubagentSpawn",
    "ToolCall",
    "ToolResult",
    "Trust",
    "Unknown",
    "Verdict",
    "When",
    "audit_record",
    "event_plain",
    "load_policy",
    "parse_event",
    "play",
    "read_sessions",
    "shipped_policy",
]
