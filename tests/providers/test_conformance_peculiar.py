"""What only one API has: choices, names of caps, refusals with calls, tools of the provider, thinking."""

from __future__ import annotations

from typing import Any

import pytest

from memoflow import Budget, BudgetTooSmall, InvalidProviderReply
from memoflow.budget import Amounts
from memoflow.errors import InvalidRequest
from memoflow.testing import (
    call,
    calls,
    choices,
    items,
    message,
    refusal_message,
    stops,
    text,
    thinking,
    usage,
    web_search,
)
from tests.providers.conformance import OnApi, on
from tests.turn._asks import loop, run, stream
from tests.turn._tools import Bench

LOOPS = {"whole": loop, "streamed": stream}
KINDS = {"whole": run, "streamed": stream}
USED = usage(10, 5)
NOTHING = Amounts()

only_chat = on("chat")
only_messages = on("messages")
each_kind = pytest.mark.parametrize("kind", KINDS)


# Chat Completions


@only_chat
@each_kind
def test_choices_share_the_reservation(api_world: OnApi, kind: str) -> None:
    """The cap bounds each of them, so that all fit; what they cost together is settled."""
    w = api_world(choices("one", "two", "three"))
    result = w.ask(KINDS[kind](request={"n": 3}, budget=Budget(total_tokens=1_000))).result
    assert [choice.message.content for choice in result.response.choices] == ["one", "two", "three"]
    found, body = w.invocation, w.provider.requests[0].json
    assert found.output_cap == body["max_tokens"]
    assert found.input_measured is not None
    assert found.input_measured + 3 * body["max_tokens"] <= 1_000
    assert w.balance()[0].total_tokens == w.provider.billed.total
    assert w.ask(KINDS[kind](request={"n": 3})).result.restored


@only_chat
@pytest.mark.parametrize("got", [1, 3])
def test_another_number_of_choices_is_no_reply_to_the_request(api_world: OnApi, got: int) -> None:
    """It is settled and refused, live and from its record."""
    said = {"message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    w = api_world(text("x", usage=USED, fields={"choices": [{"index": n, **said} for n in range(got)]}))
    for _ in range(2):
        w.ask(run(request={"n": 2})).raised(InvalidProviderReply)
    assert (w.sent, w.balance()) == (1, (Amounts(15, 10, 5, 1), NOTHING, NOTHING))


@only_chat
def test_choices_call_no_tools(api_world: OnApi) -> None:
    """No further round could tell the model which of its answers it goes on with."""
    w = api_world()
    w.ask(loop(Bench().make("f"), request={"n": 2})).raised(InvalidRequest)
    assert (w.invocations(), w.sent) == ([], 0)


@only_chat
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_the_cap_is_sent_under_the_name_the_server_knows(api_world: OnApi, name: str) -> None:
    """One that the request names itself keeps its name."""
    w = api_world(cap_field=name)
    w.ask(run(replay_key="a"), run(replay_key="b", request={"max_completion_tokens": 50}))
    bodies = [request.json for request in w.provider.requests]
    caps = [{key: value for key, value in body.items() if "max" in key} for body in bodies]
    assert caps == [{name: w.invocations()[0].output_cap}, {"max_completion_tokens": 50}]


@only_chat
@each_kind
def test_what_a_server_adds_to_its_message_goes_back(api_world: OnApi, kind: str) -> None:
    """Some servers refuse to go on without the reasoning that they sent."""
    said = [message("Let me look.", reasoning_content="Hm. 🤔"), call("f", {"n": 1})]
    w = api_world(items(said), text("Done."))
    assert w.ask(LOOPS[kind](Bench().make("f"))).error is None
    handed_back = w.provider.requests[1].json["messages"][1]
    assert (handed_back["reasoning_content"], handed_back["content"]) == ("Hm. 🤔", "Let me look.")


# Messages


@only_messages
@each_kind
def test_calls_of_a_refusal_are_not_answered(api_world: OnApi, kind: str) -> None:
    """A refusal ends the turn: it is settled, returned and recorded, and nothing in it runs."""
    bench = Bench()
    w = api_world(items([refusal_message("No."), call("f", {"n": 1})], usage=USED), text("never"))
    for _ in range(2):
        assert w.ask(LOOPS[kind](bench.make("f"))).result.finish_reason == "refusal"
    assert (bench.ran, w.sent, w.effects()) == ([], 1, [])


@only_messages
@each_kind
@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "stop_sequence"])
def test_a_call_before_an_end_that_may_have_cut_it_does_not_run(
    api_world: OnApi, kind: str, reason: str
) -> None:
    """Its input looks whole, since the provider repairs it."""
    bench = Bench()
    w = api_world(stops(reason, call("f", {"n": 1}), usage=USED), text("Told."))
    got = w.ask(LOOPS[kind](bench.make("f")))
    assert got.error is None
    assert bench.ran == []


@only_messages
@each_kind
def test_a_turn_that_paused_within_a_tool_of_the_provider_goes_on(api_world: OnApi, kind: str) -> None:
    """Its blocks go back as they came; what the provider ran is on record as its own."""
    said = [thinking("Hm."), web_search("Grüße"), message("Found: ")]
    w = api_world(stops("pause_turn", *said, usage=USED), calls(call("f", {"n": 1})), text("Done."))
    got = w.ask(LOOPS[kind](Bench().make("f")))
    assert w.text(got) == "Done."
    first, second = (request.json["messages"] for request in w.provider.requests[:2])
    assert second[:-1] == first
    kinds = [block["type"] for block in second[-1]["content"]]
    assert kinds == ["thinking", "server_tool_use", "web_search_tool_result", "text"]
    found = [(effect.kind, effect.tool_name, effect.state) for effect in w.effects()]
    assert found == [("hosted", "web_search", "PROVIDER_SIDE"), ("function", "f", "DONE")]


@only_messages
def test_a_request_always_has_a_cap(api_world: OnApi) -> None:
    """What is reserved gives it; where nothing does, the request is refused before it is sent."""
    w = api_world(text("Hello."))
    w.ask(run(budget=None)).raised(InvalidRequest)
    w.ask(run(budget=Budget(input_tokens=1_000))).raised(InvalidRequest)
    assert (w.invocations(), w.sent) == ([], 0)
    assert w.ask(run(budget=Budget(output_tokens=77))).error is None
    assert w.provider.requests[0].json["max_tokens"] == 77


@only_messages
def test_a_budget_for_thinking_leaves_room_for_an_answer(api_world: OnApi) -> None:
    """A cap at or below it would be refused by the provider; here it is refused for nothing."""
    w = api_world(text("Hello."))
    request: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 2_048}}
    error = w.ask(run(request=request, budget=Budget(total_tokens=2_000))).raised(BudgetTooSmall)
    assert error.needed > 2_048
    assert w.sent == 0
    assert w.ask(run(request=request, budget=Budget(total_tokens=error.needed))).error is None
