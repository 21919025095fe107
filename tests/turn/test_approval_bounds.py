"""What an approval is good for, and what becomes of a call while it waits."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from memoflow import (
    ApprovalRequired,
    Budget,
    CallCancelled,
    CancelSignal,
    InvalidRequest,
    InvalidTool,
    OutcomeUnknown,
    ResultNotRetained,
    Retry,
    ToolVersionMismatch,
    tool,
)
from memoflow.context import current
from memoflow.ledger import schema as s
from memoflow.ledger.outputs import purge_expired
from memoflow.providers.openai_responses import OpenAIResponsesCodec
from memoflow.testing import call, calls
from memoflow.tools import Toolset
from memoflow.turn import Call, turn
from tests.turn._activities import attempts, make, start
from tests.turn._approving import DONE, PAY, approve, required
from tests.turn._asks import loop
from tests.turn._tools import Bench
from tests.turn._worlds import MakeWorld

# What an approval is bound to


def test_an_approval_is_not_used_in_another_run(world: MakeWorld) -> None:
    """The same call of another run waits by itself."""
    bench = Bench()
    w = world(PAY, PAY, DONE)
    ask = loop(bench.asking())
    first = required(w, ask, run="r1")
    approve(w, first)
    second = required(w, ask, run="r2")
    assert first.requests[0].id != second.requests[0].id
    assert first.requests[0].arguments_digest == second.requests[0].arguments_digest
    assert bench.ran == []


def test_another_version_does_not_run_under_an_old_approval(world: MakeWorld) -> None:
    """A call that was allowed under v1 is refused under v2, before any budget is taken."""
    bench = Bench()
    w = world(PAY, DONE)
    approve(w, required(w, loop(bench.asking())))
    error = w.ask(loop(bench.asking(version="v2"))).raised(ToolVersionMismatch)
    assert (error.recorded, error.registered, bench.ran) == ("v1", "v2", [])


def test_allowed_82_runs_82_and_nothing_else(world: MakeWorld) -> None:
    """The model asks for 820 in the next round: that waits by itself."""
    bench = Bench()
    w = world(PAY, calls(call("pay", {"n": 820})), DONE)
    ask = loop(bench.asking())
    approve(w, required(w, ask))
    again = required(w, ask)
    assert bench.ran == [("pay", 82)]
    assert w.rt.approvals.show(again.requests[0].id).arguments == '{"n":820}'


# Raising and dropping the requirement


def test_a_requirement_that_came_later_holds_for_what_has_not_begun(world: MakeWorld) -> None:
    """It is no part of what a replay key is bound to: a call that is to be run again waits."""
    bench = Bench()
    w = world(PAY, DONE)
    w.ask(loop(bench.failing("pay", ValueError("x"), effect="read_only"))).raised(ValueError)
    error = required(w, loop(bench.asking(effect="read_only")))
    assert w.states() == [("FAILED", "TOOL_ERROR", 1), ("AWAITING_APPROVAL", None, 2)]
    approve(w, error)
    assert w.text(w.ask(loop(bench.asking(effect="read_only")))) == "Done."
    assert [state for state, _, _ in w.states()] == ["FAILED", "DONE"]


def test_a_requirement_that_came_later_does_not_hide_an_unknown(world: MakeWorld) -> None:
    """What may have happened is decided by an operator before anybody is asked to allow it."""
    bench = Bench()
    w = world(PAY, DONE)
    w.ask(loop(bench.failing("pay", ValueError("x"), effect="idempotent"))).raised(ValueError)
    error = w.ask(loop(bench.asking(effect="idempotent"))).raised(OutcomeUnknown)
    w.rt.reconcile.did_not_happen(error.id, actor="ann", reason="asked", evidence="nothing there")
    approve(w, required(w, loop(bench.asking(effect="idempotent"))))
    assert w.text(w.ask(loop(bench.asking(effect="idempotent")))) == "Done."


def test_a_requirement_that_was_dropped_still_holds_for_what_waits(world: MakeWorld) -> None:
    """What was recorded as waiting begins only once it is allowed."""
    bench = Bench()
    w = world(PAY, DONE)
    required(w, loop(bench.asking()))
    error = required(w, loop(bench.make("pay")))
    approve(w, error)
    assert w.text(w.ask(loop(bench.make("pay")))) == "Done."
    assert bench.ran == [("pay", 82)]


def test_an_execution_that_broke_runs_again_under_its_approval(world: MakeWorld) -> None:
    """The same effect under the same key; the person is not asked a second time."""
    bench, left = Bench(), [ValueError("x")]

    def once(n: int) -> int:
        if left:
            raise left.pop()
        return n

    w = world(PAY, DONE)
    ask = loop(bench.make("pay", once, effect="idempotent", approval="human"))
    approve(w, required(w, ask))
    w.ask(ask).raised(ValueError)
    assert w.text(w.ask(ask)) == "Done."
    assert [state for state, _, _ in w.states()] == ["SUPERSEDED", "DONE"]
    assert len(set(bench.keys)) == 1


# Parked


def test_the_attempt_is_parked_and_the_activity_free(world: MakeWorld) -> None:
    """Waiting is no failure: Retry does not try again by itself, and anybody may come back to it."""
    bench = Bench()
    w = world(PAY, DONE)
    required(w, loop(bench.asking()), retry=Retry(attempts=3))
    assert attempts(w) == [(1, "PARKED", "ApprovalRequired")]
    free = select(s.activities.c.state).where(s.activities.c.namespace == w.rt.namespace)
    assert w.read(lambda c: c.scalars(free).all()) == ["FREE"]


def test_a_cancelled_return_leaves_what_waits_as_it_is(world: MakeWorld) -> None:
    """Cancelled before anything, a return begins nothing and uses no approval."""
    bench = Bench()
    w = world(PAY, DONE)
    approve(w, required(w, loop(bench.asking())))
    signal = CancelSignal()
    signal.cancel()
    w.ask(loop(bench.asking(), signal=signal)).raised(CallCancelled)
    assert (w.states(), bench.ran) == ([("AWAITING_APPROVAL", None, 1)], [])
    assert w.text(w.ask(loop(bench.asking()))) == "Done."
    assert bench.ran == [("pay", 82)]


def test_a_purge_while_it_waits_runs_nothing(world: MakeWorld) -> None:
    """The reply that holds the call is gone: that is told, and the approval stays unused."""
    bench = Bench()
    w = world(PAY, DONE)
    ask = loop(bench.asking())
    error = required(w, ask)
    approve(w, error)
    far = 4_000_000_000_000_000
    with w.rt.ledger.database.write() as connection:
        assert purge_expired(connection, w.rt.namespace, far) > 0
    w.ask(ask).raised(ResultNotRetained)
    case = w.rt.approvals.show(error.requests[0].id)
    assert (case.request.state, case.arguments, bench.ran) == ("approved", None, [])
    assert "purged" in str(case.withheld)


def test_a_completed_activity_takes_its_requests_back(world: MakeWorld) -> None:
    """An activity that goes on without the call leaves nothing for anybody to decide."""
    bench = Bench()
    w = world(PAY)

    def body(llm: Any) -> Any:
        ask = w._spoken(loop(bench.asking()))
        given = {"continuation_budgets": ask.continuation, **ask.options}
        return llm.run_with_tools(ask.request, ask.tools, **given)

    async def abody(llm: Any) -> str:
        with pytest.raises(ApprovalRequired):
            await body(llm)
        return "without it"

    def plain(llm: Any) -> str:
        with pytest.raises(ApprovalRequired):
            body(llm)
        return "without it"

    assert w.within(abody if w.is_async else plain) == "without it"
    assert w.rt.approvals.list().items == ()
    assert [item.state for item in w.rt.approvals.list(None).items] == ["withdrawn"]


# Who asks


def test_the_requester_is_who_the_run_says(world: MakeWorld) -> None:
    """The run's, else the activity's, else the agent itself."""
    w = world(PAY, PAY, PAY)
    asks = loop(Bench().asking())
    scope = w.rt.run(workflow_id="w", run_id="r3", requester="user:7")
    required(w, asks, run="r1", activity="answer")
    required(w, asks, run="r2", requester="agent:desk")
    required(w, asks, within=scope, requester="agent:desk")
    found = [item.requester for item in reversed(w.rt.approvals.list().items)]
    assert found == ["agent:answer", "agent:desk", "user:7"]


def test_work_in_another_run_is_on_behalf_of_the_same_person(world: MakeWorld) -> None:
    """Who asked may not approve what was started elsewhere on their behalf."""
    w = world(PAY)
    within = w.rt.run(workflow_id="outer", run_id="r", requester="user:7")
    seen: list[Any] = []

    @w.rt.activity(version="v1")
    def outer() -> None:
        seen.append(w.ask(loop(Bench().asking()), run="elsewhere"))

    with within:
        outer.run()
    seen[0].raised(ApprovalRequired)
    (item,) = w.rt.approvals.list().items
    assert (item.run_id, item.requester) == ("elsewhere", "user:7")


# Refused before anything


def test_a_call_without_a_replay_key_cannot_wait(world: MakeWorld) -> None:
    """It could never come back, so it is refused before any budget is taken."""
    w = world(PAY)

    def body() -> None:
        attempt = current("test").record
        codec = OpenAIResponsesCodec()
        given = {"model": "m", "input": "x"}
        toolset = Toolset([Bench().asking()])
        made = Call(attempt, codec, given, ("acme",), (Budget(total_tokens=9),), toolset=toolset)
        next(turn(made))

    with pytest.raises(InvalidRequest, match="replay_key"):
        start(w, make(w, body))
    assert (w.sent, w.count(s.invocations)) == (0, 0)


@pytest.mark.parametrize("approval", ["robot", True, 1, ["human"]])
def test_nobody_else_than_a_person_can_be_named(approval: Any) -> None:
    """An approval that is no known word is refused where the tool is made."""
    with pytest.raises(InvalidTool, match='"human"'):
        tool(version="v1", effect="read_only", approval=approval)(_nothing)


def _nothing() -> None: ...
