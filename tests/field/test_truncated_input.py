"""Cases about tool input that was cut: what an SDK would repair is never run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import anthropic
import httpx2
import pytest

from memoflow import InvalidProviderReply, OutcomeUnknown, tool
from memoflow.testing import SimulatedProvider, call, raw, stops, text
from tests.field._faces import CHAT, MESSAGES, Face
from tests.field.conftest import Field

RAN: list[Any] = []
PREFIX = '{"to": "acct-1", "amount": 10'


@tool(version="v1", effect="at_most_once")
def pay(to: str = "nobody", amount: int = 0) -> str:
    """Pay; all of its parameters can be left out, so that no repaired input is refused for their sake."""
    RAN.append((to, amount))
    return "paid"


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    """Each case counts from zero."""
    RAN.clear()


def sse(events: Iterable[dict[str, Any]]) -> bytes:
    """Events of a stream, as they stand on the wire."""
    return b"".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in events)


def message(stop: str | None, content: list[dict[str, Any]]) -> dict[str, Any]:
    """A message of Anthropic's."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 20, "output_tokens": 7},
    }


def use(given: Any) -> dict[str, Any]:
    """A call of the tool."""
    return {"type": "tool_use", "id": "toolu_1", "name": "pay", "input": given}


def streamed(pieces: list[str], *, stop: str | None, closed: bool = True, ended: bool = True) -> bytes:
    """A message with one call, whose input comes in these pieces."""
    started = {**message(None, []), "usage": {"input_tokens": 20, "output_tokens": 1}}
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": started},
        {"type": "content_block_start", "index": 0, "content_block": use({})},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
    ]
    if closed:
        events.append({"type": "content_block_stop", "index": 0})
    delta = {"stop_reason": stop, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}})
    return sse([*events, {"type": "message_stop"}] if ended else events[:-1])


def over_the_wire(body: bytes) -> SimulatedProvider:
    """A provider that answers with these bytes, and then in words."""
    stream = raw(body, content_type="text/event-stream")
    return SimulatedProvider([stream, text("ok")])


def test_case_03_what_the_sdk_makes_of_it() -> None:
    """The SDK itself turns cut input into a runnable value, without an error: its word is not enough."""
    body = streamed([PREFIX], stop="max_tokens")
    headers = {"content-type": "text/event-stream"}
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, content=body, headers=headers))
    client = anthropic.Anthropic(api_key="none", http_client=httpx2.Client(transport=transport))
    with client.messages.stream(**MESSAGES.asking(max_tokens=100)) as events:
        (block,) = events.get_final_message().content
    assert isinstance(block, anthropic.types.ToolUseBlock)
    assert block.input == {"to": "acct-1", "amount": 10}


# A stop sequence may stand in the input of a call as well.
@pytest.mark.parametrize("stop", ["max_tokens", "model_context_window_exceeded", "stop_sequence"])
@pytest.mark.parametrize("given", [PREFIX, PREFIX + "}"], ids=["cut", "looks whole"])
def test_case_03_a_streamed_turn_that_was_cut_runs_nothing(case: Field, stop: str, given: str) -> None:
    """Whether what came so far parses or not, the reason to stop decides; the turn is settled."""
    provider = over_the_wire(streamed([given[:9], given[9:]], stop=stop))
    played = case.play(provider, [pay], stream=True, face=MESSAGES)
    assert RAN == []
    assert case.invocations[0].reservation_state == "SETTLED"
    actual = case.invocations[0].actual
    assert actual is not None
    assert actual.total_tokens == 27
    assert played.result is not None
    assert {effect.state for effect in case.effects} <= {"REFUSED"}


@pytest.mark.parametrize("stop", ["max_tokens", "model_context_window_exceeded"])
def test_case_03_a_whole_message_that_was_cut_runs_nothing(case: Field, stop: str) -> None:
    """Its input was closed by the provider, so that nobody can see where it was cut."""
    body = json.dumps(message(stop, [use({"to": "acct-1", "amount": 10})])).encode()
    played = case.play(SimulatedProvider([raw(body)]), [pay], face=MESSAGES)
    assert RAN == []
    assert played.result is not None
    assert played.result.response.stop_reason == stop
    assert case.invocations[0].reservation_state == "SETTLED"


def test_case_03_a_message_that_says_no_reason_runs_nothing(case: Field, stream: bool) -> None:
    """Without a reason to stop it has not ended: the outcome is unknown and the hold stays."""
    whole = json.dumps(message(None, [use({"to": "acct-1"})])).encode()
    body = streamed(['{"to": "acct-1"}'], stop=None)
    provider = over_the_wire(body) if stream else SimulatedProvider([raw(whole)])
    played = case.play(provider, [pay], stream=stream, face=MESSAGES)
    assert isinstance(played.error, OutcomeUnknown)
    assert RAN == []
    assert case.account.unknown.total_tokens == 4_000


@pytest.mark.parametrize("given", [PREFIX, PREFIX + '}{"amount": 1000}', "null", "[]"])
def test_case_03_a_turn_that_claims_to_be_whole(case: Field, given: str) -> None:
    """Input is parsed strictly and once, at its end: a prefix is refused, never completed or emptied."""
    provider = over_the_wire(streamed([given], stop="tool_use"))
    played = case.play(provider, [pay], stream=True, face=MESSAGES)
    assert RAN == []
    assert "INVALID_ARGUMENTS" in played.outputs[0]
    assert [effect.state for effect in case.effects] == ["REFUSED"]


def test_case_03_a_block_without_its_end(case: Field) -> None:
    """A block that was never closed contradicts a message that says it is whole: nothing runs."""
    provider = over_the_wire(streamed([PREFIX + "}"], stop="tool_use", closed=False))
    played = case.play(provider, [pay], stream=True, face=MESSAGES)
    assert isinstance(played.error, InvalidProviderReply)
    assert RAN == []
    assert case.invocations[0].reservation_state == "SETTLED"


def test_case_03_input_in_single_characters(case: Field) -> None:
    """However it is cut on the way, whole input is the input, to the last digit."""
    provider = over_the_wire(streamed(["", *(PREFIX + "00}")], stop="tool_use"))
    played = case.play(provider, [pay], stream=True, face=MESSAGES)
    assert RAN == [("acct-1", 1000)]
    assert played.text == "ok"
    handed_back = played.sent[1]["messages"][1]["content"][0]
    assert handed_back["input"] == {"to": "acct-1", "amount": 1000}


def test_case_03_a_blank_delta_is_an_empty_object(case: Field) -> None:
    """What the first case says of blank arguments, as this API streams them."""
    played = case.play(over_the_wire(streamed([""], stop="tool_use")), [pay], stream=True, face=MESSAGES)
    assert RAN == [("nobody", 0)]
    assert played.error is None


@pytest.mark.parametrize("stop", ["length", "content_filter"])
def test_case_03_its_twin_in_chat_completions(case: Field, stream: bool, stop: str) -> None:
    """A choice that ended for its length or by a filter has no call that runs, and is not carried on."""
    script = [stops(stop, call("pay", {"to": "acct-1", "amount": 10})), text("never")]
    played = case.play(script, [pay], stream=stream, face=CHAT)
    assert RAN == []
    assert {item.reservation_state for item in case.invocations} == {"SETTLED"}
    assert (played.wire, played.error) == (1, None)


@pytest.mark.parametrize("face", [CHAT, MESSAGES], ids=str)
@pytest.mark.parametrize("stop", ["something_new", "pause_turn"])
def test_case_03_a_reason_that_nobody_knows(case: Field, stream: bool, face: Face, stop: str) -> None:
    """A turn that goes on, or ended for a reason unknown here, may have been cut: its calls do not run."""
    script = [stops(stop, call("pay", {"to": "acct-1", "amount": 10})), text("ok")]
    case.play(script, [pay], stream=stream, face=face)
    assert RAN == []
    assert {effect.state for effect in case.effects} <= {"REFUSED"}
    assert {item.reservation_state for item in case.invocations} == {"SETTLED"}


def test_case_03_a_refused_prefix_goes_back_as_an_object(case: Field) -> None:
    """The history that is sent next is one the API takes, and the answer in it says what was wrong."""
    played = case.play(over_the_wire(streamed([PREFIX], stop="tool_use")), [pay], stream=True, face=MESSAGES)
    asked, answer = played.sent[1]["messages"][1:]
    assert asked["content"][0]["input"] == {}
    assert answer["content"][0]["is_error"] is True
    assert played.wire == 2


def test_case_03_the_repaired_value_is_nowhere_recorded(case: Field) -> None:
    """A restored round says what the live one said: refused, for the same text."""
    provider = SimulatedProvider([raw(streamed([PREFIX], stop="tool_use"), content_type="text/event-stream")])
    provider.push(raw(b"{}", status=500), text("ok"))
    first = case.play(provider, [pay], stream=True, face=MESSAGES, run="r")
    assert isinstance(first.error, OutcomeUnknown)
    again = case.play(provider, [pay], stream=True, face=MESSAGES, run="r")
    assert "INVALID_ARGUMENTS" in again.outputs[0]
    assert provider.requests[1].json == provider.requests[2].json
    assert RAN == []
