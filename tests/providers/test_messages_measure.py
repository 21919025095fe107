"""Measuring the input of Messages requests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoflow.providers._measuring import compact
from memoflow.providers._messages_measure import (
    FORMAT_TOKENS,
    ITEM_TOKENS,
    REQUEST_TOKENS,
    TOOL_TOKENS,
    TOOLS_TOKENS,
    VOCABULARY_MARGIN,
)
from memoflow.providers.base import AnsweredCall, MeasureMode, PriorRound
from memoflow.providers.measure import estimate_tokens
from tests.providers._message_bodies import (
    CODEC,
    JSON_VALUES,
    call,
    read,
    search,
    search_result,
    text,
    thinking,
    usage,
)

MODES: tuple[MeasureMode, ...] = ("bound", "estimate")
MODEL = "claude-sonnet-4-5"
LONG = "x y " * 50


def request(*content: Any, **more: Any) -> dict[str, Any]:
    """A request with one user message of these blocks."""
    return {"model": MODEL, "messages": [{"role": "user", "content": list(content)}], **more}


def tokens(mode: MeasureMode, *content: Any, **more: Any) -> int:
    """Measure such a request."""
    measurement = CODEC.measure(CODEC.prepare(request(*content, **more)), mode)
    assert measurement.basis == mode
    return measurement.tokens


def reasons(*content: Any, **more: Any) -> tuple[str, ...]:
    """What the caller must declare."""
    return CODEC.needs_declaration(CODEC.prepare(request(*content, **more)))


def raised(texts: list[str]) -> int:
    """The estimate of texts with the margin for the vocabulary."""
    counted = estimate_tokens(texts, MODEL)
    return counted + -(-counted // VOCABULARY_MARGIN)


def test_text_is_bounded_by_its_bytes() -> None:
    """A byte is at least one token's worth, and scaffolding comes on top."""
    given_ = "caf\u00e9 \u6f22\u5b57"
    messages = [{"role": "user", "content": given_}]
    frames = REQUEST_TOKENS + 2 * ITEM_TOKENS
    assert tokens("bound", messages=messages) == frames + len(given_.encode())


def test_text_is_estimated_by_the_tokenizer() -> None:
    """The estimate is the count with its margins plus the same scaffolding."""
    prose = "The quick brown fox jumps over the lazy dog. " * 50
    frames = REQUEST_TOKENS + 2 * ITEM_TOKENS
    for content in (prose, [text(prose)]):
        assert tokens("estimate", messages=[{"role": "user", "content": content}]) == frames + raised([prose])
    assert tokens("estimate", text(prose)) < tokens("bound", text(prose)) // 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "more",
    [
        {"system": LONG},
        {"system": [{"type": "text", "text": LONG}]},
        {"tools": [{"name": "f", "description": LONG, "input_schema": {}}]},
        {"output_config": {"format": {"type": "json_schema", "schema": {"description": LONG}}}},
        {"tool_choice": {"type": "tool", "name": LONG}},
        {"brand_new_prompt_field": LONG},
    ],
    ids=lambda more: next(iter(more)),
)
def test_every_text_of_a_request_counts(mode: MeasureMode, more: dict[str, Any]) -> None:
    """No part that may reach the model is free, fields nobody knows yet included."""
    smallest = 200 if mode == "bound" else 100
    assert tokens(mode, text("hi"), **more) >= tokens(mode, text("hi")) + smallest


SETTINGS = [
    "betas",
    "cache_control",
    "diagnostics",
    "inference_geo",
    "metadata",
    "service_tier",
    "speed",
    "stop_sequences",
    "temperature",
    "thinking",
    "top_k",
    "top_p",
    "user_profile_id",
    "workspace_id",
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("key", SETTINGS)
def test_settings_are_free(mode: MeasureMode, key: str) -> None:
    """Metadata and settings of the API do not reach the model, and need no declaration."""
    assert tokens(mode, text("hi"), **{key: {"a": LONG}}) == tokens(mode, text("hi"))
    assert reasons(text("hi"), **{key: {"a": LONG}}) == ()


@pytest.mark.parametrize("mode", MODES)
def test_null_is_as_good_as_absent(mode: MeasureMode) -> None:
    """A field that was left empty costs nothing."""
    empty = {"brand_new": None, "system": None, "output_config": None, "container": None}
    assert tokens(mode, text("hi"), **empty) == tokens(mode, text("hi"))
    assert reasons(text("hi"), **empty) == ()


@pytest.mark.parametrize("mode", MODES)
def test_scaffolding_of_tools_and_formats(mode: MeasureMode) -> None:
    """Calling has a prompt of its own, and each tool a frame."""
    base, one = tokens(mode, text("hi")), {"name": "f", "input_schema": {}}
    assert tokens(mode, text("hi"), tools=[one]) > base + TOOLS_TOKENS + TOOL_TOKENS
    assert tokens(mode, text("hi"), tools=[one, one]) > base + TOOLS_TOKENS + 2 * TOOL_TOKENS
    assert base < tokens(mode, text("hi"), output_config={"effort": "low"}) < base + FORMAT_TOKENS
    assert tokens(mode, text("hi"), output_config={"format": {"schema": {}}}) > base + FORMAT_TOKENS


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "block",
    [
        LONG,
        text(LONG),
        text("", cache_control={"type": "ephemeral"}, title=LONG),
        call(given={"a": {"b": LONG}}),
        call(given={LONG: 1}),
        call(name=LONG),
        {"type": "tool_result", "tool_use_id": "t", "content": LONG},
        {"type": "tool_result", "tool_use_id": "t", "content": [text(LONG)]},
        {"type": "thinking", "thinking": LONG, "signature": "RQ"},
        {"type": "search_result", "source": "s", "title": "t", "content": [text(LONG)]},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": LONG}},
        {"type": "document", "source": {"type": "content", "content": [text(LONG)]}},
        {"type": "document", "source": {"type": "content", "content": LONG}},
        {"type": "document", "context": LONG, "source": {"type": "base64", "data": "A"}},
        {"type": "mcp_tool_result", "tool_use_id": "t", "content": [text(LONG)]},
        {"type": "brand_new", "where": {"ever": [LONG]}},
        search(input={"query": LONG}),
        {"where": LONG},
        [LONG],
    ],
)
def test_the_text_of_every_block_counts(mode: MeasureMode, block: Any) -> None:
    """Known and unknown blocks are read down to their texts."""
    assert tokens(mode, block) >= REQUEST_TOKENS + 2 * ITEM_TOKENS + 90


@pytest.mark.parametrize("mode", MODES)
def test_what_else_a_message_holds_counts(mode: MeasureMode) -> None:
    """A field unknown here is never free."""
    message = {"role": "user", "content": "hi"}
    plain = tokens(mode, messages=[message])
    assert tokens(mode, messages=[{**message, "brand_new": LONG}]) >= plain + 90
    assert tokens(mode, messages=[{"role": "user"}]) == REQUEST_TOKENS + ITEM_TOKENS


def test_frames_of_blocks_do_not_count_twice_in_the_estimate() -> None:
    """Ids and types of plain blocks are covered by the frame; only the bound counts their bytes."""
    for key in ["cache_control", "caller", "citations", "id", "is_error", "tool_use_id"]:
        long = {**call(), key: LONG}
        assert tokens("estimate", call()) == tokens("estimate", long)
        assert tokens("bound", long) > tokens("bound", call()) + 150


@pytest.mark.parametrize(
    "block",
    [
        {"type": "thinking", "thinking": "", "signature": "A" * 1000},
        {"type": "redacted_thinking", "data": "A" * 1000},
    ],
)
def test_sealed_content_counts_by_its_length(block: dict[str, Any]) -> None:
    """A signature holds the thinking that a summary only hints at."""
    frames = REQUEST_TOKENS + 2 * ITEM_TOKENS
    assert tokens("bound", block) >= frames + 1000
    assert tokens("estimate", block) == frames + 500
    assert reasons(block) == ()


BLOCKS = st.lists(st.dictionaries(st.text(max_size=8), JSON_VALUES, max_size=3) | JSON_VALUES, max_size=3)


@given(st.lists(st.dictionaries(st.sampled_from(["role", "content", "a"]), BLOCKS | JSON_VALUES), max_size=3))
def test_an_estimate_is_never_above_the_bound(messages: list[dict[str, Any]]) -> None:
    """Whatever stands in the messages, measuring works and the two ways keep their order."""
    prepared = CODEC.prepare({"model": MODEL, "messages": messages, "system": messages, "a": messages})
    bound, estimate = (CODEC.measure(prepared, mode).tokens for mode in MODES)
    assert REQUEST_TOKENS <= estimate <= bound
    assert isinstance(CODEC.needs_declaration(prepared), tuple)


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 5000}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "A" * 5000}}


@pytest.mark.parametrize(
    ("content", "more", "expected"),
    [
        ([IMAGE], {}, ("image",)),
        ([{"type": "image", "source": {"type": "file", "file_id": "f"}}], {}, ("image",)),
        ([PDF], {}, ("document",)),
        ([{"type": "document", "source": {"type": "url", "url": "u"}}], {}, ("document",)),
        ([{"type": "document", "source": {"type": "file", "file_id": "f"}}], {}, ("document",)),
        ([{"type": "document"}], {}, ("document",)),
        ([{"type": "document", "source": {"type": "text", "data": "a"}}], {}, ()),
        ([{"type": "document", "source": {"type": "content", "content": [IMAGE]}}], {}, ("image",)),
        ([{"type": "tool_result", "content": [text(), IMAGE, PDF]}], {}, ("document", "image")),
        ([{"type": "container_upload", "file_id": "f"}], {}, ("container",)),
        ([search_result()], {}, ("hosted_item",)),
        ([{"type": "mcp_tool_result", "content": [IMAGE]}], {}, ("image",)),
        ([search(), thinking(), call()], {}, ()),
        ([], {"container": "c"}, ("container",)),
        ([], {"container": {"skills": [{"skill_id": "pdf"}]}}, ("container",)),
        ([], {"thread": {"id": "t"}}, ("thread",)),
        ([], {"mcp_servers": [{"type": "url"}]}, ("mcp_servers",)),
        ([], {"context_management": {"edits": [{}]}}, ("context_management",)),
        ([], {"compaction": {"type": "x"}}, ("compaction",)),
        ([], {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, ("hosted_tool",)),
        ([], {"tools": [{"type": "brand_new"}]}, ("hosted_tool",)),
        ([], {"tools": [{"type": "bash_20250124", "name": "bash"}]}, ("predefined_tool",)),
        ([], {"tools": [{"type": "computer_toolset_20260801"}]}, ("predefined_tool",)),
        ([], {"tools": [{"name": "f", "input_schema": {}}]}, ()),
        ([IMAGE], {"mcp_servers": [{}], "tools": []}, ("image", "mcp_servers")),
        ([text("a", cache_control={"type": "ephemeral"})], {"mcp_servers": []}, ()),
        ([5, None, "text", {"type": []}], {}, ()),
    ],
)
def test_what_cannot_be_measured_is_named(
    content: Any, more: dict[str, Any], expected: tuple[str, ...]
) -> None:
    """A part without text of its own needs a declaration, and nothing else does."""
    assert reasons(*content, **more) == expected


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("media", [IMAGE, PDF])
def test_media_is_not_measured_as_if_it_were_text(mode: MeasureMode, media: dict[str, Any]) -> None:
    """The bytes of an image are no prompt text, wherever it stands; the rest of its message still counts."""
    small = 100
    assert tokens(mode, text(LONG), media) < tokens(mode, text(LONG)) + small
    within = {"type": "tool_result", "content": [text(LONG), media]}
    assert 90 < tokens(mode, within) < tokens(mode, text(LONG)) + 2 * small
    document = {"type": "document", "source": {"type": "content", "content": [text(LONG), media]}}
    assert 90 < tokens(mode, document) < tokens(mode, text(LONG)) + 3 * small


@pytest.mark.parametrize("mode", MODES)
def test_a_continuation_is_measured_from_the_round_before(mode: MeasureMode) -> None:
    """Input of the next round: input and output of this one, plus what was appended."""
    prepared = CODEC.prepare(request(text("x" * 5000)))
    reply = read(thinking(), call(), usage=usage(300, 200, cache_creation_input_tokens=1000))
    outputs = CODEC.outputs(reply, [AnsweredCall(reply.calls[0], "sunny " * 20)])
    measured = CODEC.measure(CODEC.next_request(prepared, reply, outputs), mode)
    block = outputs[0]["content"][0]
    added = len(compact(block)) if mode == "bound" else raised(["sunny " * 20])
    assert (measured.tokens, measured.basis) == (1500 + 2 * ITEM_TOKENS + 2 * ITEM_TOKENS + added, mode)


def test_a_continuation_covers_what_no_count_can() -> None:
    """Images, predefined tools and containers are in the usage; hosted tools may add more."""
    tools = [{"type": "bash_20250124", "name": "bash"}]
    hosted = {"type": "web_search_20250305", "name": "web_search"}
    reply = read(thinking(), call())
    for more, expected in (([], ()), ([hosted], ("hosted_tool",))):
        prepared = CODEC.prepare(request(IMAGE, container="c", tools=[*tools, *more]))
        assert set(CODEC.needs_declaration(prepared)) >= {"container", "image", "predefined_tool"}
        outputs = CODEC.outputs(reply, [AnsweredCall(reply.calls[0], "ok")])
        assert CODEC.needs_declaration(CODEC.next_request(prepared, reply, outputs)) == expected


def test_without_a_usage_everything_is_measured_again() -> None:
    """Nothing is assumed about a round whose usage is not known."""
    prepared = CODEC.prepare(request(text("x" * 500), IMAGE))
    after = CODEC.next_request(prepared, read(thinking(), call(), usage=None), [])
    assert after.prior is None
    assert CODEC.measure(after, "bound").tokens > REQUEST_TOKENS + 500
    assert CODEC.needs_declaration(after) == ("image",)
    known = replace(after, prior=PriorRound(2000, 2, ()))
    assert CODEC.measure(known, "bound").tokens == 2000 + 2 * ITEM_TOKENS
    assert CODEC.needs_declaration(known) == ()


def test_published_counts_are_within_both_measurements() -> None:
    """The scaffolding covers what the provider's own examples of token counting report."""
    location = {"type": "string", "description": "The city and state, e.g. San Francisco, CA"}
    schema = {"type": "object", "properties": {"location": location}, "required": ["location"]}
    tool = {
        "name": "get_weather",
        "description": "Get the current weather in a given location",
        "input_schema": schema,
    }
    asked = "What's the weather like in San Francisco?"
    simple = {"messages": [{"role": "user", "content": "Hello, Claude"}], "system": "You are a scientist"}
    assert 14 <= tokens("estimate", **simple) <= tokens("bound", **simple)
    assert 403 <= tokens("estimate", text(asked), tools=[tool]) <= tokens("bound", text(asked), tools=[tool])
