"""Approvals in the causal log that a ledger is: asked for, given, used, and denied."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from memoflow import ApprovalRequired, tool
from memoflow.causal.ledger import records_of
from memoflow.ledger.causes import cause_rows
from memoflow.testing import call, text
from tests.causal._runs import clean, exported, pay, shape
from tests.turn import _worlds
from tests.turn._asks import loop
from tests.turn._worlds import MakeWorld

ledger, make_world, mode, world = _worlds.ledger, _worlds.make_world, _worlds.mode, _worlds.world


def test_an_approved_call_descends_from_its_approval(world: MakeWorld) -> None:
    """Asked for, given by a person, used by the very call: the audit follows it, and finds nothing."""
    w = world(call("pay", {"n": 82}), text("done"))
    error = w.ask(loop(pay)).raised(ApprovalRequired)
    clean(w)
    w.rt.approvals.approve(error.requests[0].id, approver="ann", reason="fine")
    clean(w)
    w.ask(loop(pay), complete=True)
    records = exported(w)
    assert shape(records) == [
        ("start", "root_event", ()),
        ("ask_model", "budget", ("0",)),
        ("request_approval", "tool", ("1",)),
        ("approve", "human_approval", ("2",)),
        ("write", "human_approval", ("3",)),
        ("ask_model", "budget", ("4",)),
    ]
    assert [record.actor.key for record in records[2:5]] == ["agent:answer", "human:ann", "agent:answer"]
    clean(w)


def test_who_asks_is_one_actor(world: MakeWorld) -> None:
    """A person on whose behalf a run asks is a person in the request and in what is decided about it."""
    w = world(call("pay", {"n": 82}), text("done"))
    scope = w.rt.run(workflow_id="w", run_id="r", requester="bob")
    error = w.ask(loop(pay), within=scope).raised(ApprovalRequired)
    w.rt.approvals.approve(error.requests[0].id, approver="ann", reason="fine")
    request, approval = exported(w)[2:]
    terms: Any = approval.object
    assert (request.actor.key, terms["approval"]["requested_by"]) == ("human:bob", "human:bob")


def test_a_further_execution_of_an_approved_effect_is_the_same_effect(world: MakeWorld) -> None:
    """What its class lets run again under its idempotency key has used its approval once."""
    ran: list[int] = []

    @tool(version="v1", effect="idempotent", approval="human")
    def unsure(n: int) -> int:
        """Break once."""
        ran.append(n)
        if len(ran) == 1:
            raise ValueError
        return n

    w = world(call("unsure", {"n": 82}), text("done"))
    error = w.ask(loop(unsure)).raised(ApprovalRequired)
    w.rt.approvals.approve(error.requests[0].id, approver="ann", reason="fine")
    w.ask(loop(unsure)).raised(ValueError)
    w.ask(loop(unsure), complete=True)
    assert (len(ran), [part[1] for part in shape(exported(w))][4:6]) == (2, ["human_approval"] * 2)
    clean(w)


def test_an_execution_before_the_approval_was_not_permitted_by_it(world: MakeWorld) -> None:
    """A tool that asks for approvals since it broke: what had run was permitted as it was then."""
    ran: list[int] = []

    def unsure(n: int) -> int:
        """Break once."""
        ran.append(n)
        if len(ran) == 1:
            raise ValueError
        return n

    w = world(call("unsure", {"n": 82}), text("done"))
    w.ask(loop(tool(version="v1", effect="read_only")(unsure))).raised(ValueError)
    asking = loop(tool(version="v1", effect="read_only", approval="human")(unsure))
    error = w.ask(asking).raised(ApprovalRequired)
    w.rt.approvals.approve(error.requests[0].id, approver="ann", reason="fine")
    w.ask(asking, complete=True)
    reads = [record for record in exported(w) if record.action == "read"]
    assert [str(record.permitted_by).split(":")[0] for record in reads] == ["tool", "human_approval"]
    assert len(ran) == 2
    clean(w)


def test_what_runs_again_uses_its_approval_once(world: MakeWorld) -> None:
    """Under one idempotency key it is the effect that was allowed, however often it has to be run."""
    broken = [ValueError()]

    @tool(version="v3", effect="idempotent", approval="human")
    def pay(n: int) -> int:
        """Pay."""
        if broken:
            raise broken.pop()
        return n

    w = world(call("pay", {"n": 82}), text("done"))
    error = w.ask(loop(pay)).raised(ApprovalRequired)
    w.rt.approvals.approve(error.requests[0].id, approver="ann", reason="fine")
    w.ask(loop(pay)).raised(ValueError)
    w.ask(loop(pay), complete=True)
    assert [permission for _, permission, _ in shape(exported(w))[4:6]] == ["human_approval"] * 2
    clean(w)
    assert_own_approvals(w.read(lambda c: list(cause_rows(c, w.rt.namespace, "w", "r"))))


def assert_own_approvals(rows: list[Any]) -> None:
    """A third execution that was allowed anew descends from that, those before it from the first approval."""
    *before, second, last = rows
    request, approval = before[2], before[3]
    first = approval.id
    third = replace(second, id="third", execution=3, request_id="third")
    anew = [replace(request, id="third"), replace(approval, id="third")]
    records = records_of([*before[:4], *anew, *before[4:], second, third, last])
    used = [record.permitted_by for record in records if record.action == "write"]
    assert used == [f"human_approval:{id}" for id in (first, first, "third")]


def test_a_denied_call_is_no_action(world: MakeWorld) -> None:
    """There is the request and the denial, and the model goes on because of that."""
    w = world(call("pay", {"n": 82}), text("done"))
    error = w.ask(loop(pay)).raised(ApprovalRequired)
    w.rt.approvals.deny(error.requests[0].id, approver="ann", reason="no")
    w.ask(loop(pay), complete=True)
    assert shape(exported(w))[2:] == [
        ("request_approval", "tool", ("1",)),
        ("deny", "human_approval", ("2",)),
        ("ask_model", "budget", ("3",)),
    ]
    clean(w)
