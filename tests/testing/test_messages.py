"""Anthropic's Messages API of the simulated provider, as the official SDK reads it."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest
from anthropic import BadRequestError

from memoflow.providers.base import Usage
from memoflow.testing import (
    ProviderRequest,
    agent,
    call,
    calls,
    code_interpreter,
    computer_call,
    custom_call,
    incomplete,
    items,
    malformed_usage,
    mcp_call,
    message,
    missing_usage,
    reasoning,
    redacted_thinking,
    refusal,
    status,
    stops,
    text,
    thinking,
    unknown_item,
    usage,
    web_search,
)
from tests.testing._callers import HELLO, Caller
from tests.testing.conftest import Talk

API = "messages"
TOOL = {"name": "f", "input_schema": {"type": "object"}}
THINKS = {"type": "enabled", "budget_tokens": 1_024}
EVERYTHING = items(
    [
        thinking("Let me think, twice."),
        redacted_thinking("secret"),
        web_search("wörds"),
        code_interpreter("print('é')"),
        call("f", {"a": [1, 2], "ü": "ß"}),
        custom_call("p", "*** é\n"),
        computer_call(),
        message("Grüße 👋 an alle."),
    ],
    usage=usage(100, 50, cached=40, cache_write=30, reasoning=20),
)


def _results(reply: Any) -> dict[str, Any]:
    uses = [block for block in reply.content if block.type == "tool_use"]
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "ok"} for use in uses],
    }


def _said(reply: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [block.to_dict() for block in reply.content]}


def _events(caller: Caller, **request: Any) -> list[dict[str, Any]]:
    return [event.to_dict() for event in caller.events(api=API, **request)]


def test_a_text(talk: Talk) -> None:
    """A text is one text block of a message that ended its turn, with counted usage that is billed."""
    caller = talk(text("Hello, wörld."))
    reply = caller.create(api=API)
    (block,) = reply.content
    assert (block.type, block.text) == ("text", "Hello, wörld.")
    assert (reply.type, reply.role, reply.model, reply.stop_reason, reply.stop_sequence) == (
        "message",
        "assistant",
        "claude-test",
        "end_turn",
        None,
    )
    assert caller.provider.billed == Usage(reply.usage.input_tokens, reply.usage.output_tokens)
    assert caller.provider.wire_requests == {"POST /v1/messages": 1}
    (record,) = caller.provider.requests
    assert (record.api, record.operation, record.response_id) == ("messages", "create", reply.id)
    assert reply._request_id.startswith("req_")


def test_calls(talk: Talk) -> None:
    """Calls are tool uses with their input; a custom call is one whose input holds the text."""
    caller = talk(calls(call("f", {"a": 1}), custom_call("p", "x\ny"), say="Wait.", thought="Hm."))
    reply = caller.create(api=API)
    assert [block.type for block in reply.content] == ["thinking", "text", "tool_use", "tool_use"]
    thought, _, first, second = reply.content
    assert (thought.thinking, first.name, first.input, second.input) == (
        "Hm.",
        "f",
        {"a": 1},
        {"input": "x\ny"},
    )
    assert reply.stop_reason == "tool_use"
    assert first.id != second.id
    assert thought.signature


@pytest.mark.parametrize(
    ("arguments", "status", "given"),
    [
        ("", None, {}),
        ("no json", None, "no json"),
        ("[1]", None, [1]),
        ('{"a": 1', "incomplete", {}),
        ('{"a": 1}', "incomplete", {"a": 1}),
    ],
)
def test_input_that_is_no_object(arguments: str, status: str, given: Any, talk_in_process: Talk) -> None:
    """A stream spells any input out; a whole body has what it means, its text, or nothing if it was cut."""
    reply = calls(call("f", arguments, call_id="c1", status=status))
    caller = talk_in_process(reply, reply)
    answer = caller.ask(
        lambda messages: messages.with_raw_response.create(model="m", max_tokens=99, messages=HELLO), api=API
    )
    (block,) = json.loads(answer.http_response.content)["content"]
    assert (block["id"], block["input"]) == ("c1", given)
    deltas = [event["delta"] for event in _events(caller) if event["type"] == "content_block_delta"]
    assert "".join(delta["partial_json"] for delta in deltas) == arguments


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (refusal("No."), "refusal"),
        (incomplete("Cut"), "max_tokens"),
        (incomplete("Cut", reason="content_filter"), "refusal"),
        (incomplete("Cut", reason="model_context_window_exceeded"), "model_context_window_exceeded"),
        (stops("pause_turn", web_search(), "Wait."), "pause_turn"),
        (stops("brand_new", call("f")), "brand_new"),
        (stops("stop_sequence", "Hi"), "stop_sequence"),
        (text("Hi", fields={"stop_reason": None}), None),
    ],
)
def test_stop_reasons(reply: Any, reason: str | None, talk_in_process: Talk) -> None:
    """Every way to end has its reason, streaming or not; a script may ask for any."""
    caller = talk_in_process(reply, reply)
    made = caller.create(api=API, stop_sequences=["END"])
    assert (made.stop_reason, made.stop_sequence) == (reason, "END" if reason == "stop_sequence" else None)
    *_, ended, stopped = _events(caller)
    assert (ended["delta"]["stop_reason"], stopped) == (reason, {"type": "message_stop"})


def test_a_refusal_has_details(talk_in_process: Talk) -> None:
    """A refusal is said in a text block, and explained in the details of the stop."""
    reply = talk_in_process(refusal("No way.")).create(api=API)
    assert (reply.content[0].text, reply.stop_details.explanation) == ("No way.", "No way.")


def test_the_helper_of_the_sdk_makes_the_same_message(talk: Talk) -> None:
    """`client.messages.stream` makes of every kind of block exactly what the whole body has."""
    plain_caller, caller = talk(EVERYTHING), talk(EVERYTHING)
    plain = plain_caller.create(api=API).to_dict()
    events, final = caller.helped(api=API)
    assert {event.type for event in events} >= {"thinking", "signature", "input_json", "text", "message_stop"}
    made = final.to_dict()
    for block in made["content"]:
        block.pop("parsed_output", None)
    assert made == plain
    assert [block["type"] for block in plain["content"]] == [
        "thinking",
        "redacted_thinking",
        "server_tool_use",
        "web_search_tool_result",
        "server_tool_use",
        "code_execution_tool_result",
        "tool_use",
        "tool_use",
        "tool_use",
        "text",
    ]


def test_a_block_the_sdk_does_not_know(talk_in_process: Talk) -> None:
    """A block of a type nobody knows is begun whole and ends at once."""
    reply = items([unknown_item(foo=1)])
    caller = talk_in_process(reply, reply)
    assert caller.create(api=API).content[0].foo == 1
    types = [event.type for event in caller.events(api=API)]
    assert types == [
        "message_start",
        "content_block_start",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_calls_of_remote_servers(talk_in_process: Talk) -> None:
    """What a remote server was asked and said are two blocks; its input comes in pieces."""
    reply = items([mcp_call("find", {"q": "x"}), mcp_call(error={"type": "x"}, output=None)])
    caller = talk_in_process(reply, reply)
    answer = caller.ask(
        lambda messages: messages.with_raw_response.create(model="m", max_tokens=99, messages=HELLO), api=API
    )
    use, result, _, failure = json.loads(answer.http_response.content)["content"]
    assert (use["type"], use["name"], use["server_name"], use["input"]) == (
        "mcp_tool_use",
        "find",
        "simulated",
        {"q": "x"},
    )
    assert (result["type"], result["tool_use_id"], result["is_error"]) == (
        "mcp_tool_result",
        use["id"],
        False,
    )
    assert (result["content"], failure["is_error"]) == ([{"type": "text", "text": "ok"}], True)
    spelled = [
        event.delta.partial_json
        for event in caller.events(api=API)
        if event.type == "content_block_delta" and event.index == 0
    ]
    assert "".join(spelled) == '{"q": "x"}'


def test_the_cap_cuts(talk: Talk) -> None:
    """More output than max_tokens ends there, with usage exactly at the cap."""
    caller = talk(text("word " * 50), calls(call("f", {"text": "word " * 50})))
    reply = caller.create(api=API, max_tokens=20)
    assert (reply.stop_reason, reply.usage.output_tokens) == ("max_tokens", 20)
    cut = caller.create(api=API, max_tokens=20)
    assert (cut.stop_reason, cut.content[0].input) == ("max_tokens", {})


def test_spoilt_usage(talk_in_process: Talk) -> None:
    """Usage can be missing or malformed; a stream begins with true counts and spoils those of its end."""
    hi = text("Hi", usage=usage(10, 5, cached=2, cache_write=3))
    variants: Any = ("strings", "null_details", "wrong_total")
    caller = talk_in_process(
        *[missing_usage(hi)] * 2, *[malformed_usage(each, hi) for each in variants for _ in "ab"]
    )

    def raw() -> dict[str, Any]:
        answer = caller.ask(
            lambda messages: messages.with_raw_response.create(model="m", max_tokens=99, messages=HELLO),
            api=API,
        )
        body: dict[str, Any] = json.loads(answer.http_response.content)
        return body

    assert "usage" not in raw()
    first, *_, ended, _ = _events(caller)
    assert (first["message"]["usage"]["input_tokens"], "usage" in ended) == (5, False)
    assert raw()["usage"]["output_tokens"] == "5"
    first, *_, ended, _ = _events(caller)
    assert first["message"]["usage"]["input_tokens"] == 5
    assert raw()["usage"]["cache_read_input_tokens"] is None
    assert _events(caller)[-2]["usage"]["cache_read_input_tokens"] is None
    assert sum(raw()["usage"]["cache_creation"].values()) == 4
    assert sum(_events(caller)[0]["message"]["usage"]["cache_creation"].values()) == 4
    assert caller.provider.billed == Usage(80, 40, 16, 24)


def test_nothing_to_bill_is_no_usage(talk_in_process: Talk) -> None:
    """A reply whose usage is none bills nothing and reports null."""
    caller = talk_in_process(*[text("Hi", usage=None)] * 2)
    assert caller.create(api=API).usage is None
    first, *_, ended, _ = _events(caller)
    assert (first["message"]["usage"], ended["usage"]) == (None, None)
    assert caller.provider.performed == 0


def test_counting(talk: Talk) -> None:
    """Counting gives exactly the input that the same request is billed for, and generates nothing."""
    caller = talk()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    request: dict[str, Any] = {
        "model": "m",
        "system": [{"type": "text", "text": "Be short."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "is_error": True}]},
        ],
        "tools": [TOOL],
    }
    counted = caller.ask(lambda messages: messages.count_tokens(**request), api=API)
    assert counted.input_tokens == caller.create(api=API, **request).usage.input_tokens > 85
    assert caller.provider.performed == 1
    assert caller.provider.wire_requests["POST /v1/messages/count_tokens"] == 1
    caller.provider.push(status(529), to="count")
    with pytest.raises(anthropic.InternalServerError):
        caller.ask(lambda messages: messages.count_tokens(**request), api=API)
    with pytest.raises(BadRequestError):
        caller.ask(lambda messages: messages.count_tokens(model="m", messages=[]), api=API)


def test_a_conversation(talk: Talk) -> None:
    """What was said and every result, handed back, is accepted; an agent knows how far it is."""
    caller = talk(agent(EVERYTHING, "done"))
    first = caller.create(api=API)
    handed = [*HELLO, _said(first), _results(first)]
    second = caller.create(api=API, messages=handed)
    assert second.content[0].text == "done"


def test_a_paused_turn_goes_on(talk_in_process: Talk) -> None:
    """A turn that paused is continued by handing it back as it is; a function sees the tool results."""
    seen: list[ProviderRequest] = []
    caller = talk_in_process(
        stops("pause_turn", web_search()),
        calls(call("f", call_id="c1")),
        lambda request: seen.append(request) or "done",
    )
    paused = [*HELLO, _said(caller.create(api=API))]
    called = caller.create(api=API, messages=paused)
    done = caller.create(api=API, messages=[*paused, _said(called), _results(called)])
    assert done.content[0].text == "done"
    assert seen[0].outputs == ({"type": "function_call_output", "call_id": "c1", "output": "ok"},)
    assert (seen[0].api, seen[0].answered_rounds, seen[0].last_text) == ("messages", 1, "Hello")


def test_thoughts_are_handed_back_unchanged(talk_in_process: Talk) -> None:
    """A changed thought is refused, and while the model thinks, so is a call without its thought."""
    caller = talk_in_process(calls(call("f"), thought="Hm."), "done")
    request: dict[str, Any] = {"thinking": THINKS, "max_tokens": 2_000}
    reply = caller.create(api=API, **request)
    thought, use = _said(reply)["content"]
    after = [_results(reply)]
    for content in ([{**thought, "thinking": "Ha."}, use], [{**thought, "signature": ""}, use], [use]):
        wrong = [*HELLO, {"role": "assistant", "content": content}, *after]
        with pytest.raises(BadRequestError):
            caller.create(api=API, messages=wrong, **request)
    without = [*HELLO, {"role": "assistant", "content": [use]}, *after]
    assert caller.create(api=API, messages=without).content[0].text == "done"


def test_reasoning_without_a_word_is_a_thought(talk_in_process: Talk) -> None:
    """Reasoning is a thinking block, with what its summary says."""
    reply = talk_in_process(items([reasoning(), message("Hi")])).create(api=API)
    assert (reply.content[0].type, reply.content[0].thinking) == ("thinking", "")
