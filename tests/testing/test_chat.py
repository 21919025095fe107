"""Chat Completions of the simulated provider, as the official SDK reads them."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from memoflow.providers.base import Usage
from memoflow.testing import (
    ProviderRequest,
    agent,
    call,
    calls,
    choices,
    computer_call,
    custom_call,
    duplicate_terminal,
    failed,
    incomplete,
    items,
    malformed_usage,
    message,
    missing_usage,
    reasoning,
    refusal,
    stops,
    text,
    usage,
    web_search,
)
from tests.testing._callers import HELLO
from tests.testing.conftest import Talk

CHAT = "chat"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CUSTOM = {"type": "custom", "custom": {"name": "p"}}
COUNTED = {"stream_options": {"include_usage": True}}


def _answers(reply: Any) -> list[dict[str, Any]]:
    """The conversation after a reply, with every call of it answered."""
    said = reply.choices[0].message.to_dict()
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in said["tool_calls"]]
    return [*HELLO, said, *results]


def test_a_text(talk: Talk) -> None:
    """A text is one choice that stopped, with counted usage that is billed."""
    caller = talk(text("Hello, wörld."))
    reply = caller.create(api=CHAT)
    (choice,) = reply.choices
    assert (choice.message.content, choice.message.refusal, choice.finish_reason) == (
        "Hello, wörld.",
        None,
        "stop",
    )
    assert (reply.object, reply.model, reply.service_tier) == ("chat.completion", "gpt-test", "default")
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    assert caller.provider.billed.total == reply.usage.total_tokens > 0
    assert caller.provider.wire_requests == {"POST /v1/chat/completions": 1}
    (record,) = caller.provider.requests
    assert (record.api, record.operation, record.response_id) == ("chat.completions", "create", reply.id)


def test_calls(talk: Talk) -> None:
    """Calls come in parallel, functions with arguments and custom ones with input, beside what is said."""
    caller = talk(calls(call("f", {"a": 1}), custom_call("p", "x\ny"), say="Wait.", thought="Hm."))
    (choice,) = caller.create(api=CHAT, tools=[TOOL, CUSTOM]).choices
    first, second = choice.message.tool_calls
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Wait.")
    assert (first.type, first.function.name, first.function.arguments) == ("function", "f", '{"a": 1}')
    assert (second.type, second.custom.name, second.custom.input) == ("custom", "p", "x\ny")
    assert first.id != second.id


def test_given_call_ids_stay(talk_in_process: Talk) -> None:
    """Call ids that a script gives are sent as they are, blank ones too; unknown types are calls as well."""
    caller = talk_in_process(calls(call("f", "no json", call_id=""), computer_call(call_id="c1")))
    first, second = caller.create(api=CHAT).choices[0].message.tool_calls
    assert (first.id, first.function.arguments) == ("", "no json")
    assert (second.id, second.type) == ("c1", "computer_call")


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (refusal("No."), "stop"),
        (incomplete("Cut"), "length"),
        (incomplete("Cut", reason="content_filter"), "content_filter"),
        (incomplete("Cut", reason="odd"), "odd"),
        (stops("pause_turn", "Wait."), "pause_turn"),
        (stops("stop", call("f")), "stop"),
    ],
)
def test_finish_reasons(reply: Any, reason: str, talk_in_process: Talk) -> None:
    """Every way to end has its reason, streaming or not; a script may ask for any."""
    caller = talk_in_process(reply, reply)
    assert caller.create(api=CHAT).choices[0].finish_reason == reason
    reasons = [choice.finish_reason for chunk in caller.events(api=CHAT) for choice in chunk.choices]
    assert [each for each in reasons if each] == [reason]


def test_a_refusal_is_no_content(talk_in_process: Talk) -> None:
    """A refusal stands in its own field, and its stream has refusal deltas only."""
    caller = talk_in_process(refusal("No way."), refusal("No way."))
    said = caller.create(api=CHAT).choices[0].message
    assert (said.content, said.refusal) == (None, "No way.")
    deltas = [choice.delta for chunk in caller.events(api=CHAT) for choice in chunk.choices]
    assert "".join(delta.refusal or "" for delta in deltas) == "No way."
    assert not any(delta.content for delta in deltas)


def test_what_is_not_said_is_left_out(talk_in_process: Talk) -> None:
    """Reasoning and hosted tools leave no trace but their tokens; further fields of a message arrive."""
    reply = items(
        [reasoning("Hm."), web_search(), message("Hi", reasoning_content="Let me see.")],
        usage=usage(10, 30, cached=4, cache_write=3, reasoning=20),
    )
    made = talk_in_process(reply).create(api=CHAT)
    assert (made.choices[0].message.content, made.choices[0].message.reasoning_content) == (
        "Hi",
        "Let me see.",
    )
    assert made.usage.completion_tokens_details.reasoning_tokens == 20
    assert made.usage.prompt_tokens_details.cached_tokens == 4
    assert made.usage.prompt_tokens_details.cache_write_tokens == 3


def test_everything_streams(talk_in_process: Talk) -> None:
    """Text of further fields comes in pieces; what is no text, and calls of unknown types, come whole."""
    spoken = message("Hi", reasoning_content="Let me see.", audio={"id": "a1"})
    caller = talk_in_process(items([spoken, computer_call(call_id="c1")]))
    deltas = [choice.delta.to_dict() for chunk in caller.events(api=CHAT) for choice in chunk.choices]
    thoughts = [delta["reasoning_content"] for delta in deltas if "reasoning_content" in delta]
    assert (len(thoughts), "".join(thoughts)) == (4, "Let me see.")
    assert [delta["audio"] for delta in deltas if "audio" in delta] == [{"id": "a1"}]
    (called,) = [delta["tool_calls"] for delta in deltas if "tool_calls" in delta]
    assert (called[0]["index"], called[0]["id"], called[0]["type"]) == (0, "c1", "computer_call")


def test_chunks(talk: Talk) -> None:
    """Chunks of one id bring a role, text in pieces and a finish reason; usage only if it was asked for."""
    chunks = talk(text("Hello, world.")).events(api=CHAT)
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    pieces = [chunk.choices[0].delta.content for chunk in chunks[1:-1]]
    assert (len(pieces), "".join(pieces)) == (6, "Hello, world.")
    assert [chunk.choices[0].finish_reason for chunk in chunks][-2:] == [None, "stop"]
    assert all("usage" not in chunk.to_dict() for chunk in chunks)


def test_the_usage_chunk(talk: Talk) -> None:
    """With include_usage every chunk has null and the last one, without choices, the usage that is billed."""
    caller = talk(text("Hi"))
    *before, last = caller.events(api=CHAT, **COUNTED)
    assert {json.dumps(chunk.to_dict()["usage"]) for chunk in before} == {"null"}
    assert (last.choices, last.usage.total_tokens) == ([], caller.provider.billed.total)


def test_deltas_of_calls(talk_in_process: Talk) -> None:
    """The first delta of a call has its id and name, the further ones pieces of its text and its index."""
    caller = talk_in_process(calls(call("f", {"a": 1}), custom_call("p", "one two")))
    deltas = [
        each.to_dict()
        for chunk in caller.events(api=CHAT)
        for choice in chunk.choices
        for each in choice.delta.tool_calls or ()
    ]
    first = [delta for delta in deltas if delta["index"] == 0]
    second = [delta for delta in deltas if delta["index"] == 1]
    assert [sorted(delta) for delta in first[:2]] == [
        ["function", "id", "index", "type"],
        ["function", "index"],
    ]
    assert "".join(delta["function"]["arguments"] for delta in first) == '{"a": 1}'
    assert [delta["custom"]["input"] for delta in second] == ["", "one", " two"]


def test_the_helper_of_the_sdk_accepts_our_chunks(talk: Talk) -> None:
    """`client.chat.completions.stream` makes of a stream what the reply is without streaming."""
    reply = calls(call("f", {"a": [1, 2]}), call("f", "{}"), say="Grüße 👋")
    caller = talk(reply, reply)
    plain = caller.create(api=CHAT)
    events, final = caller.helped(api=CHAT, **COUNTED)
    assert {event.type for event in events} >= {"content.delta", "tool_calls.function.arguments.done"}
    assert final.choices[0].message.content == "Grüße 👋"
    made = [call.function.arguments for call in final.choices[0].message.tool_calls]
    assert made == [call.function.arguments for call in plain.choices[0].message.tool_calls]
    assert (final.choices[0].finish_reason, final.usage) == ("tool_calls", plain.usage)


def test_several_choices(talk: Talk) -> None:
    """Each of n choices is said, the last scripted one again and again; their output is added up."""
    script = choices("One.", stops("odd", "Two two."), refusal("Three."))
    caller = talk(script, script)
    reply = caller.create(api=CHAT, n=4)
    assert [choice.message.content for choice in reply.choices] == ["One.", "Two two.", None, None]
    assert [choice.finish_reason for choice in reply.choices] == ["stop", "odd", "stop", "stop"]
    assert reply.usage.completion_tokens == 2 + 3 + 3 + 3
    _, final = caller.helped(api=CHAT, n=4, **COUNTED)
    assert [choice.message.content for choice in final.choices] == ["One.", "Two two.", None, None]
    assert final.usage == reply.usage


def test_choices_without_a_script_say_the_same(talk_in_process: Talk) -> None:
    """Without `choices` each of them says the same, with calls of its own; given usage is for all of them."""
    caller = talk_in_process(calls(call("f"), usage=usage(10, 7)))
    reply = caller.create(api=CHAT, n=2)
    first, second = [choice.message.tool_calls[0].id for choice in reply.choices]
    assert first != second
    assert (reply.usage.total_tokens, caller.provider.billed) == (17, Usage(10, 7))


@pytest.mark.parametrize("cap", ["max_tokens", "max_completion_tokens"])
def test_caps(cap: str, talk: Talk) -> None:
    """Both caps cut the reply, and usage stands at the cap; of several choices each one is cut."""
    caller = talk(text("word " * 50), text("word " * 50))
    given = {cap: 20}
    reply = caller.create(api=CHAT, **given)
    assert (reply.choices[0].finish_reason, reply.usage.completion_tokens) == ("length", 20)
    assert caller.create(api=CHAT, n=2, **given).usage.completion_tokens == 40


def test_a_cut_call_is_a_prefix(talk_in_process: Talk) -> None:
    """A call that is cut has the beginning of its arguments, and the reply did not finish with calls."""
    caller = talk_in_process(calls(call("f", {"text": "word " * 50})))
    choice = caller.create(api=CHAT, max_tokens=10).choices[0]
    assert choice.finish_reason == "length"
    assert choice.message.tool_calls[0].function.arguments.startswith('{"text": "word')


def test_a_failed_reply_is_a_server_error(talk: Talk) -> None:
    """A completion cannot fail: it is a 500, or a chunk that is an error; what it took is billed."""
    caller = talk(*[failed("odd", "No.", output=[message("So f")], usage=usage(10, 5))] * 2)
    with pytest.raises(openai.InternalServerError, match=r"No\.") as caught:
        caller.create(api=CHAT)
    assert caught.value.code == "odd"
    seen: list[Any] = []
    with pytest.raises(openai.APIError, match=r"No\."):
        caller.collect(seen, api=CHAT)
    assert "".join(chunk.choices[0].delta.content for chunk in seen) == "So f"
    assert caller.provider.billed == Usage(20, 10)


def test_spoilt_usage(talk_in_process: Talk) -> None:
    """Usage can be missing or malformed, as in responses; a stream then lacks its usage chunk."""
    hi = text("Hi", usage=usage(10, 5))
    caller = talk_in_process(
        *[missing_usage(hi)] * 2, malformed_usage("wrong_total", hi), malformed_usage("null_details", hi)
    )
    assert "usage" not in caller.create(api=CHAT).to_dict()
    assert all(chunk.choices for chunk in caller.events(api=CHAT, **COUNTED))
    assert caller.create(api=CHAT).usage.total_tokens == 16
    assert caller.create(api=CHAT).usage.prompt_tokens_details is None
    assert caller.provider.billed == Usage(40, 20)


def test_a_repeated_terminal_chunk(talk_in_process: Talk) -> None:
    """A stream may say twice that it has finished."""
    chunks = talk_in_process(duplicate_terminal("Hi")).events(api=CHAT)
    assert [chunk.choices[0].finish_reason for chunk in chunks][-3:] == [None, "stop", "stop"]


def test_fields_and_names_are_the_script_s(talk_in_process: Talk) -> None:
    """Model, tier and any field of the completion can be given."""
    caller = talk_in_process(text("a", model="m2", service_tier="flex", fields={"colour": "red"}))
    reply = caller.create(api=CHAT)
    assert (reply.model, reply.service_tier, reply.colour) == ("m2", "flex", "red")


def test_an_agent_follows_its_rounds(talk: Talk) -> None:
    """How far a conversation is, is read from its messages; a function sees its outputs."""
    seen: list[ProviderRequest] = []
    caller = talk(
        lambda request: seen.append(request) or calls(call("f"), custom_call("p", "x")), agent("a", "b")
    )
    first = caller.create(api=CHAT, tools=[TOOL, CUSTOM])
    second = caller.create(api=CHAT, messages=_answers(first), tools=[TOOL, CUSTOM])
    assert second.choices[0].message.content == "b"
    assert (seen[0].api, seen[0].last_text, seen[0].outputs) == ("chat.completions", "Hello", ())


def test_outputs_of_a_conversation(talk_in_process: Talk) -> None:
    """A function sees the tool messages as outputs of the Responses API, whatever they answer."""
    seen: list[ProviderRequest] = []
    caller = talk_in_process(
        calls(call("f", call_id="c1"), custom_call("p", "x", call_id="c2")),
        lambda request: seen.append(request) or "done",
    )
    caller.create(api=CHAT, messages=_answers(caller.create(api=CHAT)))
    assert seen[0].outputs == (
        {"type": "function_call_output", "call_id": "c1", "output": "ok"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "ok"},
    )
