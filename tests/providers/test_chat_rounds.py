"""Continuations of chat completions."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter

from memoflow.canonical import canonical
from memoflow.errors import InvalidRequest
from memoflow.providers.base import AnsweredCall, Assembler, Codec, PreparedRequest, PriorRound, Reply
from memoflow.tools import Toolset, tool
from tests.providers._chat_bodies import (
    CODEC,
    begun,
    calling,
    choice,
    completion,
    counted,
    custom_call,
    delta,
    encode,
    final,
    function_call,
    message,
    read,
)

SIMPLE: dict[str, Any] = {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}]}


@tool(version="v1", effect="read_only")
def inc(n: int) -> int:
    """Add one."""
    return n + 1


def following(prepared: PreparedRequest, reply: Reply, *texts: str) -> PreparedRequest:
    """The next request when the calls got these answers."""
    results = [AnsweredCall(*pair) for pair in zip(reply.calls, texts, strict=True)]
    return CODEC.next_request(prepared, reply, CODEC.outputs(reply, results))


def test_calls_of_either_kind_are_answered_alike() -> None:
    """By a message of the tool, in the order of the results, with nothing about failure but its text."""
    reply = read(calling(function_call("call_1"), custom_call("call_2")))
    results = [AnsweredCall(reply.calls[1], "patched"), AnsweredCall(reply.calls[0], "{}", failed=True)]
    assert CODEC.outputs(reply, results) == [
        {"role": "tool", "tool_call_id": "call_2", "content": "patched"},
        {"role": "tool", "tool_call_id": "call_1", "content": "{}"},
    ]


def test_a_continuation_sends_the_message_as_it_came() -> None:
    """Before the answers, with what servers add to it, and with every other field of the request kept."""
    given = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": "hi"}]
    said = message(None, function_call("call_1", extra_content={"s": 1}), reasoning_content="hm", new=[1.5])
    prepared = CODEC.prepare({"model": "gpt-5", "messages": given, "store": False})
    body = following(prepared, read(choice(said, "tool_calls")), "2").body
    answer = {"role": "tool", "tool_call_id": "call_1", "content": "2"}
    assert canonical(body["messages"]) == canonical([*given, said, answer])
    assert {key: value for key, value in body.items() if key != "messages"} == {
        "model": "gpt-5",
        "store": False,
    }


def test_a_continuation_sends_only_what_requests_take() -> None:
    """Citations are of replies alone, and audio is named by its id."""
    audio = {"id": "audio_1", "data": "QQ==", "transcript": "x", "expires_at": 5}
    said = message("a", function_call(), annotations=[], audio=audio)
    body = following(CODEC.prepare(SIMPLE), read(choice(said, "tool_calls")), "2").body
    assert body["messages"][1] == message("a", function_call(), audio={"id": "audio_1"})
    silent = message("a", function_call(), audio=None, function_call=None)
    body = following(CODEC.prepare(SIMPLE), read(choice(silent, "tool_calls")), "2").body
    assert body["messages"][1] == message("a", function_call(), audio=None)


def test_messages_of_a_continuation_are_what_the_sdk_takes() -> None:
    """They validate as the SDK's own message types without loss."""
    adapter: TypeAdapter[Any] = TypeAdapter(list[ChatCompletionMessageParam])
    reply = read(calling(function_call("call_1"), custom_call("call_2")))
    sent = following(CODEC.prepare(SIMPLE), reply, "1", "2").body["messages"]
    parsed = json.loads(adapter.dump_json(adapter.validate_python(sent)))
    assert parsed == sent


def test_a_reply_that_paused_goes_on_from_its_message() -> None:
    """Nothing is answered, so only what was said is handed back."""
    for said in (message(), message(tool_calls=None), message(tool_calls=[])):
        reply = read(choice(said, "new_word"))
        body = CODEC.next_request(CODEC.prepare(SIMPLE), reply, []).body
        assert body["messages"] == [*SIMPLE["messages"], message()]


def test_the_codec_has_the_shape_every_adapter_is_written_against() -> None:
    """It and its assembler satisfy the protocols."""
    codec: Codec = CODEC
    assembler: Assembler = codec.assembler()
    assert (codec.provider, codec.api) == ("openai", "chat.completions")
    assert (assembler.reply(), assembler.response_id, assembler.failed, assembler.error_code) == (
        None,
        None,
        False,
        None,
    )


def test_rounds_follow_each_other() -> None:
    """Each sends all that was before it."""
    second = following(CODEC.prepare(SIMPLE), read(calling(function_call("call_1"))), "one")
    third = following(second, read(calling(function_call("call_2"))), "two")
    assert [one["role"] for one in third.body["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
    ]


def test_a_continuation_knows_the_round_before() -> None:
    """Its usage, the frames of what is handed back, and what is new."""
    prepared = CODEC.prepare(SIMPLE, streaming=True)
    reply = read(calling(function_call("call_1"), function_call("call_2")))
    second = following(prepared, reply, "a", "b")
    results = [AnsweredCall(call, text) for call, text in zip(reply.calls, "ab", strict=True)]
    assert second.prior == PriorRound(15, 3, tuple(CODEC.outputs(reply, results)))
    assert second.streaming
    assert prepared.prior is None
    assert following(prepared, read(calling(function_call()), usage=None), "a").prior is None


def test_a_continuation_offers_what_the_request_offered() -> None:
    """Tools, choice and cap stay."""
    prepared = CODEC.prepare({**SIMPLE, "max_tokens": 50}, Toolset([inc]))
    second = following(prepared, read(calling(function_call())), "2")
    assert second.offered == {(None, "inc")}
    assert (second.output_cap, second.calls_allowed, second.model) == (50, True, "gpt-5")
    assert second.body["tools"] == prepared.body["tools"]


def test_an_output_that_cannot_be_sent_is_refused() -> None:
    """A text that no JSON can carry is found before the next reservation."""
    with pytest.raises(InvalidRequest):
        following(CODEC.prepare(SIMPLE), read(calling(function_call())), "\ud83d")


def test_nothing_that_was_given_is_changed() -> None:
    """A continuation is a new body; the request and the reply stay what is recorded."""
    prepared, reply = CODEC.prepare(SIMPLE, Toolset([inc])), read(calling(function_call()))
    before = copy.deepcopy((prepared.body, reply.body))
    second = following(prepared, reply, "ok")
    second.body["messages"].append("changed")
    assert (prepared.body, reply.body) == before


def test_the_request_of_a_later_round_does_not_depend_on_how_the_reply_came() -> None:
    """Streamed, whole or restored, it is the same."""
    streamed = final(
        delta({"role": "assistant", "content": None, "refusal": None}),
        begun(arguments='{"n": 1}'),
        delta(end="tool_calls"),
        counted(),
    )
    whole = CODEC.read(encode(completion(calling(function_call()))))
    restored = CODEC.read(json.dumps(streamed.body).encode())
    bodies = [following(CODEC.prepare(SIMPLE), reply, "ok") for reply in (streamed, whole, restored)]
    assert bodies[0] == bodies[1] == bodies[2]
