"""Records of decisions: what was decided and why, without any of the text that it was about."""

from __future__ import annotations

import json
from typing import Any

from memoflow.canonical import Digester
from memoflow.errors import InvalidRequest
from memoflow.inspection.engine import ENGINE_VERSION, Decision
from memoflow.inspection.events import ToolCall, ToolResult
from memoflow.inspection.findings import Finding

__all__ = ["audit_record"]


def audit_record(decision: Decision, digester: Digester, *, hosts: bool = True) -> dict[str, Any]:
    """A decision as plain JSON.

    Args:
        decision: what was decided.
        digester: makes the digest of the arguments.
        hosts: whether hosts are named; they are where data went, and may be what somebody asked about.
    """
    event, signals, mark = decision.event, decision.signals, decision.mark
    kind = event.kind
    return {
        "at_ms": event.at_ms,
        "session": event.session,
        "agent": event.agent,
        "seq": event.seq,
        "event": kind.name,
        "tool": kind.tool if isinstance(kind, ToolCall | ToolResult) else None,
        "decision": decision.verdict if decision.inspected else "not_inspected",
        "verdict": decision.verdict,
        "effect": decision.effect,
        "mode": decision.mode,
        "rule": decision.rule,
        "rules": list(decision.matched),
        "escalated": decision.escalated,
        "action": signals.action,
        "score": signals.score,
        "findings": [_finding(one) for one in decision.findings],
        "taint": None if mark is None else {"source": mark.source.label, "seq": mark.seq},
        "hosts": [host.name for host in decision.hosts] if hosts else None,
        "host_count": len(decision.hosts),
        "cut": decision.cut,
        "taint_full": decision.taint_full,
        "arguments": _arguments(kind, digester) if isinstance(kind, ToolCall) else None,
        "policy": decision.policy,
        "engine": ENGINE_VERSION,
        "latency_us": decision.latency_us,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "detector": finding.detector,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "facet": finding.facet,
        "length": finding.length,
        "view": finding.view,
        "label": finding.label or None,
        "owasp": finding.owasp,
        "atlas": finding.atlas,
    }


def _arguments(call: ToolCall, digester: Digester) -> str:
    try:
        return digester.json(call.args)
    except InvalidRequest:
        # What has no canonical form is told apart by how it was written.
        return digester.bytes((call.raw or json.dumps(call.args, default=repr)).encode("utf-8", "replace"))
