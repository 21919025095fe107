"""Records for tests, short to write."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from memoflow.canonical import Digester
from memoflow.causal.ctag import ActionClass, Domain, encode
from memoflow.causal.record import Actor, CausalRecord
from memoflow.causal.strict import Audit, StrictRules

__all__ = [
    "AGENT",
    "ALICE",
    "ARGUMENTS",
    "FAR",
    "approval",
    "audited",
    "codes",
    "decision",
    "nested",
    "rec",
    "root",
    "send",
    "tagged",
    "terms",
]

ALICE = Actor(kind="human", name="alice")
AGENT = Actor(kind="agent", name="support")
ARGUMENTS = {"cents": 82}
FAR = 10**9


def rec(id: str, parent: str | None = "root", at: int = 5, **more: Any) -> CausalRecord:
    """A harmless record of the agent, permitted by the root."""
    given = {"actor": AGENT, "action": "look", "object": None, "permitted_by": "root", **more}
    return CausalRecord(id=id, timestamp=at, parent_cause=parent, **given)


def root(**more: Any) -> CausalRecord:
    """A root that is trusted."""
    return rec("root", None, **{"at": 1, "actor": ALICE, "permitted_by": "root_event:ticket", **more})


def tagged(record: CausalRecord, action_class: ActionClass, domain: Domain = Domain.AGENT) -> CausalRecord:
    """The record with a tag that goes with it."""
    return replace(record, ctag=encode(domain, action_class, parent=record.parent_cause))


def terms(**more: Any) -> dict[str, Any]:
    """What an approval of the refund must say."""
    return {
        "status": "approved",
        "tool": "refund",
        "arguments_digest": Digester().json(ARGUMENTS),
        "requested_by": AGENT.key,
        "expires_at": FAR,
        **more,
    }


def approval(id: str = "yes", parent: str | None = "root", **more: Any) -> CausalRecord:
    """A human approves the refund, under the name ``human_approval:t``."""
    kept = {"permitted_by": "human_approval:t", "actor": ALICE, "action": "approve", **more}
    return decision(id, parent, **kept)


def decision(id: str, parent: str | None, terms_: dict[str, Any] | None = None, **more: Any) -> CausalRecord:
    """A decision with other terms."""
    return rec(id, parent, object={"approval": terms() if terms_ is None else terms_}, **more)


def send(id: str = "act", parent: str | None = "yes", arguments: Any = None, **more: Any) -> CausalRecord:
    """The agent refunds what was approved; of high risk, so it needs that."""
    payload = {
        "tool": "refund",
        "risk_level": "high",
        "request": ARGUMENTS if arguments is None else arguments,
        **more.pop("payload", {}),
    }
    given = {"permitted_by": "human_approval:t", "action": "refund", **more}
    return tagged(rec(id, parent, at=given.pop("at", 6), object=payload, **given), ActionClass.FIN_TX)


def audited(*records: CausalRecord, rules: StrictRules | None = None) -> list[tuple[str, str]]:
    """What the strict audit finds in a log: pairs of record and code, the prefix left out."""
    audit = Audit(rules)
    for record in records:
        audit.append(record)
    return [
        (finding.record_id, finding.code.removeprefix("MEMOFLOW-CAUSAL-"))
        for finding in audit.result().findings
    ]


def codes(*records: CausalRecord, rules: StrictRules | None = None) -> list[str]:
    """The codes that the strict audit finds for the last record, the prefix left out."""
    last = records[-1].id
    return [code for id, code in audited(*records, rules=rules) if id == last]


def nested(depth: int) -> str:
    """JSON text of arrays in arrays."""
    return "[" * depth + "]" * depth
