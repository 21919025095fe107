"""Continuations of Messages requests."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from anthropic.types import Message, MessageParam
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from memoflow.canonical import canonical
from memoflow.providers.base import AnsweredCall, PreparedRequest, PriorRound, Reply
from memoflow.tools import Toolset, tool
from tests.providers._message_bodies import (
    CODEC,
    JSON_VALUES,
    call,
    ending,
    final,
    read,
    search,
    search_result,
    start,
    streamed_call,
    text,
    thinking,
    usage,
)

USER = {"role": "user", "content": "hi"}
SIMPLE = {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": [USER]}


def following(prepared: PreparedRequest, reply: Reply, *texts: str) -> PreparedRequest:
    """The next request when the calls got these answers."""
    answered = [AnsweredCall(*pair) for pair in zip(reply.calls, texts, strict=True)]
    return CODEC.next_request(prepared, reply, CODEC.outputs(reply, answered))


def result(id: str, content: str, **more: Any) -> dict[str, Any]:
    """An answer of a call."""
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def test_all_answers_are_one_user_message() -> None:
    """In the given order; an error is said to be one, and a result is not."""
    reply = read(call("toolu_1"), call("toolu_2"), call("toolu_3", name="zoom", toolset_name="computer"))
    one, two, three = reply.calls
    answers = [AnsweredCall(two, "no", failed=True), AnsweredCall(one, "{}"), AnsweredCall(three, "")]
    content = [
        result("toolu_2", "no", is_error=True),
        result("toolu_1", "{}"),
        result("toolu_3", "", toolset_name="computer"),
    ]
    assert CODEC.outputs(reply, answers) == [{"role": "user", "content": content}]
    assert CODEC.outputs(reply, []) == []


def test_a_continuation_keeps_every_block_verbatim_and_in_order() -> None:
    """Thinking stays before its call with its signature, and unknown blocks go back as they came."""
    earlier = [{"role": "system", "content": "be brief"}, USER]
    unknown = {"type": "brand_new", "foo": {"b": [1, 2.5, None], "a": "\u00e9"}}
    redacted = {"type": "redacted_thinking", "data": "RQ=="}
    content = [thinking(), redacted, text("a", citations=None), unknown, search(), search_result(), call()]
    request = {**SIMPLE, "messages": earlier, "metadata": {"user_id": "u"}, "tools": []}
    body = following(CODEC.prepare(request), read(*content), "sunny").body
    messages = [
        *earlier,
        {"role": "assistant", "content": content},
        {"role": "user", "content": [result("toolu_1", "sunny")]},
    ]
    assert canonical(body) == canonical({**request, "messages": messages})


def test_a_continuation_is_what_the_sdk_takes() -> None:
    """The messages validate as the SDK's own parameters, and are those its own example builds."""
    reply = read(thinking(), text(), call())
    messages = following(CODEC.prepare(SIMPLE), reply, "ok").body["messages"]
    for message in messages:
        TypeAdapter(MessageParam).validate_python(message)
    param = Message.model_validate(reply.body).to_param()
    assert [block.to_dict() for block in param["content"]] == messages[1]["content"]  # type: ignore[union-attr]


def test_rounds_add_up() -> None:
    """Each round stands after the one before it, under the same choice of tools."""
    prepared = CODEC.prepare({**SIMPLE, "tool_choice": {"type": "any"}})
    second = following(prepared, read(call("toolu_1")), "one")
    third = following(second, read(text(), call("toolu_2")), "two")
    assert [message["role"] for message in third.body["messages"]] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert third.body["tool_choice"] == {"type": "any"}
    assert len(prepared.body["messages"]) == 1
    assert (third.streaming, third.output_cap, third.cap_required) == (False, 100, True)


def test_blocks_that_the_api_sends_and_does_not_take_are_left_out() -> None:
    """An empty text is refused by the API, wherever it stands, and would stop the loop for good."""
    content = [text(""), text(" \n"), text("a"), call(), text("")]
    messages = following(CODEC.prepare(SIMPLE), read(*content), "ok").body["messages"]
    assert messages[1]["content"] == [text("a"), call()]


@pytest.mark.parametrize("given_", [[1], "text", 5])
def test_an_input_that_is_no_object_goes_back_as_an_empty_one(given_: Any) -> None:
    """The API takes no other, and the answer says what was wrong."""
    messages = following(CODEC.prepare(SIMPLE), read(call(given=given_)), "not an object").body["messages"]
    assert messages[1]["content"] == [call(given={})]
    assert messages[2]["content"] == [result("toolu_1", "not an object")]


def test_the_raw_text_of_a_malformed_call_does_not_go_back() -> None:
    """It has a field of the record's own, which the API refuses."""
    reply = final(start(), *streamed_call(0, '{"a": 1'), *ending())
    messages = following(CODEC.prepare(SIMPLE), reply, "malformed").body["messages"]
    assert messages[1]["content"] == [call(given={})]
    assert reply.body["content"][0]["partial_json"] == '{"a": 1'


def test_a_paused_reply_goes_on_as_the_last_message() -> None:
    """The content is handed back as it came, and what follows becomes part of the same turn."""
    prepared = CODEC.prepare(SIMPLE)
    first = read(text("a"), search(), stop_reason="pause_turn")
    second = CODEC.next_request(prepared, first, [])
    assert second.body["messages"] == [USER, {"role": "assistant", "content": [text("a"), search()]}]
    reply = read(search_result(), text("b"), call())
    third = following(second, reply, "ok")
    content = [text("a"), search(), search_result(), text("b"), call()]
    assert third.body["messages"] == [
        USER,
        {"role": "assistant", "content": content},
        {"role": "user", "content": [result("toolu_1", "ok")]},
    ]


@pytest.mark.parametrize(
    ("prefill", "blocks"),
    [
        ("The answer is (", [text("The answer is (")]),
        ([text("The answer is (")], [text("The answer is (")]),
        ([text("a"), text("b")], [text("a"), text("b")]),
        ("", []),
        ([], []),
    ],
)
def test_a_reply_goes_on_with_the_prefill_it_continued(prefill: Any, blocks: list[Any]) -> None:
    """It is one turn of the assistant: blocks beside blocks, and fields of the message stay."""
    messages = [USER, {"role": "assistant", "content": prefill, "brand_new": 1}]
    reply = read(text("B)"), call())
    body = following(CODEC.prepare({**SIMPLE, "messages": messages}), reply, "ok").body
    turn = {"role": "assistant", "content": [*blocks, text("B)"), call()], "brand_new": 1}
    assert body["messages"] == [USER, turn, {"role": "user", "content": [result("toolu_1", "ok")]}]


@pytest.mark.parametrize("messages", [[], [{"role": "assistant"}], [{"role": "assistant", "content": 5}]])
def test_odd_messages_are_continued(messages: list[Any]) -> None:
    """The API refuses them anyway; here nothing breaks."""
    body = following(CODEC.prepare({**SIMPLE, "messages": messages}), read(call()), "ok").body
    assert [message["role"] for message in body["messages"][len(messages) :]] == ["assistant", "user"]


def test_a_reply_without_content_is_no_message() -> None:
    """The API takes none that is empty."""
    for content in ([], [text("")]):
        body = CODEC.next_request(CODEC.prepare(SIMPLE), read(*content, stop_reason="pause_turn"), []).body
        assert body == SIMPLE


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({}, "container_2"),
        ({"container": "container_1"}, "container_2"),
        ({"container": None}, "container_2"),
        (
            {"container": {"id": None, "skills": [{"skill_id": "pdf"}]}},
            {"id": "container_2", "skills": [{"skill_id": "pdf"}]},
        ),
    ],
)
def test_the_container_of_a_reply_is_named_in_the_next_round(given_: dict[str, Any], expected: Any) -> None:
    """Code that waits in it for a call's answer would be lost, and the API refuses that."""
    reply = read(call(), container={"id": "container_2", "expires_at": "2026-11-29T00:00:00Z"})
    assert following(CODEC.prepare({**SIMPLE, **given_}), reply, "ok").body["container"] == expected


@pytest.mark.parametrize("container", [None, {}, {"id": 5}, "container_1", []])
def test_a_reply_without_a_container_leaves_the_request_s(container: Any) -> None:
    """Nothing is added or lost."""
    reply = read(call(), container=container)
    assert "container" not in following(CODEC.prepare(SIMPLE), reply, "ok").body
    kept = following(CODEC.prepare({**SIMPLE, "container": "c"}), reply, "ok").body
    assert kept["container"] == "c"


def test_the_round_before_is_known_by_its_usage() -> None:
    """Cached input counts; without a usage nothing is assumed."""
    prepared = CODEC.prepare(SIMPLE)
    reply = read(text(), text(""), call(), usage=usage(100, 20, cache_read_input_tokens=1000))
    following_ = following(prepared, reply, "ok")
    answer = {"role": "user", "content": [result("toolu_1", "ok")]}
    assert following_.prior == PriorRound(1120, 2, (answer,))
    assert following(prepared, read(call(), usage=None), "ok").prior is None


def test_tools_stay_offered() -> None:
    """The toolset's schemas are part of the body that goes on."""

    @tool(version="v1", effect="read_only")
    def inc(n: int) -> int:
        return n + 1

    prepared = CODEC.prepare(SIMPLE, Toolset([inc]), streaming=True)
    after = following(prepared, read(call()), "2")
    assert (after.body["tools"], after.offered) == (prepared.body["tools"], {(None, "inc")})
    assert after.streaming


@given(st.lists(st.dictionaries(st.text(max_size=5), JSON_VALUES, max_size=3), max_size=3))
def test_nothing_is_changed_in_place(inputs: list[dict[str, Any]]) -> None:
    """Request, reply and record stay what they were."""
    prepared = CODEC.prepare(SIMPLE)
    reply = read(text(), *(call(f"toolu_{number}", given=one) for number, one in enumerate(inputs)))
    before = copy.deepcopy((prepared.body, reply.body))
    after = following(prepared, reply, *("ok" for _ in reply.calls))
    following(after, reply, *("ok" for _ in reply.calls))
    assert (prepared.body, reply.body) == before


@pytest.mark.parametrize("said", ["Found: ", "Found:\n\n", "Found:"])
def test_a_paused_text_goes_back_without_the_blanks_at_its_end(said: str) -> None:
    """The API refuses a request that ends in them; elsewhere in it they stay."""
    reply = read(text("a "), text(said), stop_reason="pause_turn")
    prepared = CODEC.prepare(SIMPLE)
    paused = CODEC.next_request(prepared, reply, ())
    assert [block["text"] for block in paused.body["messages"][-1]["content"]] == ["a ", "Found:"]
    answered = CODEC.next_request(prepared, reply, [{"role": "user", "content": "b"}])
    assert [block["text"] for block in answered.body["messages"][-2]["content"]] == ["a ", said]
