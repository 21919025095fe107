"""Checked by mypy and pyright, never run: approvals and judges as a type checker sees them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from memoflow import ApprovalRequired, Judge, NeedsApproval, Permit, ProposedCall, Refuse, Runtime
from memoflow.approvals import ApprovalCase, ApprovalDecision, ApprovalInfo, Approvals


class Plain:
    id = "plain"
    policy_digest = "sha256:0"

    def judge(self, call: ProposedCall) -> Permit | NeedsApproval | Refuse:
        assert_type(call.arguments, Any)
        assert_type(call.arguments_json, bytes)
        return Refuse(("R1",)) if call.tool.name == "pay" else Permit()


class OneVerdict:
    @property
    def id(self) -> str:
        return "one"

    @property
    def policy_digest(self) -> str:
        return "sha256:1"

    def judge(self, call: ProposedCall) -> NeedsApproval:
        return NeedsApproval()


class NoJudge:
    id = "none"


judges: list[Judge] = [Plain(), OneVerdict()]
judges.append(NoJudge())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
rt = Runtime.open("sqlite:///memoflow.db", judges=judges, approval_window=timedelta(days=2))
assert_type(rt.approvals, Approvals)
assert_type(rt.approvals.list().items, tuple[ApprovalInfo, ...])
assert_type(rt.approvals.show("id"), ApprovalCase)
assert_type(rt.approvals.show("id").arguments, str | None)
assert_type(rt.approvals.deny("id", approver="ann", reason="no", tell_model=True), ApprovalDecision)
rt.approvals.approve("id", approver="ann")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
rt.approvals.list("maybe")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def decide(waiting: ApprovalRequired) -> None:
    for request in waiting.requests:
        decision = rt.approvals.approve(
            request.id, approver="ann", reason="fine", expires_in=timedelta(hours=1)
        )
        assert_type(decision.expires_at, int | None)
