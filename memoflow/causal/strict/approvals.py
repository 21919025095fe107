"""Rules about approvals: given, by whom they may be, for exactly this action, still, and once.

Once is for one effect: what is executed again under its idempotency key, after a crash or because nobody knew
what had become of it, is that effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from memoflow.canonical import JSON
from memoflow.causal.codes import Code
from memoflow.causal.ctag import ActionClass
from memoflow.causal.strict.case import Case
from memoflow.causal.strict.index import NOWHERE
from memoflow.causal.strict.payload import request_digest
from memoflow.causal.strict.rules import fits_any
from memoflow.identity import same_person

__all__ = ["Approval", "Approvals"]

_BINDING: Final = ("tool", "arguments_digest")
_EFFECT: Final = "idempotency_key"
_COMPARED: Final = ("tool", "tool_namespace", "tool_version", "run")
_STATUSES: Final = frozenset({"denied", "expired", "pending", "rejected", "revoked"})


@dataclass(frozen=True, slots=True)
class Approval:
    """A decision as a record states it. ``terms`` is its ``object.approval``, or None if it has none.

    It is known by ``name``: the whole of ``permitted_by``, for example ``human_approval:ticket-42``.
    """

    name: str
    position: int
    record_id: str
    approver: str
    trusted: bool
    action_class: ActionClass
    terms: dict[str, JSON] | None

    def term(self, key: str) -> JSON:
        """One of its terms."""
        return None if self.terms is None else self.terms.get(key)


class Approvals:
    """The approvals of a log by name, and what used them up."""

    def __init__(self) -> None:
        self._given: dict[str, Approval] = {}
        self._used: dict[str, tuple[str, JSON]] = {}

    def check(self, case: Case) -> None:
        """Everything that is wrong with a decision, or with the approval of an action."""
        prefix = case.rules.approval_prefix(case.record.permitted_by)
        if prefix is not None and _decides(case):
            self._check_decision(case, _approval(case, prefix))
        elif case.acts:
            self._check_action(case, prefix)

    def _check_decision(self, case: Case, approval: Approval) -> None:
        if not approval.trusted:
            case.found(
                Code.APPROVAL_UNTRUSTED, f"The actor {approval.approver!r} may not give this approval."
            )
        if _is_by(approval, approval.term("requested_by")):
            case.found(
                Code.APPROVAL_BY_REQUESTER, f"{approval.approver!r} decides on what it asked for itself."
            )
        first = self._given.get(approval.name)
        if first is not None and first.trusted and approval.term("status") != "revoked":
            case.found(
                Code.APPROVAL_DUPLICATE,
                f"{approval.name!r} was decided by the record {first.record_id!r}.",
                first.record_id,
            )

    def _check_action(self, case: Case, prefix: str | None) -> None:
        needed = _need(case)
        if prefix is None:
            if needed is not None:
                case.found(Code.APPROVAL_MISSING, f"It needs an approval ({needed}), and names none.")
            return
        before = len(case.findings)
        name = str(case.record.permitted_by)
        approval = self._given.get(name)
        if approval is None:
            case.found(Code.APPROVAL_UNKNOWN, f"The approval {name!r} is not in the log before it.")
        else:
            for code, problem in self._problems(case, approval):
                case.found(code, f"The approval {name!r} {problem}.", approval.record_id)
        failed = any(finding.severity == "FAIL" for finding in case.findings[before:])
        case.approved = approval is not None and not failed

    def _problems(self, case: Case, approval: Approval) -> Iterator[tuple[Code, str]]:
        yield from _unfit(case, approval)
        yield from _unbound(case, approval)
        if not case.index.in_line(approval.position, case.node.parent):
            yield Code.APPROVAL_ELSEWHERE, "is not in its line of parents"
        if (used := self._used.get(approval.name)) is not None and not _same_effect(used[1], case):
            yield Code.APPROVAL_REUSED, f"was used by the record {used[0]!r} already"

    def given(self, case: Case) -> Approval | None:
        """The valid approval that permits an action, once `check` has looked at it."""
        return self._given.get(str(case.record.permitted_by)) if case.approved else None

    def note(self, case: Case, position: int) -> None:
        """Keep a decision, or that an action used one up."""
        prefix = case.rules.approval_prefix(case.record.permitted_by)
        if prefix is None:
            return
        name = str(case.record.permitted_by)
        if not _decides(case):
            if case.acts:
                self._used.setdefault(name, (case.record.id, case.payload.get(_EFFECT)))
            return
        approval, first = _approval(case, prefix, position), self._given.get(name)
        revoked = approval.term("status") == "revoked"
        # Those who may not decide can neither take a decision back nor occupy its name.
        if first is None or (approval.trusted and (revoked or not first.trusted)):
            self._given[name] = approval


def _same_effect(key: JSON, case: Case) -> bool:
    """Whether an action is another execution of what used the approval, which bears its idempotency key."""
    return isinstance(key, str) and bool(key) and case.payload.get(_EFFECT) == key


def _decides(case: Case) -> bool:
    """Whether a record with the name of an approval is the decision, not an action that it permits."""
    # An action must not pass for a decision by carrying one: it would need no approval then.
    if "tool" in case.payload or case.action_class not in (ActionClass.OVERRIDE, ActionClass.NONE):
        return False
    return case.action_class == ActionClass.OVERRIDE or isinstance(case.payload.get("approval"), dict)


def _approval(case: Case, prefix: str, position: int = NOWHERE) -> Approval:
    terms = case.payload.get("approval")
    key = case.record.actor.key
    return Approval(
        name=str(case.record.permitted_by),
        position=position,
        record_id=case.record.id,
        approver=key,
        trusted=fits_any(key, case.rules.approvers[prefix]),
        action_class=case.action_class,
        terms=terms if isinstance(terms, dict) else None,
    )


def _need(case: Case) -> str | None:
    """Why an action needs an approval."""
    rules, asked = case.rules, case.payload.get("human_approval")
    if case.action_class in rules.approval_classes:
        return f"class {case.action_class.name}"
    if (risk := case.payload.get("risk_level")) in rules.approval_risks:
        return f"risk {risk}"
    if isinstance(asked, dict) and asked.get("required") is True:
        return "its host asks for one"
    return None


def _unfit(case: Case, approval: Approval) -> Iterator[tuple[Code, str]]:
    """What is wrong with the decision, and with who decided."""
    status = approval.term("status")
    if approval.terms is not None and status != "approved":
        shown = status if status in _STATUSES else "not 'approved'"
        yield Code.APPROVAL_DENIED, f"was not given: its status is {shown}"
    if not approval.trusted:
        yield Code.APPROVAL_UNTRUSTED, f"is by {approval.approver!r}, who may not give it"
    if _is_by(approval, case.record.actor.key) or _is_by(approval, approval.term("requested_by")):
        yield Code.APPROVAL_BY_REQUESTER, f"is by {approval.approver!r}, who asked for it or acts on it"


def _unbound(case: Case, approval: Approval) -> Iterator[tuple[Code, str]]:
    """What the approval is not for."""
    expires = approval.term("expires_at")
    missing = [key for key in _BINDING if not isinstance(approval.term(key), str)]
    missing += [] if type(expires) is int else ["expires_at"]
    if missing:
        yield Code.APPROVAL_UNBOUND, f"does not say its {', '.join(missing)}"
    other = [key for key in _COMPARED if _differs(approval.term(key), case.payload.get(key))]
    if _differs(approval.term("arguments_digest"), request_digest(case.payload, case.rules.digester)):
        other.append("arguments_digest")
    if other:
        yield Code.APPROVAL_MISMATCH, f"is for another {', '.join(other)}"
    if type(expires) is int and case.record.timestamp >= expires:
        yield Code.APPROVAL_EXPIRED, f"had expired {case.record.timestamp - expires} ns before"


def _is_by(approval: Approval, name: JSON) -> bool:
    return isinstance(name, str) and same_person(approval.approver, name)


def _differs(term: JSON, actual: JSON) -> bool:
    return term is not None and term != actual
