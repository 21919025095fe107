"""The causal gate: the audit of a call that a model proposes, before anything of it has happened.

It judges a call by its ancestry, which is read from the ledger: the rounds of its turn, its activity, and
what that descends from, whoever did it. What only a whole run shows, such as a cycle, is left to the audit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any, Final

from memoflow.canonical import Digester, freeze_json
from memoflow.causal.ctag import ActionClass, Domain, encode
from memoflow.causal.findings import Finding
from memoflow.causal.ledger import ledger_rules, records_of
from memoflow.causal.record import Actor, CausalRecord
from memoflow.causal.strict.audit import Audit
from memoflow.causal.strict.rules import StrictRules, fits_any
from memoflow.identity import tool_label
from memoflow.ledger.causes import cause_rows_of, cause_rows_of_turn
from memoflow.ledger.database import Database
from memoflow.turn import NeedsApproval, Permit, ProposedCall, Refuse, plain_codes

__all__ = ["CausalJudge", "approver_check"]

_PROPOSED: Final = "proposed"
_BY_PEOPLE: Final = "human_approval:"
_APPROVAL: Final = f"{_BY_PEOPLE}proposed"
_DAY: Final = 86_400 * 10**9


class CausalJudge:
    """Judges calls by the strict rules.

    A call of which something is found that fails is refused, with the codes; unless a person's approval
    would settle all of it: then it waits for one.

    Args:
        database: the ledger, which is only read.
        rules: what calls are judged by.
        digester: how the runtime makes digests.
    """

    def __init__(self, database: Database, rules: StrictRules, digester: Digester) -> None:
        self.id: Final = "memoflow.causal"
        self._database = database
        self._rules = replace(ledger_rules(rules), digester=digester)
        approvers = self._rules.approvers
        anybody = {**approvers, _BY_PEOPLE: ("*",)} if approvers.get(_BY_PEOPLE) else approvers
        self._may_approve = approver_check(rules)
        self._by_anybody = replace(self._rules, approvers=anybody)
        self.policy_digest = Digester().json(freeze_json(_plain(rules)))

    def judge(self, call: ProposedCall) -> Permit | NeedsApproval | Refuse:
        """What the rules say; nothing is written."""
        audit, latest = Audit(self._rules), 0
        with self._database.reading() as connection:
            namespace = call.identity.namespace
            rows = cause_rows_of_turn(connection, namespace, call.activity, call.invocation_id)
            for record in records_of(rows, partial(cause_rows_of, connection, namespace)):
                audit.append(record)
                latest = max(latest, record.timestamp)
        proposed = _proposed(call, latest)
        codes = _failing(audit.propose(proposed))
        if not codes:
            return Permit()
        # Somebody who may give it, whoever that is: nobody has been asked yet.
        audit.rules = self._by_anybody
        audit.append(_approval(call, proposed))
        allowed = replace(proposed, permitted_by=_APPROVAL, parent_cause=_APPROVAL)
        return Refuse(codes) if _failing(audit.propose(allowed)) else NeedsApproval(codes)

    def may_approve(self, approver: str) -> bool:
        """Whether the rules let somebody decide."""
        return self._may_approve(approver)


def approver_check(rules: StrictRules) -> Callable[[str], bool]:
    """Says by name whether rules let somebody decide about the approvals of a ledger."""
    patterns = rules.approvers.get(_BY_PEOPLE, ())
    return lambda approver: fits_any(Actor(kind="human", name=approver).key, patterns)


def _failing(findings: tuple[Finding, ...]) -> tuple[str, ...]:
    # Rules of a configuration have codes of its author's, which need not be such as a verdict can hold.
    return plain_codes(finding.code for finding in findings if finding.severity == "FAIL")


def _proposed(call: ProposedCall, latest: int) -> CausalRecord:
    tool = call.tool
    payload: dict[str, Any] = {
        "tool": tool.name,
        "tool_namespace": tool.namespace or "",
        "tool_version": tool.version,
        "run": f"{call.identity.workflow_id}/{call.identity.run_id}",
        "effect_class": tool.effect,
        # Only here, where nothing is kept: rules may be about arguments.
        "request": call.arguments,
        "evidence_bundle": {"request_digest": call.arguments_digest},
    }
    return CausalRecord(
        id=_PROPOSED,
        timestamp=latest,
        actor=Actor(kind="agent", name=call.identity.activity_type),
        action="read" if tool.effect == "read_only" else "write",
        object=payload,
        permitted_by=f"tool:{tool_label(tool.namespace, tool.name)}@{tool.version}",
        parent_cause=call.invocation_id,
    )


def _approval(call: ProposedCall, proposed: CausalRecord) -> CausalRecord:
    """The approval that a person could give."""
    payload: Any = proposed.object
    bound = ("tool", "tool_namespace", "tool_version", "run")
    terms = {name: payload[name] for name in bound}
    terms |= {
        "status": "approved",
        "arguments_digest": call.arguments_digest,
        "expires_at": proposed.timestamp + _DAY,
    }
    parent = call.invocation_id
    return CausalRecord(
        id=_APPROVAL,
        timestamp=proposed.timestamp,
        actor=Actor(kind="human", name="somebody"),
        action="approve",
        object={"approval": terms},
        permitted_by=_APPROVAL,
        parent_cause=parent,
        ctag=encode(Domain.USER, ActionClass.OVERRIDE, parent=parent),
    )


def _plain(value: Any) -> Any:
    """Rules as JSON that is the same wherever they are read."""
    if hasattr(value, "__dataclass_fields__"):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value) if f.compare}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (frozenset, set)):
        return sorted(map(_plain, value))
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
