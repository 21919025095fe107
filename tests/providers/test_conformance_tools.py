"""The tool loop on every API: what runs, what the model is told, where it ends, and what a round costs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memoflow import (
    Budget,
    BudgetTooSmall,
    InvalidProviderReply,
    OutcomeUnknown,
    ToolCallBudgetExceeded,
    ToolRoundLimit,
)
from memoflow.budget import Amounts
from memoflow.testing import (
    call,
    calls,
    incomplete,
    items,
    message,
    missing_usage,
    reasoning,
    stops,
    text,
    usage,
)
from tests.providers.conformance import OnApi, everywhere
from tests.turn._asks import LOOP, loop, stream
from tests.turn._tools import Bench
from tests.turn._worlds import World

LOOPS = {"whole": loop, "streamed": stream}
USED = usage(10, 5)
# The word for a turn that is not over yet: one API has one, and of the others it is an end nobody knows.
PAUSE = "pause_turn"

pytestmark = everywhere
each_kind = pytest.mark.parametrize("kind", LOOPS)


def told(w: World, request: int = -1) -> list[Any]:
    """What a request hands back about calls, decoded where it is JSON."""
    answers = [output for _, output, _ in w.api.told(w.provider.requests[request].json)]
    return [json.loads(output) if output[:1] in "{[" else output for output in answers]


def codes(w: World) -> list[str]:
    """The codes of the errors that the model is told, and nothing for each result."""
    return [one["error"]["code"] if "error" in one else "" for one in told(w)]


def pauses(w: World) -> bool:
    """Whether a reply can stop before the end of its turn: there is no such end of a response."""
    return w.api.name != "responses"


# What runs


@each_kind
def test_a_loop_runs_tools_and_hands_their_results_back(api_world: OnApi, kind: str) -> None:
    """Calls of one reply run side by side; every round has its own reservation, and one model call."""
    bench = Bench()
    script = [
        calls(call("f", {"n": 1}), call("g", {"n": 2}), usage=USED),
        calls(call("f", {"n": 3}), usage=USED),
    ]
    w = api_world(*script, text("Done.", usage=USED))
    got = w.ask(LOOPS[kind](bench.make("f"), bench.make_async("g", lambda n: f"got {n}")))
    assert w.text(got) == "Done."
    assert [(r.name, r.round, r.ordinal, r.state, r.output) for r in got.result.tool_results] == [
        ("f", 0, 0, "DONE", '{"n":1}'),
        ("g", 0, 1, "DONE", "got 2"),
        ("f", 1, 0, "DONE", '{"n":3}'),
    ]
    assert [i.round for i in got.result.invocations] == [0, 1, 2]
    assert told(w) == [{"n": 1}, "got 2", {"n": 3}]
    assert w.balance()[0] == Amounts(45, 30, 15, model_calls=3, tool_calls=3)
    assert [one.reserved.model_calls for one in w.invocations()] == [1] * 3


@each_kind
def test_what_a_model_thought_is_handed_back_with_its_call(api_world: OnApi, kind: str) -> None:
    """Providers refuse to go on without it; the simulated one checks what they check."""
    bench = Bench()
    w = api_world(items([reasoning("Hm."), message("Let me look."), call("f", {"n": 1})]), text("Done."))
    assert w.text(w.ask(LOOPS[kind](bench.make("f")))) == "Done."
    assert told(w) == [{"n": 1}]


@each_kind
def test_bad_calls_are_told_and_their_siblings_run(api_world: OnApi, kind: str) -> None:
    """Each gets one bounded result of its own; nothing is repaired; only what is valid runs."""
    bench = Bench()
    bad = ['{"n": oops"}', "null", "[1]", '{"n": "1"}', '{"m": 1}']
    w = api_world(calls(*[call("f", raw) for raw in bad], call("f", {"n": 7}), call("nobody")), text("Done."))
    got = w.ask(LOOPS[kind](bench.make("f")))
    assert bench.ran == [("f", 7)]
    assert codes(w) == ["INVALID_ARGUMENTS"] * len(bad) + ["", "UNKNOWN_TOOL"]
    assert [r.state for r in got.result.tool_results] == ["REFUSED"] * len(bad) + ["DONE", "REFUSED"]
    assert w.balance()[0].tool_calls == 1
    assert not any("oops" in str(output) for output in told(w))


@each_kind
def test_arguments_that_are_blank_are_empty(api_world: OnApi, kind: str) -> None:
    """A tool that needs nothing can be called with nothing."""
    bench = Bench()
    w = api_world(calls(call("f", ""), call("f", " \n"), call("f", "{}")), text("Done."))
    assert w.ask(LOOPS[kind](bench.make("f"))).error is None
    # This one needs a number, which is said of its parameters and not of JSON.
    assert len({str(output) for output in told(w)}) == 1


def test_that_nothing_happened_is_told(api_world: OnApi) -> None:
    """A tool that says so has failed for good, and the loop goes on; it is marked where there is a mark."""
    bench = Bench()
    w = api_world(calls(call("decline", {"n": 1}), call("f", {"n": 2})), text("Done."))
    got = w.ask(loop(bench.declining(), bench.make("f")))
    assert [r.state for r in got.result.tool_results] == ["FAILED", "DONE"]
    assert codes(w) == ["TOOL_FAILED", ""]
    marked = [failed for _, _, failed in w.api.told(w.provider.requests[-1].json)]
    assert marked == [w.api.name == "messages", False]


def test_what_may_have_happened_is_not_told(api_world: OnApi) -> None:
    """An exception leaves the outcome open: it propagates, and the next attempt is blocked."""
    bench = Bench()
    w = api_world(calls(call("g", {"n": 1})), text("never"))
    w.ask(loop(bench.failing("g", ValueError("secret")))).raised(ValueError)
    w.ask(loop(bench.failing("g", ValueError("secret")))).raised(OutcomeUnknown)
    assert (len(bench.ran), w.sent, w.states()) == (1, 1, [("OUTCOME_UNKNOWN", "TOOL_ERROR", 1)])


def test_calls_that_the_request_forbids_do_not_run(api_world: OnApi) -> None:
    """A registered tool is run only where the request allows it."""
    bench = Bench()
    w = api_world(calls(call("f", {"n": 1})), text("Done."))
    assert w.ask(loop(bench.make("f"), request={"tool_choice": "none"})).error is None
    assert (codes(w), bench.ran) == (["NOT_OFFERED"], [])


def test_calls_outside_what_the_request_offers_do_not_run(api_world: OnApi) -> None:
    """A request that brings its own tools is sent as it is, and offers no others."""
    bench = Bench()
    own = [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}]
    w = api_world(calls(call("f", {"n": 1}), call("g", {"n": 2})), text("Done."))
    assert w.ask(loop(bench.make("f"), bench.make("g"), request={"tools": own})).error is None
    assert (codes(w), bench.ran) == (["", "UNKNOWN_TOOL"], [("f", 1)])


@each_kind
@pytest.mark.parametrize("ids", [("c", "c"), (" ", "d")], ids=["repeated", "blank"])
def test_calls_that_cannot_be_told_apart_do_not_run(
    api_world: OnApi, kind: str, ids: tuple[str, str]
) -> None:
    """None of them: the reply is settled and refused, and so is its record."""
    bench = Bench()
    said = [call("f", {"n": n}, call_id=id) for n, id in enumerate(ids)]
    w = api_world(calls(*said, usage=USED), text("never"))
    for _ in range(2):
        w.ask(LOOPS[kind](bench.make("f"))).raised(InvalidProviderReply)
    assert (bench.ran, w.sent) == ([], 1)
    assert w.balance() == (Amounts(15, 10, 5, 1), Amounts(), Amounts())


@each_kind
def test_nothing_runs_from_a_turn_that_was_cut_short(api_world: OnApi, kind: str) -> None:
    """Not even the call that looks whole; the reply is returned with its reason, settled and recorded."""
    bench = Bench()
    said = [call("f", {"n": 1}, status="completed"), call("f", '{"n": 2')]
    w = api_world(incomplete(*said, usage=USED), text("never"))
    for _ in range(2):
        assert w.ask(LOOPS[kind](bench.make("f"))).result.finish_reason == "length"
    assert (bench.ran, w.sent, w.balance()[0]) == ([], 1, Amounts(15, 10, 5, 1))


def test_a_call_id_of_any_length_is_kept(api_world: OnApi) -> None:
    """Ids are text, and are handed back as they came."""
    bench, long = Bench(), "c" * 65
    w = api_world(calls(call("f", {"n": 1}, call_id=long)), text("Done."))
    assert w.ask(loop(bench.make("f"))).error is None
    assert [id for id, _, _ in w.api.told(w.provider.requests[-1].json)] == [long]


# Where it ends


def test_a_batch_above_its_budget_is_refused_as_a_whole(api_world: OnApi) -> None:
    """The reply is settled; none of its calls ran, nor do they on a retry that would allow more."""
    bench = Bench()
    w = api_world(calls(*[call("f", {"n": n}) for n in range(3)], usage=USED), text("never"))
    error = w.ask(loop(bench.make("f"), budget=Budget(total_tokens=20_000, tool_calls=2))).raised(
        ToolCallBudgetExceeded
    )
    assert (error.asked, error.reserved, error.round) == (3, 2, 0)
    assert w.ask(loop(bench.make("f"))).raised(ToolCallBudgetExceeded).reserved == 2
    assert (bench.ran, w.effects(), w.sent, w.balance()[0]) == ([], [], 1, Amounts(15, 10, 5, 1))


@each_kind
def test_a_loop_ends_when_its_rounds_are_used_up(api_world: OnApi, kind: str) -> None:
    """The last reply is settled and none of its calls runs, nor later: nothing was admitted for them."""
    bench = Bench()
    w = api_world(*[calls(call("f", {"n": n}), usage=USED) for n in range(3)], text("never"))
    assert w.ask(LOOPS[kind](bench.make("f"), rounds=3)).raised(ToolRoundLimit).rounds == 3
    assert w.ask(LOOPS[kind](bench.make("f"), rounds=4)).raised(ToolRoundLimit).rounds == 3
    assert (len(bench.ran), w.sent, w.balance()[0]) == (2, 3, Amounts(45, 30, 15, 3, 2))


def test_the_budget_of_a_round_is_its_own(api_world: OnApi) -> None:
    """What does not fit is refused before that round is sent; what ran before it is not run again."""
    bench = Bench()
    w = api_world(calls(call("f", {"n": 1})), text("Done."))
    tight = [Budget(total_tokens=30)]
    w.ask(loop(bench.make("f"), continuation=tight)).raised(BudgetTooSmall)
    assert w.sent == 1
    assert w.text(w.ask(loop(bench.make("f"), continuation=[LOOP]))) == "Done."
    assert (bench.ran, w.sent) == ([("f", 1)], 2)


def test_a_round_without_usage_keeps_its_hold_and_the_loop_goes_on(api_world: OnApi) -> None:
    """Its tokens are not known, so it is never settled at zero, and what follows is measured afresh."""
    bench = Bench()
    w = api_world(missing_usage(calls(call("f", {"n": 1}))), text("Done.", usage=USED))
    assert w.text(w.ask(loop(bench.make("f")))) == "Done."
    settled, held, unknown = w.balance()
    assert (settled, held) == (Amounts(15, 10, 5, 1), Amounts())
    assert unknown.total_tokens == 20_000
    assert w.invocations()[0].reservation_reason == "USAGE_MISSING"


# Turns that pause


@each_kind
def test_a_paused_turn_goes_on_as_a_round_of_its_own(api_world: OnApi, kind: str) -> None:
    """The reply is handed back as it came, under a reservation and budget of its own; then its tools run."""
    bench = Bench()
    w = api_world(stops(PAUSE, "One moment.", usage=USED), calls(call("f", {"n": 1})), text("Done."))
    options = {} if kind == "streamed" else {"continuation": [Budget(total_tokens=9_000, tool_calls=2), LOOP]}
    got = w.ask(LOOPS[kind](bench.make("f"), **options))
    if not pauses(w):
        assert (got.result.finish_reason, w.sent, bench.ran) == ("incomplete", 1, [])
        return
    assert (w.text(got), bench.ran) == ("Done.", [("f", 1)])
    if kind == "whole":
        assert [one.reserved.total_tokens for one in w.invocations()] == [20_000, 9_000, 20_000]
    assert "One moment." in str(w.provider.requests[1].json["messages"][-1])
    assert [i.finish_reason for i in got.result.invocations] == [PAUSE, "tool_calls", "stop"]
    again = w.ask(LOOPS[kind](bench.make("f"), **options)).result
    assert (again.restored, w.sent, len(bench.ran)) == (True, 3, 1)


@each_kind
def test_a_turn_that_only_pauses_ends_when_its_rounds_are_used_up(api_world: OnApi, kind: str) -> None:
    """Each pause is paid and recorded; the last one raises, also from the record."""
    bench = Bench()
    w = api_world(*[stops(PAUSE, "Wait.", usage=USED) for _ in range(3)], text("never"))
    for _ in range(2):
        got = w.ask(LOOPS[kind](bench.make("f"), rounds=3))
        if pauses(w):
            assert got.raised(ToolRoundLimit).rounds == 3
    assert (w.sent, w.balance()[0].model_calls) == ((3, 3) if pauses(w) else (1, 1))


def test_a_paused_turn_without_further_rounds_is_returned(api_world: OnApi) -> None:
    """Whoever did not ask for a continuation gets the reply as it is."""
    w = api_world(stops(PAUSE, "Wait."), text("never"))
    result = w.ask(loop(Bench().make("f"), rounds=0)).result
    assert result.finish_reason == (PAUSE if pauses(w) else "incomplete")
    assert w.sent == 1


@each_kind
def test_a_call_of_a_turn_that_paused_does_not_run(api_world: OnApi, kind: str) -> None:
    """It may have been cut where the turn was, so it is told and the model goes on."""
    bench = Bench()
    w = api_world(stops(PAUSE, call("f", {"n": 1})), text("Done."))
    got = w.ask(LOOPS[kind](bench.make("f")))
    assert bench.ran == []
    if pauses(w):
        assert w.text(got) == "Done."
        assert [r.state for r in got.result.tool_results] == ["REFUSED"]
