"""Streams of chat completions against the SDK's own accumulator."""

from __future__ import annotations

import copy
from typing import Any, cast

import openai
import pytest
from hypothesis import given
from openai._models import construct_type
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from memoflow.openai._chat import _API
from memoflow.providers.base import Reply
from memoflow.sdk.ports import SdkPort
from tests.providers._chat_bodies import (
    CODEC,
    STOP,
    begun,
    calling,
    choice,
    completion,
    counted,
    custom_call,
    delta,
    encode,
    feed,
    function_call,
    message,
    more_of,
    read,
    usage,
)
from tests.providers.test_chat_damage import conversations


def accumulated(events: list[dict[str, Any]]) -> dict[str, Any]:
    """What the SDK's accumulator makes of these chunks, without what it adds of its own."""
    state: ChatCompletionStreamState[Any] = ChatCompletionStreamState()
    for event in events:
        # As the client makes them: its types name neither custom calls nor ends it does not know.
        chunk = cast(ChatCompletionChunk, construct_type(type_=ChatCompletionChunk, value=event))
        for _ in state.handle_chunk(chunk):
            pass
    body: dict[str, Any] = state.current_completion_snapshot.to_dict()
    for one in body["choices"]:
        one["message"].pop("parsed", None)
        for call in one["message"].get("tool_calls") or []:
            del call["index"]
            (call.get("function") or {}).pop("parsed_arguments", None)
    return body


def same(value: Any) -> Any:
    """A body without the nulls that one side writes and the other leaves out."""
    if isinstance(value, dict):
        return {key: same(part) for key, part in value.items() if part is not None}
    return [same(part) for part in value] if isinstance(value, list) else value


@given(conversations(ordered=True))
def test_the_accumulator_of_the_sdk_builds_the_same_reply(
    conversation: tuple[list[dict[str, Any]], dict[str, Any]],
) -> None:
    """On well-formed streams both put the same texts, calls and ends together."""
    events, body = conversation
    reply = feed(*events, choices=len(body["choices"])).reply()
    assert reply is not None
    assert same(accumulated(events)) == same(reply.body)


ENTRIES = [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}]
REPLIES = [
    read(),
    CODEC.read(encode({key: part for key, part in completion().items() if key != "usage"})),
    read(choice(message("caf\u00e9 \U0001f600"), "length")),
    read(choice(message(None, refusal="no"))),
    read(choice(message(""), logprobs={"content": ENTRIES, "refusal": None})),
    read(calling(function_call("call_1"), function_call("call_2", arguments="{not json"))),
    read(calling(function_call("call_1", extra_content={"google": {"thought_signature": "s"}}), end="stop")),
    read(calling(function_call("call_1"), custom_call())),
    read(choice(message("a")), choice(message("b"), "length", 1), calling(function_call(), index=2)),
    read(choice(message("a", reasoning_content="hm", annotations=[{"type": "url_citation"}]))),
    read(choice(message("a"), content_filter_results={"hate": {"filtered": False}})),
    read(choice(), prompt_filter_results=[{"prompt_index": 0}], moderation=None),
    read(choice(message(None, audio={"id": "a", "data": "QQ==", "transcript": "x", "expires_at": 5}))),
]


@pytest.mark.parametrize("reply", REPLIES, ids=range(len(REPLIES)))
def test_a_restored_reply_is_shown_as_a_stream_of_it(reply: Reply) -> None:
    """The SDK's accumulator and this one build exactly the recorded reply from its events."""
    events = CODEC.events(reply)
    assert feed(*copy.deepcopy(events)).reply() == reply
    assert same(accumulated(events)) == same(reply.body)


def test_the_events_of_a_reply_that_contradicted_itself_do_not_say_so() -> None:
    """The note is memoflow's own; a consumer sees what the provider sent."""
    reply = feed(begun(), more_of("{}"), STOP, delta({"content": "late"}), counted()).reply()
    assert reply is not None
    assert reply.problem
    assert not any("memoflow_problem" in event for event in CODEC.events(reply))


@pytest.mark.parametrize("more", [{"error": {"message": "no"}}, {"type": "thread.run\n\ndata: {}"}])
def test_a_restored_stream_ends_as_the_reply_did(more: dict[str, Any]) -> None:
    """What servers add to a reply is not what the SDK would end a stream for, or read as another API's."""
    client = openai.OpenAI(api_key="sk-test", base_url="http://127.0.0.1:9")
    reply = read(**more)
    events = list(SdkPort(_API, client, CODEC, 1_000).repeat(reply))
    assert [type(event) for event in events] == [ChatCompletionChunk] * len(CODEC.events(reply))


def test_the_body_of_a_stream_is_a_completion_of_the_sdk() -> None:
    """A streamed reply can be given to a caller as the SDK's own type."""
    reply = feed(begun(arguments="{}"), delta(end="tool_calls"), counted(usage(3, 4))).reply()
    assert reply is not None
    parsed = ChatCompletion.model_validate(reply.body)
    assert parsed.choices[0].message.tool_calls is not None
    assert parsed.usage is not None
    assert parsed.usage.total_tokens == 7


def test_bodies_are_not_changed_by_showing_them() -> None:
    """Events are views of the record."""
    body = completion(calling(function_call(), custom_call()))
    reply = CODEC.read(encode(body))
    CODEC.events(reply)
    assert reply.body == body
