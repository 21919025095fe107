"""Calls that a person has to allow: they wait, all else is recorded, and coming back runs them once."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from memoflow import (
    ApprovalRequired,
)
from memoflow.ledger import schema as s
from memoflow.testing import call, calls, custom_call, usage
from tests._apis import APIS
from tests.turn._approving import DONE, LOOPS, PAY, approve, deny, required, told
from tests.turn._asks import loop, run
from tests.turn._tools import Bench
from tests.turn._worlds import MakeWorld

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
    w = world(
        calls(call("f", {"n": 1}), call("pay", {"n": 82}), call("f", {"n": 2}), usage=usage(1, 1)), DONE
    )
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


def test_a_plain_call_is_as_it_was(world: MakeWorld) -> None:
    """A call without such tools has no request, no judgement and two commits."""
    bench = Bench()
    w = world(DONE, calls(call("f", {"n": 1})), DONE)
    before = w.batches()
    w.ask(run(replay_key="plain")).result  # noqa: B018
    assert w.batches() - before == 4
    before = w.batches()
    w.ask(loop(bench.make("f")), run="other").result  # noqa: B018
    assert w.batches() - before == 6
    assert [effect.judgement for effect in w.effects()] == [None]
    assert w.count(s.approval_requests) == 0
