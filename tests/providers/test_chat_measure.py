"""Measuring the input of chat completions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoflow.providers._chat_measure import (
    _NOT_PROMPT,
    FORMAT_TOKENS,
    MESSAGE_TOKENS,
    REQUEST_TOKENS,
    TOOL_TOKENS,
    TOOLS_TOKENS,
)
from memoflow.providers.base import AnsweredCall, MeasureMode
from memoflow.providers.measure import estimate_tokens
from tests.providers._bodies import JSON_VALUES
from tests.providers._chat_bodies import CODEC, calling, custom_call, function_call, message, read, usage

MODES: tuple[MeasureMode, ...] = ("bound", "estimate")
WORDS = "x y " * 50


def user(content: Any) -> list[dict[str, Any]]:
    """Messages of one user message."""
    return [{"role": "user", "content": content}]


def tokens(mode: MeasureMode, messages: Any = None, **request: Any) -> int:
    """Measure a request to gpt-5."""
    body = {"model": "gpt-5", "messages": user("hi") if messages is None else messages, **request}
    measurement = CODEC.measure(CODEC.prepare(body, streaming=True), mode)
    assert measurement.basis == mode
    return measurement.tokens


def reasons(messages: Any = None, **request: Any) -> tuple[str, ...]:
    """What the caller must declare."""
    body = {"model": "gpt-5", "messages": user("hi") if messages is None else messages, **request}
    return CODEC.needs_declaration(CODEC.prepare(body))


def test_text_is_bounded_by_its_bytes() -> None:
    """A byte is at least one token's worth, and scaffolding comes on top."""
    text = 'caf\u00e9 \u6f22\u5b57 "quoted"'
    assert tokens("bound", user(text)) == REQUEST_TOKENS + MESSAGE_TOKENS + len(text.encode())


def test_text_is_estimated_by_the_tokenizer() -> None:
    """The estimate is the count with its margin plus the same scaffolding."""
    text = "The quick brown fox jumps over the lazy dog. " * 50
    counted = estimate_tokens([text], "gpt-5")
    assert tokens("estimate", user(text)) == REQUEST_TOKENS + MESSAGE_TOKENS + counted
    assert tokens("estimate", user(text)) < tokens("bound", user(text)) // 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "said",
    [
        {"role": "system", "content": WORDS},
        {"role": "user", "content": [{"type": "text", "text": WORDS}]},
        {"role": "user", "content": "hi", "name": WORDS},
        message(WORDS),
        message(None, refusal=WORDS),
        message(None, reasoning_content=WORDS),
        message(None, function_call(arguments=WORDS)),
        message(None, function_call(name=WORDS)),
        message(None, custom_call(text=WORDS)),
        {"role": "tool", "tool_call_id": "c", "content": WORDS},
        {"role": "user", "content": [{"type": "brand_new", "where": {"ever": [WORDS]}}]},
        {"role": "user", "content": {"odd": [123456789] * 40}},
    ],
)
def test_the_text_of_every_message_counts(mode: MeasureMode, said: dict[str, Any]) -> None:
    """Known and unknown fields and parts are read down to their texts."""
    assert tokens(mode, [said]) >= REQUEST_TOKENS + MESSAGE_TOKENS + 100
    assert reasons([said]) == ()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "more",
    [
        {"tools": [{"type": "function", "function": {"name": "f", "description": "x" * 100}}]},
        {"response_format": {"type": "json_schema", "json_schema": {"description": "x" * 100}}},
        {"brand_new_prompt_field": "x" * 100},
        {"tool_choice": {"type": "function", "function": {"name": "x" * 100}}},
        {"prediction": {"type": "content", "content": "x" * 100}},
    ],
    ids=lambda more: next(iter(more)),
)
def test_every_text_of_a_request_counts(mode: MeasureMode, more: dict[str, Any]) -> None:
    """No part that may reach the model is free, fields nobody knows yet included."""
    assert tokens(mode, **more) >= tokens(mode) + (100 if mode == "bound" else 10)


SPECIAL = {"max_completion_tokens", "max_tokens", "messages", "model", "n", "stream_options"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("key", sorted(_NOT_PROMPT - SPECIAL))
def test_settings_are_free(mode: MeasureMode, key: str) -> None:
    """Metadata and settings of the API do not reach the model."""
    assert tokens(mode, **{key: {"a": "x y " * 100}}) == tokens(mode)


@pytest.mark.parametrize("mode", MODES)
def test_limits_and_nulls_are_free(mode: MeasureMode) -> None:
    """Numbers that bound the output are not input, and a field that was left empty costs nothing."""
    more = {"max_tokens": 5, "n": 2, "stream_options": {"include_usage": True}}
    assert tokens(mode, **more, response_format=None, brand_new=None) == tokens(mode)


@pytest.mark.parametrize("mode", MODES)
def test_scaffolding_of_tools_formats_and_calls(mode: MeasureMode) -> None:
    """Each tool and each call has a frame of its own."""
    entry = {"type": "function", "function": {"name": "f"}}
    one, two = tokens(mode, tools=[entry]), tokens(mode, tools=[entry, entry])
    assert one > tokens(mode) + TOOLS_TOKENS + TOOL_TOKENS
    assert two > one + TOOL_TOKENS
    assert tokens(mode, response_format={"type": "json_object"}) > tokens(mode) + FORMAT_TOKENS
    calls = [function_call(str(n), "f", "") for n in range(3)]
    assert tokens(mode, [message(None, *calls)]) >= REQUEST_TOKENS + 4 * MESSAGE_TOKENS


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 5000}}


@pytest.mark.parametrize(
    ("messages", "more", "expected"),
    [
        (user([IMAGE]), {}, ("image",)),
        (user([{"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}]), {}, ("audio",)),
        (user([{"type": "file", "file": {"file_id": "f"}}]), {}, ("file",)),
        (user([{"type": "video_url", "video_url": {"url": "u"}}]), {}, ("video",)),
        ([message(None, audio={"id": "audio_1"})], {}, ("audio",)),
        (None, {"modalities": ["text", "audio"]}, ("audio_output",)),
        (None, {"modalities": ["text"]}, ()),
        (None, {"modalities": "audio"}, ()),
        (None, {"web_search_options": {}}, ("hosted_tool",)),
        (None, {"tools": [{"type": "web_search"}]}, ("hosted_tool",)),
        (None, {"prediction": {"type": "content", "content": "x"}}, ("prediction",)),
        (user([IMAGE, {"type": "text", "text": "x"}]), {"web_search_options": {}}, ("hosted_tool", "image")),
        (None, {"web_search_options": None, "prediction": None, "store": True}, ()),
        (None, {"tools": [{"type": "function", "function": {"name": "f"}}]}, ()),
        ([], {}, ()),
    ],
)
def test_what_cannot_be_measured_is_named(
    messages: Any, more: dict[str, Any], expected: tuple[str, ...]
) -> None:
    """A part without text of its own needs a declaration, and nothing else does."""
    assert reasons(messages, **more) == expected


def test_media_is_not_measured_as_if_it_were_text() -> None:
    """Base64 of an image is no prompt text; the rest of its message still counts."""
    text = {"type": "text", "text": "look"}
    assert tokens("bound", user([text, IMAGE])) == tokens("bound", user([text]))


@given(st.lists(st.dictionaries(st.text(max_size=8), JSON_VALUES, max_size=3), max_size=3), JSON_VALUES)
def test_an_estimate_is_never_above_the_bound(messages: list[dict[str, Any]], more: Any) -> None:
    """Whatever stands in the messages, measuring works and the two ways keep their order."""
    for model in ("gpt-5", "other"):
        prepared = CODEC.prepare({"model": model, "messages": messages, "brand_new": more})
        bound, estimate = (CODEC.measure(prepared, mode).tokens for mode in MODES)
        assert REQUEST_TOKENS <= estimate <= bound
        assert isinstance(CODEC.needs_declaration(prepared), tuple)


@pytest.mark.parametrize("mode", MODES)
def test_a_continuation_is_measured_from_the_round_before(mode: MeasureMode) -> None:
    """Input of the next round: input and output of this one, frames, and what was appended."""
    prepared = CODEC.prepare({"model": "gpt-5", "messages": user([IMAGE])})
    reply = read(calling(function_call()), usage=usage(1300, 200))
    outputs = CODEC.outputs(reply, [AnsweredCall(reply.calls[0], "sunny " * 20)])
    following = CODEC.next_request(prepared, reply, outputs)
    text = json.dumps(outputs[0], separators=(",", ":"))
    added = len(text) if mode == "bound" else estimate_tokens(["sunny " * 20], "gpt-5")
    assert CODEC.measure(following, mode).tokens == 1500 + 3 * MESSAGE_TOKENS + added
    assert CODEC.needs_declaration(prepared) == ("image",)
    assert CODEC.needs_declaration(following) == ()


def test_a_continuation_still_names_what_adds_input_within_the_round() -> None:
    """A search may find more each time; how the reply sounds is known."""
    request = {"model": "gpt-5", "messages": user("hi"), "web_search_options": {}, "modalities": ["audio"]}
    prepared = CODEC.prepare(request)
    assert CODEC.needs_declaration(prepared) == ("audio_output", "hosted_tool")
    following = CODEC.next_request(prepared, read(calling(function_call())), [])
    assert CODEC.needs_declaration(following) == ("hosted_tool",)


def test_without_a_usage_everything_is_measured_again() -> None:
    """Nothing is assumed about a round whose usage is not known."""
    prepared = CODEC.prepare({"model": "gpt-5", "messages": user("x" * 500)})
    following = CODEC.next_request(prepared, read(calling(function_call()), usage=None), [])
    assert CODEC.measure(following, "bound").tokens > REQUEST_TOKENS + 3 * MESSAGE_TOKENS + 500


def test_published_usage_is_within_both_measurements() -> None:
    """The scaffolding covers what a real reply reported beyond the text of its request."""
    place = {"type": "string", "description": "The city and state, e.g. San Francisco, CA"}
    unit = {"type": "string", "enum": ["celsius", "fahrenheit"]}
    function = {
        "name": "get_current_weather",
        "description": "Get the current weather in a given location",
        "parameters": {
            "type": "object",
            "properties": {"location": place, "unit": unit},
            "required": ["location"],
        },
    }
    request = {"tools": [{"type": "function", "function": function}], "tool_choice": "auto"}
    messages = user("What is the weather like in Boston today?")
    # The usage that the provider's reference shows for this request.
    assert 82 <= tokens("estimate", messages, **request) <= tokens("bound", messages, **request)
