"""Streams of the Messages API that contradict themselves, make no message, or do not end."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterable
from typing import Any

import pytest

from memoflow.providers._messages_stream import MessagesAssembler
from memoflow.providers.anthropic_messages import AnthropicMessagesCodec
from memoflow.providers.base import UnreadableReply, Usage
from tests.providers._message_bodies import (
    CODEC,
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
    start,
    streamed_call,
    streamed_text,
    text,
    thinking,
)


def feed_all(assembler: MessagesAssembler, events: Iterable[Any]) -> None:
    """Feed a stream."""
    for event in events:
        assembler.feed(event)


ONE = streamed_call(0, '{"n": 1}')
AGAIN = streamed_call(0, "{}", id="toolu_2")
OPEN = ONE[0]


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        ([start(), start(), *ONE, *ending()], "a second message began"),
        ([*ONE, start(), *ONE, *ending()], "its content or usage came before the message began"),
        ([*ending()[:1], start(), *ONE, *ending()], "its content or usage came before the message began"),
        ([start(content=[text()]), *ONE, *ending()], "the message began with content"),
        ([start(), *ONE[:-1], *ending()], "a content block was not finished"),
        (
            [start(), *ONE, *streamed_call(0, "{}", id="toolu_2"), *ending()],
            "a content block began twice or out of order",
        ),
        ([start(), *streamed_call(1, "{}"), *ending()], "a content block began twice or out of order"),
        ([start(), *streamed_call(-1, "{}"), *ending()], "a content block began twice or out of order"),
        ([start(), opened(None, call()), *ending()], "a content block began twice or out of order"),
        ([start(), opened(True, call()), *ending()], "a content block began twice or out of order"),
        ([start(), *ONE, ONE[1], *ending()], "a delta or end belongs to no open content block"),
        ([start(), *ONE, closed(0), *ending()], "a delta or end belongs to no open content block"),
        ([start(), *ONE, closed(1), *ending()], "a delta or end belongs to no open content block"),
        ([start(), *ONE, closed(None), *ending()], "a delta or end belongs to no open content block"),
        ([start(), *ONE, closed([]), *ending()], "a delta or end belongs to no open content block"),
        ([start(), delta(0, "text_delta", text="a"), *ONE, *ending()], "a delta or end belongs to no open "),
        ([start(), *ONE, *ending()[:1], *ending("end_turn")], "it gave two different stop reasons"),
        ([start(), *ending()[:1], *ONE, *ending()], "its content came after its stop reason"),
    ],
)
def test_a_stream_that_contradicts_itself_runs_nothing(events: list[Any], problem: str) -> None:
    """The usage counts, and the contradiction is restored with the record."""
    reply = final(*events)
    assert reply.problem is not None
    assert reply.problem.startswith(problem)
    assert not any(one.complete for one in reply.calls)
    assert reply.usage == Usage(10, 5)


@pytest.mark.parametrize(
    "wrong",
    [
        delta(0, "text_delta", text="a"),
        delta(0, "thinking_delta", thinking="a"),
        delta(0, "signature_delta", signature="a"),
        delta(0, "citations_delta", citation={}),
        delta(0, "input_json_delta", partial_json=None),
        delta(0, "input_json_delta", partial_json={"n": 1}),
        delta(0, "input_json_delta"),
        delta(0, "brand_new_delta", input={"n": 2}),
        delta(0, None),
        delta(0, []),
        {"type": "content_block_delta", "index": 0, "delta": None},
        {"type": "content_block_delta", "index": 0},
    ],
)
def test_a_delta_that_does_not_fit_its_call_runs_nothing(wrong: dict[str, Any]) -> None:
    """What a call is must not be guessed, also where the delta is of a type unknown here."""
    reply = final(start(), OPEN, wrong, *ONE[1:], *ending())
    assert (reply.problem, reply.calls[0].complete) == ("a delta does not fit its content block", False)


@pytest.mark.parametrize(
    ("block", "wrong"),
    [
        (text(""), delta(0, "input_json_delta", partial_json="{}")),
        (text(""), delta(0, "text_delta", text=5)),
        (text(""), delta(0, "citations_delta", citation="a")),
        (text("", citations="a"), delta(0, "citations_delta", citation={})),
        ({"type": "text", "text": 5}, delta(0, "text_delta", text="a")),
        (thinking("", ""), delta(0, "text_delta", text="a")),
        ({"type": "redacted_thinking", "data": ""}, delta(0, "thinking_delta", thinking="a")),
        (search(), delta(0, "text_delta", text="a")),
        ("block", delta(0, "text_delta", text="a")),
        ({"type": 5}, delta(0, "text_delta", text="a")),
    ],
)
def test_a_delta_that_does_not_fit_any_block_is_a_problem(block: Any, wrong: dict[str, Any]) -> None:
    """The blocks that are known take the deltas that are known for them."""
    assert final(start(), opened(0, block), wrong, closed(0), *ending("end_turn")).problem


def test_unknown_blocks_and_deltas_are_kept() -> None:
    """Text continues text, a list a list, anything else takes its place; ids and types stay."""
    compaction = {"type": "compaction", "content": None, "parts": [1]}
    events = [
        start(),
        opened(0, compaction),
        delta(0, "compaction_delta", content="sum", encrypted_content="RQ", parts=[2], id="x", nothing=None),
        delta(0, "compaction_delta", content="mary", parts=None, more={"a": 1}),
        delta(0, "text_delta", text="a"),
        delta(0, "text_delta", text="b"),
        delta(0, "other_delta", text="c"),
        closed(0),
        opened(1, text("")),
        delta(1, "text_delta", text="hello"),
        delta(1, "mood_delta", mood="calm"),
        closed(1),
        opened(2, {"type": "brand_new"}),
        delta(2, "input_json_delta", partial_json='{"a": 1}'),
        closed(2),
        *ending("end_turn"),
    ]
    reply = final(*events)
    assert reply.problem is None
    assert reply.body["content"] == [
        {
            "type": "compaction",
            "content": "summary",
            "encrypted_content": "RQ",
            "parts": [1, 2],
            "more": {"a": 1},
            "text": "abc",
        },
        text("hello", mood="calm"),
        {"type": "brand_new", "input": {"a": 1}},
    ]


def test_a_block_of_no_form_is_kept_and_refused() -> None:
    """The body shows what came."""
    reply = final(start(), opened(0, None), closed(0), *ending("end_turn"))
    assert (reply.body["content"], bool(reply.problem)) == ([None], True)


def test_the_input_of_a_hosted_tool_may_be_malformed() -> None:
    """It has run at the provider, and nothing is run here because of it."""
    block = {**search(), "input": {}}
    wrong = delta(0, "input_json_delta", partial_json="{")
    reply = final(start(), opened(0, block), wrong, closed(0), *ending("end_turn"))
    assert (reply.problem, reply.body["content"]) == (None, [{**block, "partial_json": "{"}])


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([{"type": "message_stop"}], "WRONG_OBJECT"),
        ([{"type": "message_start"}, *ending()], "WRONG_OBJECT"),
        ([{"type": "message_start", "message": "x"}, *ending()], "WRONG_OBJECT"),
        ([start(type="other"), *ending()], "WRONG_OBJECT"),
        ([start(id=None), *ending()], "NO_ID"),
        ([start(), {"type": "message_stop"}], "NOT_TERMINAL"),
        ([start(a="\ud83d")], "NOT_JSON"),
        ([start(a=float("nan"))], "NOT_JSON"),
        ([start(), opened(0, {1: "a"})], "NOT_JSON"),
        ([start(), opened(0, text("")), delta(0, "citations_delta", citation={1: 2})], "NOT_JSON"),
        ([start(), *streamed_text(0, "\ud83d"), *ending()], "NOT_JSON"),
        ([start(), *ending(float("inf"))], "NOT_JSON"),
    ],
)
def test_a_stream_that_makes_no_message_is_unreadable(events: list[Any], reason: str) -> None:
    """Nothing is read from it, and there is no reply afterwards."""
    assembler = CODEC.assembler()
    with pytest.raises(UnreadableReply) as caught:
        feed_all(assembler, events)
    assert (caught.value.reason, assembler.reply()) == (reason, None)


def test_a_body_too_deep_to_be_read_again_is_unreadable() -> None:
    """What was recorded could never be restored."""
    nested: Any = {"type": "brand_new"}
    for _ in range(126):
        nested = {"type": "brand_new", "a": nested}
    with pytest.raises(UnreadableReply, match="NOT_JSON"):
        feed(start(), opened(0, nested), closed(0), *ending("end_turn"))


def test_an_input_as_deep_as_a_body_can_hold_is_restored() -> None:
    """One level more is kept as text, so that the record can be read."""
    for depth, raw in ((125, False), (126, True)):
        given = '{"a":' * (depth - 1) + "{}" + "}" * (depth - 1)
        reply = final(start(), *streamed_call(0, given), *ending())
        assert ("partial_json" in reply.body["content"][0]) is raw
        assert reply.calls[0].arguments == given


@pytest.mark.parametrize(
    "events",
    [
        [opened(0, text("")), *[delta(0, "text_delta", text="x" * 100)] * 20],
        [opened(0, text("")), *[delta(0, "citations_delta", citation={"cited_text": "x" * 100})] * 20],
        [opened(0, text("")), *[delta(0, "brand_new", list=["x" * 100])] * 20],
        [opened(0, call()), *[delta(0, "input_json_delta", partial_json=" " * 100)] * 20],
        [opened(index, text("x" * 100)) for index in range(20)],
        [opened(0, text("x" * 5000))],
        [{"type": "message_delta", "delta": {str(n): "x" * 100}} for n in range(20)],
        [opened(0, {"type": "new"}), *(delta(0, "brand_new", **{f"{n}{'x' * 100}": 1}) for n in range(20))],
    ],
)
def test_a_message_has_a_largest_size(events: list[Any]) -> None:
    """A stream without end is not kept whole, however it is cut."""
    assembler = AnthropicMessagesCodec(max_reply_bytes=1500).assembler()
    assembler.feed(start())
    with pytest.raises(UnreadableReply, match="TOO_LARGE"):
        feed_all(assembler, events)
    with pytest.raises(UnreadableReply, match="TOO_LARGE"):
        assembler.feed(opened(100, text()))


def test_a_message_that_is_recorded_can_be_restored() -> None:
    """The largest size is that of the record, escapes included."""
    limit = len(encode(message())) + 50
    assembler = AnthropicMessagesCodec(max_reply_bytes=limit).assembler()
    with pytest.raises(UnreadableReply, match="TOO_LARGE"):
        feed_all(assembler, [start(), *streamed_text(0, "\n" * 70), *ending("end_turn")])


def test_memory_is_that_of_the_text() -> None:
    """Many small deltas cost what their text costs."""
    assembler = MessagesAssembler()
    assembler.feed(start())
    assembler.feed(opened(0, text("")))
    one = delta(0, "text_delta", text="x")
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(100_000):
            assembler.feed(one)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1_000_000
