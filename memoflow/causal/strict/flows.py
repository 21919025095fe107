"""Rules about what flows along: secrets to where they leave, and what ancestors grant."""

from __future__ import annotations

from memoflow.causal.codes import Code
from memoflow.causal.compat.config import CustomRule
from memoflow.causal.findings import Finding
from memoflow.causal.strict.approvals import Approval
from memoflow.causal.strict.case import Case
from memoflow.causal.strict.index import NOWHERE

__all__ = ["Exposures", "check_custom", "grant"]


class Exposures:
    """Which actors have seen a secret: by reading one, or by acting on what descends from one.

    Only the last secret of an actor is kept, so that many secrets and many sendings do not multiply.
    """

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def check(self, case: Case) -> None:
        """Whether something leaves that may hold a secret."""
        index, key = case.index, case.record.actor.key
        case.node.tainted = index.first(index.tainted, case.causes)
        itself = case.rules.secrets.match(case.record.object)
        if itself:
            case.node.tainted = len(index)
        if not case.acts or case.approved or not _leaves(case):
            return
        if case.node.tainted != NOWHERE:
            name = case.record.id if itself else index.ids[case.node.tainted]
            case.found(
                Code.SECRET_EGRESS,
                f"It goes out, descends from the secret {name!r}, and is not approved.",
                name,
            )
        elif (name := self._seen.get(key, "")) != "":
            case.found(
                Code.SECRET_EXPOSED,
                f"It goes out, and is not approved; its actor {key!r} has seen the secret {name!r}.",
                name,
            )

    def note(self, case: Case) -> None:
        """Keep that an actor has seen a secret; the record is in the index already."""
        if case.node.tainted != NOWHERE:
            self._seen[case.record.actor.key] = case.index.ids[case.node.tainted]


def _leaves(case: Case) -> bool:
    rules = case.rules
    return case.action_class in rules.outgoing or case.record.action.lower() in rules.net_out_actions


def check_custom(case: Case, approval: Approval | None) -> None:
    """The configuration's rules about ancestors; one about approvals is satisfied by a valid one alone."""
    parent = case.node.parent
    granted = 0 if parent == NOWHERE else case.index.granted[parent]
    for bit, rule in enumerate(case.rules.custom_rules):
        if not case.acts or rule.trigger_class != case.action_class:
            continue
        if case.rules.approval_prefix(rule.require_prefix) is not None:
            satisfied = approval is not None and _approves(rule, approval)
        else:
            satisfied = bool(granted >> bit & 1)
        if not satisfied:
            message = f"Custom rule {rule.id}: {rule.description}"
            case.findings.append(Finding(rule.code, rule.severity, case.record.id, message))


def _approves(rule: CustomRule, approval: Approval) -> bool:
    return approval.name.startswith(rule.require_prefix or "") and rule.require_class in (
        None,
        approval.action_class,
    )


def grant(case: Case) -> None:
    """What a record satisfies for its descendants: all that its parent does, and its own unless it failed."""
    parent = case.node.parent
    granted = 0 if parent == NOWHERE else case.index.granted[parent]
    if not case.fails:
        for bit, rule in enumerate(case.rules.custom_rules):
            granted |= _grants(case, rule) << bit
    case.node.granted = granted


def _grants(case: Case, rule: CustomRule) -> bool:
    permitted = case.record.permitted_by
    return rule.require_class in (None, case.action_class) and (
        rule.require_prefix is None
        or (isinstance(permitted, str) and permitted.startswith(rule.require_prefix))
    )
