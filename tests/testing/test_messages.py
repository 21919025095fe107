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
    SimulatedProvider,
    agent,
    call,
    calls,
    code_interpreter,
    computer_call,
    custom_call,
    duplicate_terminal,
    error_event,
    failed,
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
    stream_ends_early,
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


def test_events_of_a_text_in_their_order(talk: Talk) -> None:
    """A streamed text has the named events of the real API; pings are there, and the SDK drops them."""
    caller = talk(text("Hi"), text("Hi"))
    wanted = [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert [event.type for event in caller.events(api=API)] == wanted
    answer = caller.ask(
        lambda messages: messages.with_raw_response.create(
            model="m", max_tokens=99, messages=HELLO, extra_body={"stream": True}
        ),
        api=API,
    )
    lines = answer.http_response.content.decode().splitlines()
    names = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    assert names == [*wanted[:2], "ping", *wanted[2:]]


def test_usage_of_a_stream_is_a_placeholder_first(talk: Talk) -> None:
    """The stream begins with the true input and one token of output; the end has all of it, once more."""
    caller = talk(text("Hi", usage=usage(100, 50, cached=40, cache_write=30, reasoning=20)))
    first, *_, ended, _ = _events(caller)
    begun = first["message"]["usage"]
    assert (first["message"]["content"], first["message"]["stop_reason"]) == ([], None)
    assert (begun["input_tokens"], begun["cache_read_input_tokens"], begun["output_tokens"]) == (30, 40, 1)
    assert begun["cache_creation_input_tokens"] == begun["cache_creation"]["ephemeral_5m_input_tokens"] == 30
    assert ended["usage"] == {
        "input_tokens": 30,
        "cache_creation_input_tokens": 30,
        "cache_read_input_tokens": 40,
        "output_tokens": 50,
        "output_tokens_details": {"thinking_tokens": 20},
        "server_tool_use": None,
    }
    assert caller.provider.billed == Usage(100, 50, 40, 30, 20)


def test_usage_in_between_is_cumulative(talk_in_process: Talk) -> None:
    """With server tools usage comes more than once, and never grows less."""
    events = _events(talk_in_process(items([web_search(), code_interpreter(), message("a b c d")])))
    told = [event for event in events if event["type"] == "message_delta"]
    counts = [event["usage"]["output_tokens"] for event in told]
    assert (len(counts), counts) == (3, sorted(counts))
    assert [event["delta"]["stop_reason"] for event in told] == [None, None, "end_turn"]
    assert told[-1]["usage"]["server_tool_use"] == {"web_search_requests": 1, "web_fetch_requests": 0}


def test_deltas_of_every_kind(talk_in_process: Talk) -> None:
    """Text, thoughts and input come in pieces; a signature, citations and results come whole."""
    cited = {"type": "char_location", "cited_text": "x", "document_index": 0, "document_title": None}
    part = {"type": "output_text", "text": "one two", "citations": [cited]}
    spoken = {"type": "message", "role": "assistant", "content": [part]}
    events = _events(
        talk_in_process(items([thinking("Hm, so.", signature="s1"), call("f", {"a": 1}), spoken]))
    )
    deltas = [(event["index"], event["delta"]) for event in events if event["type"] == "content_block_delta"]
    assert [delta["thinking"] for index, delta in deltas if index == 0 and "thinking" in delta] == [
        "Hm",
        ",",
        " so",
        ".",
    ]
    assert (0, {"type": "signature_delta", "signature": "s1"}) in deltas
    assert [delta["partial_json"] for index, delta in deltas if index == 1][:3] == ["", "{", '"']
    assert deltas[-1] == (2, {"type": "citations_delta", "citation": cited})
    begun = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert [block.get("input", block.get("text", block.get("thinking"))) for block in begun] == ["", {}, ""]


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


def test_a_failed_reply_is_an_error(talk: Talk) -> None:
    """A message cannot fail: it is a 500, or an error event after its blocks; what it took is billed."""
    reply = failed("server_overloaded", "Busy.", output=[message("So f")], usage=usage(10, 5))
    caller = talk(reply, reply)
    with pytest.raises(anthropic.InternalServerError) as caught:
        caller.create(api=API)
    assert (caught.value.type, caught.value.api_message) == ("overloaded_error", "Busy.")
    seen: list[Any] = []
    with pytest.raises(anthropic.APIStatusError) as broken:
        caller.collect(seen, api=API)
    assert broken.value.type == "overloaded_error"
    assert seen[-1].type == "content_block_stop"
    assert caller.provider.billed == Usage(20, 10)


@pytest.mark.parametrize(
    ("code", "error", "kind"),
    [
        (400, anthropic.BadRequestError, "invalid_request_error"),
        (401, anthropic.AuthenticationError, "authentication_error"),
        (403, anthropic.PermissionDeniedError, "permission_error"),
        (404, anthropic.NotFoundError, "not_found_error"),
        (409, anthropic.ConflictError, "invalid_request_error"),
        (413, anthropic.APIStatusError, "request_too_large"),
        (429, anthropic.RateLimitError, "rate_limit_error"),
        (500, anthropic.InternalServerError, "api_error"),
        (502, anthropic.InternalServerError, "api_error"),
        (529, anthropic.InternalServerError, "overloaded_error"),
    ],
)
def test_every_status_has_its_error(
    code: int, error: type[anthropic.APIStatusError], kind: str, talk_in_process: Talk
) -> None:
    """A scripted status is the SDK's error for it, with the API's type and the id of the request."""
    with pytest.raises(error) as caught:
        talk_in_process(status(code)).create(api=API)
    assert (caught.value.status_code, caught.value.type) == (code, kind)
    body: Any = caught.value.body
    assert body["type"] == "error"
    assert body["request_id"] == caught.value.request_id


def test_a_status_can_say_everything(talk: Talk) -> None:
    """Codes of OpenAI's are translated, others are details; headers and texts are the script's."""
    caller = talk(
        status(429, code="rate_limit_exceeded", message="Slow.", retry_after=7),
        status(400, code="organization_on_hold", message="Held."),
        status(403, type="odd_error"),
    )
    errors = []
    for _ in range(3):
        with pytest.raises(anthropic.APIStatusError) as caught:
            caller.create(api=API)
        errors.append(caught.value)
    assert (errors[0].type, errors[0].api_message) == ("rate_limit_error", "Slow.")
    assert errors[0].response.headers["retry-after"] == "7"
    assert (errors[1].type, errors[1].error_code) == ("invalid_request_error", "organization_on_hold")
    assert errors[2].type == "odd_error"


def test_an_error_event(talk: Talk) -> None:
    """An error within a stream comes after status 200 and is raised by the SDK."""
    caller = talk(error_event("server_overloaded", "Busy.", after=2, performed=False))
    seen: list[Any] = []
    with pytest.raises(anthropic.APIStatusError) as caught:
        caller.collect(seen, api=API)
    assert (caught.value.status_code, caught.value.type) == (200, "overloaded_error")
    assert [event.type for event in seen] == ["message_start", "content_block_start"]
    assert caller.provider.performed == 0


@pytest.mark.parametrize(("after", "last"), [(None, "content_block_stop"), (-1, "message_delta")])
def test_a_stream_may_end_early(after: int | None, last: str, talk_in_process: Talk) -> None:
    """By default a stream that ends early has only the placeholder; a negative number counts from its end."""
    caller = talk_in_process(stream_ends_early("Hi", after=after))
    assert _events(caller)[-1]["type"] == last
    assert caller.provider.performed == 1


def test_two_terminal_events(talk_in_process: Talk) -> None:
    """A stream may stop twice."""
    events = _events(talk_in_process(duplicate_terminal("Hi")))
    assert [event["type"] for event in events[-3:]] == ["message_delta", "message_stop", "message_stop"]


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


def test_the_key_comes_in_its_own_header_or_as_a_bearer() -> None:
    """Either header carries the key; without one, with a wrong one or without a version nothing is done."""
    provider = SimulatedProvider(["a", "b"], api_key="right")
    version = {"anthropic-version": "2023-06-01"}
    body = {"model": "m", "max_tokens": 9, "messages": HELLO}
    answers = []
    with provider.client(max_retries=0) as client:
        for headers in (
            {"x-api-key": "right", **version},
            {"authorization": "Bearer right", **version},
            {"x-api-key": "wrong", **version},
            version,
            {"x-api-key": "right"},
        ):
            answer = client._client.post("http://simulated.invalid/v1/messages", headers=headers, json=body)
            answers.append((answer.status_code, answer.json().get("error", {}).get("type")))
    refused = (401, "authentication_error")
    assert answers == [(200, None), (200, None), refused, refused, (400, "invalid_request_error")]


def test_an_unknown_path_answers_in_the_words_of_its_client(talk_in_process: Talk) -> None:
    """A path nobody has is a 404 of Anthropic's for a client of Anthropic's."""
    caller = talk_in_process()
    with pytest.raises(anthropic.NotFoundError) as caught:
        caller.ask(lambda messages: messages.batches.retrieve("x"), api=API)
    assert caught.value.type == "not_found_error"


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


USE = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
CALLED = {"role": "assistant", "content": [USE]}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "ok"}
SPOKEN = {"type": "text", "text": "And?"}


def _user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def _assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([CALLED], "without `tool_result` blocks"),
        ([CALLED, _user(SPOKEN)], "without `tool_result` blocks"),
        ([CALLED, _user(SPOKEN, RESULT)], "without `tool_result` blocks"),
        ([_user(RESULT)], "unexpected `tool_use_id`"),
        ([CALLED, _user(RESULT), _assistant(SPOKEN), _user(RESULT)], "unexpected `tool_use_id`"),
        ([CALLED, _user(RESULT, {**RESULT, "tool_use_id": "c2"})], "unexpected `tool_use_id`"),
        ([CALLED, _user(RESULT, RESULT)], "a single result"),
        ([CALLED, _user(RESULT), _assistant(RESULT)], "only be in `user`"),
        ([_assistant(USE, USE), _user(RESULT)], "must be unique"),
        ([CALLED, _user(RESULT), CALLED, _user(RESULT)], "must be unique"),
        ([_assistant({**USE, "input": [1]})], "valid dictionary"),
        ([_assistant({**USE, "id": ["c1"]})], "id: Input should be a valid string"),
        ([_assistant({**USE, "id": ""})], "should match pattern"),
        ([_assistant({**USE, "partial_json": "{"})], "partial_json: Extra inputs"),
        ([_assistant({"type": "tool_use", "name": "f", "input": {}})], "id: Field required"),
        ([CALLED, _user({**RESULT, "tool_use_id": ["c1"]})], "valid string"),
        ([CALLED, _user({**RESULT, "content": 7})], "valid list"),
        ([CALLED, _user({**RESULT, "content": ["x"]})], "type: Field required"),
        ([_user({"type": "text", "text": " "})], "must be non-empty"),
        ([_user("x")], "type: Field required"),
        ([_user()], "non-empty content"),
        ([{"role": "assistant", "content": "So "}], "trailing whitespace"),
        ([_assistant({"type": "text", "text": "So "})], "trailing whitespace"),
        ([{"role": "tool", "content": "x"}], "role"),
        ([{"role": "user"}], "content: Field required"),
        ([{"role": "user", "content": 7}], "valid list"),
        (["x"], "valid dictionary"),
    ],
)
def test_bad_messages_are_400(messages: Any, words: str, talk_in_process: Talk) -> None:
    """Every call is answered in the next user message and nothing else is; what is mistyped is refused."""
    wrong = {"messages": [*HELLO, *messages]}
    with pytest.raises(BadRequestError, match=words):
        talk_in_process().create(api=API, extra_body=wrong)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"model": None}, "model: Field required"),
        ({"max_tokens": None}, "max_tokens: Field required"),
        ({"max_tokens": "9"}, "valid integer"),
        ({"max_tokens": 0}, "greater than or equal to 1"),
        ({"messages": None}, "messages: Field required"),
        ({"messages": "x"}, "valid list"),
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, 'must use the "user" role'),
        ({"stop_sequences": "x"}, "stop_sequences"),
        ({"thinking": {"type": "enabled"}}, "budget_tokens"),
        ({"thinking": THINKS}, "must be greater than"),
        ({"tools": "x"}, "valid list"),
        ({"tools": ["x"]}, "valid dictionary"),
        ({"tools": [{"input_schema": {"type": "object"}}]}, "name: Field required"),
        ({"tools": [{**TOOL, "name": "a b"}]}, "should match pattern"),
        ({"tools": [{"name": "f"}]}, "input_schema: Field required"),
        ({"tools": [{**TOOL, "input_schema": {}}]}, "Input should be 'object'"),
        ({"tools": [TOOL, TOOL]}, "must be unique"),
        ({"tool_choice": {"type": "auto"}}, "while providing tools"),
        ({"tool_choice": "auto"}, "expected tags"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": ["g"]}}, "not found"),
    ],
)
def test_bad_parameters_are_400(extra: dict[str, Any], words: str, talk_in_process: Talk) -> None:
    """Missing, mistyped and contradicting parameters are refused in the API's words."""
    caller = talk_in_process()
    with pytest.raises(BadRequestError, match=words):
        caller.create(api=API, extra_body=extra)
    assert caller.provider.performed == 0


def test_what_is_allowed_passes(talk_in_process: Talk) -> None:
    """Turns of one role are merged, results may come in two messages, and a reply may be begun."""
    other = {**USE, "id": "c2"}
    messages = [
        *HELLO,
        {"role": "user", "content": "And?"},
        _assistant(SPOKEN),
        _assistant(USE, other),
        _user(RESULT),
        _user({**RESULT, "tool_use_id": "c2", "content": [SPOKEN]}, SPOKEN),
        {"role": "assistant", "content": "So"},
    ]
    tools = [TOOL, {"type": "bash_20250124", "name": "bash"}]
    choice = {"type": "tool", "name": "bash"}
    reply = talk_in_process().create(api=API, messages=messages, tools=tools, tool_choice=choice)
    assert reply.content[0].text == "echo: And?"


def test_a_body_that_is_not_json_is_400() -> None:
    """A body nobody can read is refused."""
    with SimulatedProvider().anthropic_client(max_retries=0) as client, pytest.raises(BadRequestError):
        client.post("/v1/messages", cast_to=object, content=b"[" * 100_000)


def test_reasoning_without_a_word_is_a_thought(talk_in_process: Talk) -> None:
    """Reasoning is a thinking block, with what its summary says."""
    reply = talk_in_process(items([reasoning(), message("Hi")])).create(api=API)
    assert (reply.content[0].type, reply.content[0].thinking) == ("thinking", "")
