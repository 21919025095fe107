"""Measuring the input of Responses requests."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoflow.providers._responses_measure import (
    FORMAT_TOKENS,
    ITEM_TOKENS,
    REQUEST_TOKENS,
    TOOL_TOKENS,
    TOOLS_TOKENS,
)
from memoflow.providers.base import AnsweredCall, MeasureMode, PriorRound
from memoflow.providers.measure import estimate_tokens
from tests.providers._bodies import (
    CODEC,
    JSON_VALUES,
    custom_call,
    function_call,
    message,
    read,
    reasoning,
    usage,
)

MODES: tuple[MeasureMode, ...] = ("bound", "estimate")


def tokens(mode: MeasureMode, **request: Any) -> int:
    """Measure a request to gpt-5."""
    measurement = CODEC.measure(CODEC.prepare({"model": "gpt-5", **request}), mode)
    assert measurement.basis == mode
    return measurement.tokens


def reasons(**request: Any) -> tuple[str, ...]:
    """What the caller must declare."""
    return CODEC.needs_declaration(CODEC.prepare({"model": "gpt-5", **request}))


def test_text_input_is_bounded_by_its_bytes() -> None:
    """A byte is at least one token's worth, and scaffolding comes on top."""
    text = "caf\u00e9 \u6f22\u5b57"
    assert tokens("bound", input=text) == REQUEST_TOKENS + ITEM_TOKENS + len(text.encode())


def test_text_input_is_estimated_by_the_tokenizer() -> None:
    """The estimate is the count with its margin plus the same scaffolding."""
    text = "The quick brown fox jumps over the lazy dog. " * 50
    counted = estimate_tokens([text], "gpt-5")
    assert tokens("estimate", input=text) == REQUEST_TOKENS + ITEM_TOKENS + counted
    assert tokens("estimate", input=text) < tokens("bound", input=text) // 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "more",
    [
        {"instructions": "x" * 100},
        {"instructions": [{"role": "user", "content": "x" * 100}]},
        {"tools": [{"type": "function", "name": "f", "description": "x" * 100}]},
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"description": "x" * 100}}}},
        {"brand_new_prompt_field": "x" * 100},
        {"tool_choice": {"type": "function", "name": "x" * 100}},
        {"prompt": {"id": "p", "variables": {"a": "x" * 100}}},
    ],
    ids=lambda more: next(iter(more)),
)
def test_every_text_of_a_request_counts(mode: MeasureMode, more: dict[str, Any]) -> None:
    """No part that may reach the model is free, fields nobody knows yet included."""
    smallest = 100 if mode == "bound" else 10
    assert tokens(mode, input="hi", **more) >= tokens(mode, input="hi") + smallest


SETTINGS = [
    "access_programs",
    "image",
    "include",
    "max_tool_calls",
    "metadata",
    "moderation",
    "parallel_tool_calls",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "temperature",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("key", SETTINGS)
def test_settings_are_free(mode: MeasureMode, key: str) -> None:
    """Metadata and settings of the API do not reach the model."""
    assert tokens(mode, input="hi", **{key: {"a": "x y " * 100}}) == tokens(mode, input="hi")


@pytest.mark.parametrize("mode", MODES)
def test_null_is_as_good_as_absent(mode: MeasureMode) -> None:
    """A field that was left empty costs nothing."""
    empty = {"brand_new": None, "instructions": None, "text": None}
    assert tokens(mode, input="hi", **empty) == tokens(mode, input="hi")


@pytest.mark.parametrize("mode", MODES)
def test_scaffolding_of_tools_and_formats(mode: MeasureMode) -> None:
    """Each tool has a frame of its own, those within a namespace too."""
    base = tokens(mode, input="hi")
    member = {"type": "function", "name": "f"}
    namespace = {"type": "namespace", "name": "n", "description": "", "tools": [member, member]}
    assert tokens(mode, input="hi", tools=[member]) > base + TOOLS_TOKENS + TOOL_TOKENS
    assert tokens(mode, input="hi", tools=[namespace]) > base + TOOLS_TOKENS + 3 * TOOL_TOKENS
    assert tokens(mode, input="hi", text={"verbosity": "low"}) > base + FORMAT_TOKENS


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "content": "x y " * 50},
        {"role": "user", "content": [{"type": "input_text", "text": "x y " * 50}]},
        message("x y " * 50),
        function_call(arguments="x y " * 50),
        custom_call(text="x y " * 50),
        {"type": "function_call_output", "call_id": "c", "output": "x y " * 50},
        {
            "type": "function_call_output",
            "call_id": "c",
            "output": [{"type": "input_text", "text": "x y " * 50}],
        },
        {"type": "custom_tool_call_output", "call_id": "c", "output": "x y " * 50},
        reasoning(content=[{"type": "reasoning_text", "text": "x y " * 50}]),
        {"type": "brand_new", "where": {"ever": ["x y " * 50]}},
        {"role": "user", "content": [{"type": "input_text", "text": "x", "numbers": [123456789] * 40}]},
        {"type": "message", "role": "user", "content": {"odd": "x y " * 50}},
    ],
)
def test_the_text_of_every_item_counts(mode: MeasureMode, item: dict[str, Any]) -> None:
    """Known and unknown items are read down to their texts."""
    assert tokens(mode, input=[item]) >= REQUEST_TOKENS + ITEM_TOKENS + 100
    assert reasons(input=[item]) == ()


def test_frames_of_items_do_not_count_twice_in_the_estimate() -> None:
    """Ids and types of plain items are covered by the frame; only the bound counts their bytes."""
    plain = function_call()
    for key in [
        "annotations",
        "async",
        "call_id",
        "caller",
        "created_by",
        "id",
        "logprobs",
        "phase",
        "prompt_cache_breakpoint",
        "role",
        "status",
    ]:
        long = function_call(**{key: "x y " * 100})
        assert tokens("estimate", input=[plain]) == tokens("estimate", input=[long])
        assert tokens("bound", input=[long]) > tokens("bound", input=[plain]) + 300


def test_sealed_content_counts_by_its_length() -> None:
    """Encrypted reasoning is one token a byte in the bound, half of that in the estimate."""
    item = reasoning(encrypted_content="A" * 1000)
    assert tokens("bound", input=[item]) >= REQUEST_TOKENS + ITEM_TOKENS + 1000
    assert tokens("estimate", input=[item]) == REQUEST_TOKENS + ITEM_TOKENS + 500
    assert reasons(input=[item]) == ()


@given(st.lists(st.dictionaries(st.text(max_size=8), JSON_VALUES, max_size=3), max_size=3))
def test_an_estimate_is_never_above_the_bound(items: list[dict[str, Any]]) -> None:
    """Whatever stands in the items, measuring works and the two ways keep their order."""
    for model in ("gpt-5", "other"):
        prepared = CODEC.prepare({"model": model, "input": items})
        bound, estimate = (CODEC.measure(prepared, mode).tokens for mode in MODES)
        assert REQUEST_TOKENS <= estimate <= bound
        assert isinstance(CODEC.needs_declaration(prepared), tuple)


IMAGE = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 5000}


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"input": [{"role": "user", "content": [IMAGE]}]}, ("image",)),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}, ("file",)),
        ({"input": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]}, ("audio",)),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": [IMAGE]}]}, ("image",)),
        (
            {"input": [{"type": "computer_call_output", "output": {"type": "computer_screenshot"}}]},
            ("image",),
        ),
        ({"input": [{"type": "image_generation_call", "result": "A"}]}, ("image",)),
        ({"input": [{"type": "item_reference", "id": "x"}]}, ("item_reference",)),
        ({"input": [{"id": "x"}]}, ("item_reference",)),
        ({"input": [{"type": "web_search_call", "id": "x"}]}, ("hosted_item",)),
        ({"input": [{"type": "file_search_call", "id": "x"}]}, ("hosted_item",)),
        ({"input": [{"type": "code_interpreter_call", "id": "x"}]}, ("hosted_item",)),
        ({"input": [reasoning()]}, ("stored_reasoning",)),
        ({"input": "hi", "previous_response_id": "resp_0"}, ("previous_response_id",)),
        ({"input": "hi", "conversation": {"id": "conv_1"}}, ("conversation",)),
        ({"input": "hi", "prompt": {"id": "pmpt_1"}}, ("prompt",)),
        ({"input": "hi", "context_management": [{"type": "compaction"}]}, ("context_management",)),
        ({"input": "hi", "tools": [{"type": "web_search"}, {"type": "mcp"}]}, ("hosted_tool",)),
        ({"input": [reasoning(), {"id": "x"}], "prompt": {}}, ("item_reference", "stored_reasoning")),
        ({"input": "hi", "previous_response_id": None, "conversation": None}, ()),
        ({"input": "hi", "tools": [{"type": "function", "name": "f"}]}, ()),
        ({}, ()),
    ],
)
def test_what_cannot_be_measured_is_named(request_: dict[str, Any], expected: tuple[str, ...]) -> None:
    """A part without text of its own needs a declaration, and nothing else does."""
    assert reasons(**request_) == expected


def test_media_is_not_measured_as_if_it_were_text() -> None:
    """Base64 of an image is no prompt text; the rest of its message still counts."""
    text = {"type": "input_text", "text": "look"}
    with_image = tokens("bound", input=[{"role": "user", "content": [text, IMAGE]}])
    assert with_image == tokens("bound", input=[{"role": "user", "content": [text]}])


@pytest.mark.parametrize("mode", MODES)
def test_a_continuation_is_measured_from_the_round_before(mode: MeasureMode) -> None:
    """Input of the next round: input and output of this one, plus what was appended."""
    prepared = CODEC.prepare({"model": "gpt-5", "input": "x" * 5000})
    reply = read(reasoning(), function_call(), usage=usage(1300, 200))
    outputs = CODEC.outputs(reply, [AnsweredCall(reply.calls[0], "sunny " * 20)])
    following = CODEC.next_request(prepared, reply, outputs)
    measured = CODEC.measure(following, mode)
    text = json.dumps(outputs[0], separators=(",", ":")) if mode == "bound" else ""
    added = len(text) if mode == "bound" else estimate_tokens(["sunny " * 20], "gpt-5")
    assert (measured.tokens, measured.basis) == (1500 + 2 * ITEM_TOKENS + ITEM_TOKENS + added, mode)


def test_a_continuation_covers_what_no_count_can() -> None:
    """Images, stored reasoning and earlier history are in the usage; hosted tools may add more."""
    request = {"model": "gpt-5", "input": [{"role": "user", "content": [IMAGE]}], "previous_response_id": "r"}
    reply = read(reasoning(), function_call())
    for more, expected in (({}, ()), ({"tools": [{"type": "web_search"}]}, ("hosted_tool",))):
        prepared = CODEC.prepare({**request, **more})
        assert set(CODEC.needs_declaration(prepared)) >= {"image", "previous_response_id"}
        following = CODEC.next_request(
            prepared, reply, CODEC.outputs(reply, [AnsweredCall(reply.calls[0], "ok")])
        )
        assert CODEC.needs_declaration(following) == expected


def test_without_a_usage_everything_is_measured_again() -> None:
    """Nothing is assumed about a round whose usage is not known."""
    prepared = CODEC.prepare({"model": "gpt-5", "input": "x" * 500})
    reply = read(reasoning(), function_call(), usage=None)
    following = CODEC.next_request(prepared, reply, [])
    assert following.prior is None
    assert CODEC.measure(following, "bound").tokens > REQUEST_TOKENS + 500
    assert CODEC.needs_declaration(following) == ("stored_reasoning",)
    known = replace(following, prior=PriorRound(2000, 2, ()))
    assert CODEC.measure(known, "bound").tokens == 2000 + 2 * ITEM_TOKENS
    assert CODEC.needs_declaration(known) == ()


def test_published_usage_is_within_both_measurements() -> None:
    """The scaffolding covers what a real reply reported beyond the text of its request."""
    place = {"type": "string", "description": "The city and state, e.g. San Francisco, CA"}
    unit = {"type": "string", "enum": ["celsius", "fahrenheit"]}
    properties = {"location": place, "unit": unit}
    tool = {
        "type": "function",
        "name": "get_current_weather",
        "description": "Get the current weather in a given location",
        "parameters": {"type": "object", "properties": properties, "required": ["location", "unit"]},
    }
    request = {"input": "What is the weather like in Boston today?", "tools": [tool]}
    # The usage that the provider's reference shows for this request.
    assert 291 <= tokens("estimate", **request) <= tokens("bound", **request)
