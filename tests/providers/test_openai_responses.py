"""Continuations of Responses requests."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseInputItem
from pydantic import TypeAdapter

from memoflow.canonical import canonical
from memoflow.errors import InvalidRequest
from memoflow.providers.base import AnsweredCall, PreparedRequest, PriorRound, Reply
from memoflow.tools import Toolset, tool
from tests.providers._bodies import (
    CODEC,
    JSON_VALUES,
    custom_call,
    encode,
    function_call,
    message,
    read,
    reasoning,
    response,
)

UNKNOWN = {"type": "brand_new_call", "foo": {"b": [1, 2.5, None], "a": "\u00e9"}}


def following(prepared: PreparedRequest, reply: Reply, *texts: str) -> PreparedRequest:
    """The next request when the calls got these answers."""
    return CODEC.next_request(
        prepared,
        reply,
        CODEC.outputs(reply, [AnsweredCall(*pair) for pair in zip(reply.calls, texts, strict=True)]),
    )


def test_each_kind_of_call_has_its_own_output() -> None:
    """A freeform call answered as a function call would never be matched."""
    reply = read(function_call("call_1"), custom_call("call_2"))
    outputs = CODEC.outputs(
        reply, [AnsweredCall(reply.calls[1], "patched"), AnsweredCall(reply.calls[0], "{}")]
    )
    assert outputs == [
        {"type": "custom_tool_call_output", "call_id": "call_2", "output": "patched"},
        {"type": "function_call_output", "call_id": "call_1", "output": "{}"},
    ]


def test_a_call_made_by_a_program_is_answered_to_the_program() -> None:
    """The caller of the call goes back with its output."""
    caller = {"type": "program", "caller_id": "prog_1"}
    reply = read(function_call("call_1", caller=caller), function_call("call_2", caller=None))
    first, second = CODEC.outputs(reply, [AnsweredCall(call, "ok") for call in reply.calls])
    assert first["caller"] == caller
    assert "caller" not in second


def test_outputs_are_what_the_sdk_takes_as_input() -> None:
    """The items validate as the SDK's own input items without loss."""
    reply = read(function_call("call_1", caller={"type": "program", "caller_id": "p"}), custom_call("call_2"))
    for item in CODEC.outputs(reply, [AnsweredCall(call, "ok") for call in reply.calls]):
        parsed = TypeAdapter(ResponseInputItem).validate_python(item)
        assert parsed.model_dump(exclude_unset=True) == item


def test_a_continuation_keeps_every_item_verbatim_and_in_order() -> None:
    """Reasoning stays before its call, and unknown items and fields go back as they came."""
    given_ = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": "hi"}]
    output = [reasoning(encrypted_content="A=", new=1), message(phase="commentary"), UNKNOWN, function_call()]
    prepared = CODEC.prepare({"model": "gpt-5", "input": given_, "store": False, "metadata": {"a": "b"}})
    body = following(prepared, read(*output), "sunny").body
    answer = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
    assert canonical(body["input"]) == canonical([*given_, *output, answer])
    assert {key: value for key, value in body.items() if key != "input"} == {
        "model": "gpt-5",
        "store": False,
        "metadata": {"a": "b"},
    }


def test_text_input_becomes_a_message() -> None:
    """Items can only follow an item."""
    prepared = CODEC.prepare({"model": "gpt-5", "input": "hi"})
    first = following(prepared, read(function_call()), "ok").body["input"][0]
    assert first == {"type": "message", "role": "user", "content": "hi"}
    parsed = TypeAdapter(ResponseInputItem).validate_python(first)
    assert parsed.model_dump(exclude_unset=True) == first


@pytest.mark.parametrize("request_", [{"model": "gpt-5"}, {"model": "gpt-5", "input": None}])
def test_a_request_without_input_is_continued(request_: dict[str, Any]) -> None:
    """The history may stand in a prompt template or a conversation."""
    items = following(CODEC.prepare(request_), read(function_call()), "ok").body["input"]
    assert [item["type"] for item in items] == ["function_call", "function_call_output"]


def test_an_earlier_response_is_kept_as_the_start_of_history() -> None:
    """The caller's id stands for what was before this call; the rounds of the call are sent in full."""
    prepared = CODEC.prepare({"model": "gpt-5", "input": "hi", "previous_response_id": "resp_0"})
    second = following(prepared, read(reasoning(), function_call("call_1")), "one")
    third = following(second, read(function_call("call_2"), id="resp_2"), "two")
    assert third.body["previous_response_id"] == "resp_0"
    assert [item["type"] for item in third.body["input"]] == [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "function_call",
        "function_call_output",
    ]


@pytest.mark.parametrize("conversation", ["conv_1", {"id": "conv_1"}])
def test_a_conversation_gets_only_the_outputs(conversation: object) -> None:
    """The API adds the items of each round to the conversation by itself; sending them again doubles them."""
    prepared = CODEC.prepare({"model": "gpt-5", "input": "hi", "conversation": conversation})
    second = following(prepared, read(reasoning(), function_call("call_1")), "one")
    third = following(second, read(function_call("call_2")), "two")
    assert [item["output"] for item in second.body["input"]] == ["one"]
    assert [item["output"] for item in third.body["input"]] == ["two"]
    assert third.body["conversation"] == conversation


def test_a_continuation_knows_the_round_before() -> None:
    """Its usage, how many items go back, and what is new."""
    prepared = CODEC.prepare({"model": "gpt-5", "input": "hi"}, streaming=True)
    reply = read(reasoning(), function_call())
    second = following(prepared, reply, "ok")
    assert second.prior == PriorRound(
        15, 2, tuple(CODEC.outputs(reply, [AnsweredCall(reply.calls[0], "ok")]))
    )
    assert second.streaming
    assert prepared.prior is None


@tool(version="v1", effect="read_only")
def inc(n: int) -> int:
    """Add one."""
    return n + 1


def test_a_continuation_offers_what_the_request_offered() -> None:
    """Tools, choice and cap stay; tools that the reply brought are offered as well."""
    request = {"model": "gpt-5", "input": "hi", "max_output_tokens": 50}
    prepared = CODEC.prepare(request, Toolset([inc]))
    found = {
        "type": "tool_search_output",
        "tools": [{"type": "function", "name": "late"}],
        "execution": "server",
    }
    second = following(prepared, read(found, function_call()), "2")
    assert second.offered == {(None, "inc"), (None, "late")}
    assert (second.output_cap, second.calls_allowed, second.model) == (50, True, "gpt-5")


def test_a_reply_with_strange_tools_does_not_stop_the_loop() -> None:
    """What a provider sends is not held to the rules for a caller's tools."""
    found = {"type": "tool_search_output", "tools": [{"type": "function"}, 5, {"type": ["x"]}]}
    second = following(CODEC.prepare({"model": "gpt-5", "input": "hi"}), read(found, function_call()), "2")
    assert second.offered == frozenset()


def test_an_output_that_cannot_be_sent_is_refused() -> None:
    """A text that no JSON can carry is found before the next reservation."""
    prepared, reply = CODEC.prepare({"model": "gpt-5", "input": "hi"}), read(function_call())
    with pytest.raises(InvalidRequest):
        following(prepared, reply, "\ud83d")


def test_nothing_that_was_given_is_changed() -> None:
    """A continuation is a new body; the request and the reply stay what is recorded."""
    prepared = CODEC.prepare({"model": "gpt-5", "input": [{"role": "user", "content": "hi"}]}, Toolset([inc]))
    reply = read(reasoning(), function_call())
    before = copy.deepcopy((prepared.body, reply.body))
    second = following(prepared, reply, "ok")
    second.body["input"].append("changed")
    assert (prepared.body, reply.body) == before


def test_a_reply_read_from_its_record_continues_the_same_way() -> None:
    """The request of a later round is the same from the live reply and from the restored one."""
    prepared = CODEC.prepare({"model": "gpt-5", "input": "hi"})
    live = CODEC.read(json.dumps(response(reasoning(), UNKNOWN, function_call()), indent=1).encode())
    restored = CODEC.read(canonical(live.body))
    assert following(prepared, live, "ok").body == following(prepared, restored, "ok").body
    assert restored == live


def test_the_sdk_s_own_output_items_may_be_sent_back_by_the_caller() -> None:
    """A history built from typed items has the JSON that the provider sent, unknown fields included."""
    body = response(reasoning(new=1), function_call(), message())
    parsed = Response.model_validate_json(encode(body))
    prepared = CODEC.prepare({"model": "gpt-5", "input": parsed.output})
    assert prepared.body["input"] == body["output"]


@given(st.lists(st.dictionaries(st.text(max_size=8), JSON_VALUES, max_size=3), max_size=4))
def test_any_items_survive_a_round(items: list[dict[str, Any]]) -> None:
    """Whatever the items are, they go back as they came and can be measured."""
    prepared = CODEC.prepare({"model": "gpt-5", "input": items})
    reply = read(*items, {"type": "function_call_output", "output": "x"})
    second = CODEC.next_request(prepared, reply, [])
    assert second.body["input"] == [*items, *items, {"type": "function_call_output", "output": "x"}]
    assert CODEC.measure(second, "estimate").tokens <= CODEC.measure(second, "bound").tokens
