"""Calls that a person has to allow: they wait, everything else is recorded, and an approval is used once."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
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
from memoflow.testing import call, calls, custom_call, text, usage
from memoflow.tools import Toolset
from memoflow.turn import Call, turn
from tests._apis import APIS
from tests.turn._activities import attempts, make, start
from tests.turn._asks import loop, run, stream
from tests.turn._tools import Bench
from tests.turn._worlds import MakeWorld, World

LOOPS = {"whole": loop, "streamed": stream}
PAY = calls(call("pay", {"n": 82}), usage=usage(10, 5))
DONE = text("Done.", usage=usage(20, 6))


def required(w: World, ask: Any, **options: Any) -> ApprovalRequired:
    """Ask, and be told that somebody has to allow something."""
    error: ApprovalRequired = w.ask(ask, **options).raised(ApprovalRequired)
    return error


def approve(w: World, error: ApprovalRequired, **options: Any) -> None:
    """Allow everything that waits."""
    for request in error.requests:
        w.rt.approvals.approve(request.id, **{"approver": "ann", "reason": "fine", **options})


def deny(w: World, error: ApprovalRequired, **options: Any) -> None:
    """Refuse everything that waits."""
    for request in error.requests:
        w.rt.approvals.deny(request.id, **{"approver": "ann", "reason": "too much", **options})


def told(w: World) -> dict[str, Any]:
    """The last output that the provider was handed, decoded."""
    (*_, output) = w.api.told(w.provider.requests[-1].json)
    found: dict[str, Any] = json.loads(output[1])
    return found


# Waiting and going on


@pytest.mark.parametrize("kind", LOOPS)
def test_a_call_waits_for_a_person_and_then_runs_once(world: MakeWorld, kind: str) -> None:
    """Nothing happens before it is allowed; coming back pays and asks nothing again, and it runs once."""
    bench = Bench()
    w = world(PAY, DONE)
    ask = LOOPS[kind](bench.asking())
    error = required(w, ask)
    (request,) = error.requests
    (effect,) = w.effects()
    assert (request.id, request.tool, request.version) == (effect.id, "pay", "v1")
    assert request.arguments_digest == effect.arguments_digest
    assert (bench.ran, w.states(), w.sent) == ([], [("AWAITING_APPROVAL", None, 1)], 1)
    charged = w.balance()
    assert required(w, ask).requests == error.requests
    assert (w.balance(), w.sent, bench.ran) == (charged, 1, [])
    approve(w, error)
    got = w.ask(ask, complete=True)
    assert (w.text(got), bench.ran, w.sent) == ("Done.", [("pay", 82)], 2)
    assert [result.state for result in got.result.tool_results] == ["DONE"]
    assert (w.states(), w.effects()[0].attempt) == ([("DONE", None, 1)], 3)
    assert w.ask(ask).value == got.value
    assert len(bench.ran) == 1


@pytest.mark.parametrize("api", APIS, ids=str)
@pytest.mark.parametrize("kind", LOOPS)
def test_it_is_the_same_on_every_api(world: MakeWorld, api: Any, kind: str) -> None:
    """An approved call is answered with its result; a denied one with a refusal, marked where the API can."""
    bench = Bench()
    for decide, wanted in ((approve, False), (deny, api.name == "messages")):
        w = world(PAY, DONE, api=api)
        ask = LOOPS[kind](bench.asking())
        decide(w, required(w, ask))
        assert w.text(w.ask(ask)) == "Done."
        (answer,) = api.told(w.provider.requests[-1].json)
        assert answer[2] is wanted
    assert bench.ran == [("pay", 82)]


def test_siblings_that_nobody_has_to_allow_run_at_once(world: MakeWorld) -> None:
    """They are recorded before the call leaves, and are not run again when it comes back."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1}), call("pay", {"n": 82}), call("f", {"n": 2}), usage=usage(1, 1)), DONE)
    ask = loop(bench.make("f"), bench.asking())
    error = required(w, ask)
    assert sorted(bench.ran) == [("f", 1), ("f", 2)]
    assert [state for state, _, _ in w.states()] == ["DONE", "AWAITING_APPROVAL", "DONE"]
    approve(w, error)
    result = w.ask(ask).result
    assert bench.ran[2:] == [("pay", 82)]
    assert [json.loads(one.output)["n"] for one in result.tool_results] == [1, 82, 2]


def test_a_failing_sibling_goes_first(world: MakeWorld) -> None:
    """Its exception leaves; the waiting call is told of when the activity comes back."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1}), call("pay", {"n": 82})), DONE)
    ask = loop(bench.failing("f", ValueError("x"), effect="read_only"), bench.asking())
    w.ask(ask).raised(ValueError)
    assert [state for state, _, _ in w.states()] == ["FAILED", "AWAITING_APPROVAL"]
    w.ask(ask).raised(ValueError)
    assert bench.ran == [("f", 1), ("f", 1)]


def test_each_call_of_a_reply_is_decided_by_itself(world: MakeWorld) -> None:
    """One is allowed, one is refused, one still waits: the first runs, once, before the third is told of."""
    bench = Bench()
    w = world(calls(*[call("pay", {"n": n}) for n in (1, 2, 3)]), DONE)
    ask = loop(bench.asking())
    first, second, third = required(w, ask).requests
    w.rt.approvals.approve(first.id, approver="ann", reason="fine")
    w.rt.approvals.deny(second.id, approver="ann", reason="no")
    assert required(w, ask).requests == (third,)
    assert bench.ran == [("pay", 1)]
    w.rt.approvals.approve(third.id, approver="bob", reason="fine")
    result = w.ask(ask).result
    assert bench.ran == [("pay", 1), ("pay", 3)]
    assert [one.state for one in result.tool_results] == ["DONE", "DENIED", "DONE"]


def test_it_can_be_waited_for_within_the_activity(world: MakeWorld) -> None:
    """The same call made again in the same attempt finds what was decided meanwhile."""
    bench = Bench()
    w = world(PAY, DONE)

    def body(llm: Any) -> Any:
        ask = w._spoken(loop(bench.asking()))
        given = {"continuation_budgets": ask.continuation, **ask.options}
        return llm.run_with_tools(ask.request, ask.tools, **given)

    async def abody(llm: Any) -> str:
        try:
            await body(llm)
        except ApprovalRequired as error:
            await asyncio.to_thread(approve, w, error)
        return str((await body(llm)).response.output_text)

    def plain(llm: Any) -> str:
        try:
            body(llm)
        except ApprovalRequired as error:
            approve(w, error)
        return str(body(llm).response.output_text)

    assert w.within(abody if w.is_async else plain) == "Done."
    assert (bench.ran, w.sent) == ([("pay", 82)], 2)


def test_tools_that_are_not_continued_wait_too(world: MakeWorld) -> None:
    """Where results are returned instead of being sent back, nothing runs before it is allowed either."""
    bench = Bench()
    w = world(PAY)
    ask = loop(bench.asking(), rounds=0)
    approve(w, required(w, ask))
    assert bench.ran == []
    assert [one.state for one in w.ask(ask).result.tool_results] == ["DONE"]
    assert bench.ran == [("pay", 82)]


def test_a_freeform_call_can_be_allowed(world: MakeWorld) -> None:
    """The digest is over its raw text."""
    bench = Bench()
    w = world(calls(custom_call("patch", "*** raw")), DONE)
    ask = loop(bench.custom(approval="human"))
    error = required(w, ask)
    assert w.rt.approvals.show(error.requests[0].id).arguments == "*** raw"
    approve(w, error)
    w.ask(ask).result  # noqa: B018
    assert bench.ran == [("patch", "*** raw")]


def test_a_bad_call_waits_for_nobody(world: MakeWorld) -> None:
    """Invalid arguments are refused as ever; no person is asked about what would not run."""
    bench = Bench()
    w = world(calls(call("pay", {"n": "many"})), DONE)
    assert [one.state for one in w.ask(loop(bench.asking())).result.tool_results] == ["REFUSED"]
    assert w.rt.approvals.list(None).items == ()


def test_the_calls_of_the_last_round_are_not_asked_about(world: MakeWorld) -> None:
    """What is not going to run is not put before anybody."""
    w = world(PAY)
    w.ask(loop(Bench().asking(), rounds=1))
    assert w.rt.approvals.list(None).items == ()


# Commits


def test_an_approved_call_costs_no_further_commit(world: MakeWorld) -> None:
    """Waiting travels with the settlement; coming back costs one commit, that begins what was allowed."""
    bench = Bench()
    w = world(PAY, DONE)
    ask = loop(bench.asking())
    before = w.batches()
    error = required(w, ask)
    # Claim, reserve, settle with the request, end of the attempt.
    assert w.batches() - before == 4
    approve(w, error)
    before = w.batches()
    w.ask(ask, complete=True).result  # noqa: B018
    # Claim, begin, finish and reserve, settle, complete.
    assert w.batches() - before == 5


def test_what_waits_is_charged_when_it_is_recorded(world: MakeWorld) -> None:
    """A waiting call takes its place among the tool calls of its round, and is charged once."""
    w = world(PAY, DONE)
    ask = loop(Bench().asking())
    approve(w, required(w, ask))
    assert w.balance()[0].tool_calls == 1
    w.ask(ask).result  # noqa: B018
    assert w.balance()[0].tool_calls == 1


# Denied, expired


@pytest.mark.parametrize("tell", [False, True])
def test_a_denied_call_is_not_run_and_the_model_is_told(world: MakeWorld, tell: bool) -> None:
    """Also when the round is restored; the reason goes on only if the approver wants that."""
    bench = Bench()
    w = world(PAY, DONE)
    ask = loop(bench.asking())
    deny(w, required(w, ask), tell_model=tell)
    (first,) = w.ask(ask).result.tool_results
    output = told(w)
    assert (output["status"], output.get("reason")) == ("approval_denied", "too much" if tell else None)
    assert (w.states(), bench.ran) == ([("DENIED", "APPROVAL_DENIED", 1)], [])
    (second,) = w.ask(ask).result.tool_results
    assert (first.state, second.output, second.restored) == ("DENIED", first.output, True)


def test_an_approval_that_expired_is_not_used(world: MakeWorld) -> None:
    """By the database's clock, as soon as its time is over."""
    bench = Bench()
    w = world(PAY, DONE)
    ask = loop(bench.asking())
    approve(w, required(w, ask), expires_in=timedelta(microseconds=1))
    w.ask(ask).result  # noqa: B018
    assert (told(w)["status"], bench.ran) == ("approval_expired", [])
    assert w.states() == [("DENIED", "APPROVAL_EXPIRED", 1)]


def test_a_request_that_nobody_decided_lapses(world: MakeWorld) -> None:
    """The call is then not run, and the model is told that nobody allowed it in time."""
    bench = Bench()
    w = world(PAY, DONE, approval_us=1)
    ask = loop(bench.asking())
    required(w, ask)
    w.ask(ask).result  # noqa: B018
    assert (told(w)["status"], bench.ran) == ("approval_expired", [])


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


def test_a_plain_call_is_as_it_was(world: MakeWorld) -> None:
    """A call without such tools has no request, no judgement and two commits."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1})), DONE, DONE)
    before = w.batches()
    w.ask(run(replay_key="plain")).result  # noqa: B018
    assert w.batches() - before == 4
    before = w.batches()
    w.ask(loop(bench.make("f")), run="other").result  # noqa: B018
    assert w.batches() - before == 6
    assert [effect.judgement for effect in w.effects()] == [None]
    assert w.count(s.approval_requests) == 0
