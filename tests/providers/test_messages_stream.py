"""Streams of the Messages API."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from anthropic.types import RawContentBlockDelta, RawMessageStreamEvent

from memoflow.providers import _messages_growing, _messages_stream
from memoflow.providers.base import UnreadableReply, Usage
from tests.providers._message_bodies import (
    CODEC,
    by_the_sdk,
    call,
    closed,
    delta,
    encode,
    ending,
    feed,
    final,
    message,
    opened,
    search,
    search_result,
    start,
    streamed_call,
    streamed_text,
    text,
    thinking,
    usage,
)

CITATION = {"type": "char_location", "cited_text": "a", "document_index": 0}


def test_a_stream_is_read_like_a_whole_reply() -> None:
    """The body that is put together is the one the API would have answered."""
    content = [
        thinking("let me", "c2ln"),
        text("caf\u00e9", citations=[CITATION, CITATION]),
        {"type": "redacted_thinking", "data": "RQ=="},
        search(),
        search_result(),
        call("toolu_1", given={"a": [1, 0.1], "b": {}}),
        call("toolu_2", given={}),
    ]
    events = [
        start(),
        {"type": "ping"},
        opened(0, {"type": "thinking", "thinking": "", "signature": ""}),
        delta(0, "thinking_delta", thinking="let "),
        delta(0, "thinking_delta", thinking="me"),
        delta(0, "signature_delta", signature="c2ln"),
        closed(0),
        opened(1, text("", citations=None)),
        delta(1, "text_delta", text="caf"),
        delta(1, "citations_delta", citation=CITATION),
        delta(1, "text_delta", text="\u00e9"),
        delta(1, "citations_delta", citation=CITATION),
        closed(1),
        opened(2, content[2]),
        closed(2),
        opened(3, {**search(), "input": {}}),
        delta(3, "input_json_delta", partial_json='{"query": '),
        {"type": "ping"},
        delta(3, "input_json_delta", partial_json='"q"}'),
        closed(3),
        opened(4, content[4]),
        closed(4),
        *streamed_call(5, "", '{"a": [1, 0', '.1], "b"', ": {}}"),
        *streamed_call(6, "", id="toolu_2"),
        *ending(),
    ]
    assert final(*events) == CODEC.read(encode(message(*content)))


@pytest.mark.parametrize("count", range(7))
def test_without_the_last_event_there_is_no_reply(count: int) -> None:
    """What was streamed before a cut is never success, and its calls are nowhere to be run."""
    events = [start(), *streamed_call(0, '{"a": 1}', ""), *ending()][:count]
    assembler = feed(*events)
    assert (assembler.reply(), assembler.failed) == (None, False)
    assert assembler.response_id == ("msg_1" if events else None)


@pytest.mark.parametrize(
    ("pieces", "arguments"),
    [
        ([], "{}"),
        ([""], "{}"),
        ([" ", "\n\t"], "{}"),
        (["{}"], "{}"),
        (['{"n": 12345678901234567890123}'], '{"n":12345678901234567890123}'),
        (['{"x": 1e2, "y": 0.1}'], '{"x":100.0,"y":0.1}'),
        (['{"s": "caf', "\\u00e9", '"}'], '{"s":"caf\u00e9"}'),
    ],
)
def test_the_input_of_a_call_is_its_pieces(pieces: list[str], arguments: str) -> None:
    """Blank text is an empty object, as for calls without parameters; numbers are exact."""
    reply = final(start(), *streamed_call(0, *pieces), *ending())
    (one,) = reply.calls
    assert (one.arguments, one.complete, reply.problem) == (arguments, True, None)
    assert "partial_json" not in reply.body["content"][0]


@pytest.mark.parametrize(
    "raw",
    [
        '{"to": "acct-1", "amount": 10',
        '{"q": oops"}',
        "null",
        "[1]",
        '"{\\"a\\":1}"',
        '{"a": 1, "a": 2}',
        '{"a": NaN}',
        '{"a": 1e400}',
        '{"a": "\\ud83d"}',
        '{"a": 1} x',
        "\ufeff{}",
        "[" * 5000 + "]" * 5000,
        '{"a":' * 130 + "1" + "}" * 130,
    ],
)
def test_text_that_is_no_object_is_kept_and_never_repaired(raw: str) -> None:
    """The call reaches the tool layer as it was written, which refuses it, live and restored."""
    reply = final(start(), *streamed_call(0, raw[:3], raw[3:]), *ending())
    (one,) = reply.calls
    assert (one.arguments, reply.problem) == (raw, None)
    assert reply.body["content"] == [call(given={}, partial_json=raw)]


def test_a_call_that_was_cut_is_not_complete() -> None:
    """The SDK closes the object and would show a smaller amount; here the call never runs."""
    cut = streamed_call(0, '{"to": "acct-1", "amount": 10')
    reply = final(start(), *cut, *ending("max_tokens"))
    assert (reply.status, reply.finish_reason) == ("incomplete", "length")
    assert (reply.calls[0].complete, reply.calls[0].arguments) == (False, '{"to": "acct-1", "amount": 10')
    repaired = by_the_sdk([start(), *cut, *ending("max_tokens")]).content[0].input
    assert repaired == {"to": "acct-1", "amount": 10}


@pytest.mark.parametrize("given", [None, "", {}])
def test_a_call_may_start_without_input(given: Any) -> None:
    """Servers differ in how they say that it comes later."""
    block = {**call(), "input": given}
    assert final(start(), opened(0, block), closed(0), *ending()).calls[0].arguments == "{}"
    pieces = delta(0, "input_json_delta", partial_json='{"n":2}')
    assert final(start(), opened(0, block), pieces, closed(0), *ending()).calls[0].arguments == '{"n":2}'


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ("", False),
        ('{"n": 1}', False),
        ('{"n": 2}', True),
        ("{}", True),
    ],
)
def test_a_call_may_start_with_its_whole_input(raw: str, problem: bool) -> None:
    """Some servers send it so, but two different inputs are a contradiction."""
    pieces = delta(0, "input_json_delta", partial_json=raw)
    reply = final(start(), opened(0, call()), pieces, closed(0), *ending())
    assert (reply.problem is not None, reply.calls[0].complete) == (problem, not problem)
    assert reply.calls[0].arguments == '{"n":1}'


def test_usage_is_the_latest_of_each_figure() -> None:
    """Figures are cumulative; adding them would bill a server tool's rounds twice."""
    first = start(usage=usage(10, 1, cache_read_input_tokens=100, server_tool_use=None))
    between = {"type": "message_delta", "delta": {"stop_reason": None}, "usage": {"output_tokens": 3}}
    last = {"input_tokens": 40, "cache_read_input_tokens": 200, "cache_creation_input_tokens": None}
    reply = final(first, between, *streamed_text(0, "hi"), *ending("end_turn", 7, **last))
    assert reply.usage == Usage(240, 7, 200, 0)
    assert reply.body["usage"]["service_tier"] == "standard"


@pytest.mark.parametrize("late", [None, {}, {"output_tokens": None}, {"input_tokens": 10}, [], "x"])
def test_the_placeholder_of_the_start_is_no_usage(late: Any) -> None:
    """Without a later figure the output is unknown, and unknown is not one token."""
    change, stop = ending("end_turn")
    assert final(start(), {**change, "usage": late}, stop).usage is None
    no_usage = {key: value for key, value in change.items() if key != "usage"}
    assert final(start(), no_usage, stop).usage is None


@pytest.mark.parametrize("more", [streamed_text(0, "x" * 100), [opened(0, text()), closed(0)]])
def test_a_figure_that_came_before_content_is_no_usage(more: list[Any]) -> None:
    """It was counted too early, and to settle it would be to charge too little."""
    early = {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 3}}
    change, stop = ending("end_turn")
    bare = {key: value for key, value in change.items() if key != "usage"}
    assert final(start(), early, *more, bare, stop).usage is None
    assert final(start(), early, *more, *ending("end_turn", 9)).usage == Usage(10, 9)
    assert final(start(), *more, early, bare, stop).usage == Usage(10, 3)


@pytest.mark.parametrize("given", [None, [], "x", {"input_tokens": True}])
def test_a_usage_that_cannot_be_right_is_none(given: Any) -> None:
    """The message is complete all the same."""
    reply = final(start(usage=given), *ending("end_turn"))
    assert (reply.status, reply.usage) == ("completed", None)


def test_a_late_usage_may_stand_alone() -> None:
    """Some servers send all figures at the end."""
    assert final(start(usage=None), *ending("end_turn", 5, input_tokens=10)).usage == Usage(10, 5)


def test_what_the_end_says_about_the_message_is_in_it() -> None:
    """Stop details, container and fields unknown here; what is fixed at the start stays."""
    late = {
        "stop_reason": "stop_sequence",
        "stop_sequence": "END",
        "container": {"id": "container_1"},
        "brand_new": 1,
        "id": "msg_2",
        "content": [call()],
        "memoflow_problem": None,
    }
    event = {
        "type": "message_delta",
        "delta": late,
        "usage": {"output_tokens": 5},
        "context_management": {"applied_edits": []},
        "nothing": None,
        "model": "other",
        "stop_reason": "tool_use",
    }
    reply = final(start(container=None, kept=1), event, {"type": "message_stop"})
    assert reply.body == message(
        stop_reason="stop_sequence",
        stop_sequence="END",
        container={"id": "container_1"},
        kept=1,
        brand_new=1,
        context_management={"applied_edits": []},
        nothing=None,
    )


@pytest.mark.parametrize(
    ("to", "model"),
    [({"model": "other"}, "other"), ({"model": 5}, "claude-sonnet-4-5"), (None, "claude-sonnet-4-5")],
)
def test_a_model_that_took_over_is_the_model_of_the_reply(to: Any, model: str) -> None:
    """It is what the reply is priced by."""
    block = {"type": "fallback", "from": {"model": "claude-sonnet-4-5"}, "to": to}
    reply = final(start(), opened(0, block), closed(0), *ending("end_turn"))
    assert (reply.model, reply.body["content"]) == (model, [block])


def test_the_reason_to_stop_comes_at_the_end() -> None:
    """One in the first event does not end the message."""
    with pytest.raises(UnreadableReply, match="NOT_TERMINAL"):
        feed(start(stop_reason="end_turn"), {"type": "message_stop"})
    null = {"type": "message_delta", "delta": {"stop_reason": None}, "usage": {"output_tokens": 1}}
    with pytest.raises(UnreadableReply, match="NOT_TERMINAL"):
        feed(start(), null, {"type": "message_stop"})


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}, "overloaded_error"),
        ({"type": "error", "error": {"code": "a", "type": "b"}, "request_id": "r"}, "a"),
        ({"error": {"type": "api_error"}}, "api_error"),
        ({"type": "error", "error": "words of a prompt"}, None),
        ({"type": "error"}, None),
    ],
)
def test_an_error_event_fails_the_stream(event: dict[str, Any], code: str | None) -> None:
    """There is no reply after it, and only a structured code is kept."""
    assembler = feed(start(), event)
    assert (assembler.failed, assembler.error_code, assembler.reply()) == (True, code, None)


def test_after_the_end_nothing_counts() -> None:
    """A stream is settled once."""
    assembler = feed(start(), *ending("end_turn"))
    reply = assembler.reply()
    for event in ({"type": "error"}, start(id="msg_2"), *streamed_call(0, "{}"), *ending()):
        assembler.feed(event)
    assert (assembler.reply(), assembler.failed) == (reply, False)


def test_the_reply_is_a_copy() -> None:
    """Event objects that are used again elsewhere do not change the reply."""
    first, block, citation = start(), text("", extra=["a"]), {"cited_text": "a"}
    assembler = feed(first, opened(0, block), delta(0, "citations_delta", citation=citation))
    first["message"]["usage"]["input_tokens"] = 99
    block["extra"].clear()
    citation["cited_text"] = "b"
    for event in (closed(0), *ending("end_turn")):
        assembler.feed(event)
    reply = assembler.reply()
    assert reply.body["content"] == [text("", extra=["a"], citations=[{"cited_text": "a"}])]
    assert reply.usage == Usage(10, 5)


def test_the_events_that_matter_are_the_sdk_s() -> None:
    """Names that decide something are names of the installed SDK."""

    def names(union: Any) -> set[str]:
        types = get_args(get_args(union)[0])
        return {name for one in types for name in get_args(one.model_fields["type"].annotation)}

    events = {"message_start", "message_delta", "message_stop", *_messages_stream._CONTENT}
    assert names(RawMessageStreamEvent) == events
    assert names(RawContentBlockDelta) == set(_messages_growing._DELTAS)


@pytest.mark.parametrize("event", [None, [], "text", {}, {"type": None}, {"type": 5}, {"type": "brand.new"}])
def test_events_nobody_knows_are_skipped(event: Any) -> None:
    """They neither fail the stream nor end it."""
    events = [start(), *streamed_call(0, "{}"), *ending()]
    for place in range(len(events)):
        reply = final(*events[:place], event, *events[place:])
        assert (reply.status, reply.problem, reply.calls[0].complete) == ("completed", None, True)


def test_only_pings_need_not_be_decoded() -> None:
    """No event repeats what another one brought."""
    skipped = CODEC.assembler().skipped
    assert [name for name in ("ping", *sorted(_messages_stream._CONTENT)) if name.endswith(skipped)] == [
        "ping"
    ]
    assert not any(f"message_{name}".endswith(skipped) for name in ("start", "delta", "stop"))
