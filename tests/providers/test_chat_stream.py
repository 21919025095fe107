"""Streams of chat completions."""

from __future__ import annotations

import copy
import gc
import tracemalloc
from typing import Any

import pytest

from memoflow.providers.base import UnreadableReply, Usage
from memoflow.providers.openai_chat import OpenAIChatCodec
from memoflow.providers.sse import MAX_JSON_DEPTH, SSEDecoder, event_json
from tests.providers._chat_bodies import (
    CODEC,
    END,
    STOP,
    assembled,
    begun,
    calling,
    choice,
    chunk,
    completion,
    counted,
    custom_call,
    delta,
    encode,
    feed,
    final,
    fragment,
    function_call,
    message,
    more_of,
    stream_bytes,
    usage,
)

FRAME = {"service_tier": "default", "system_fingerprint": "fp_1"}


def test_a_streamed_answer_is_read_like_a_whole_one() -> None:
    """The body is the one a whole reply would have had; streaming or not makes no difference."""
    reply = final(
        delta({"role": "assistant", "content": "", "refusal": None}, logprobs=None) | FRAME,
        delta({"content": "hel"}, logprobs=None) | FRAME | {"obfuscation": "abc"},
        delta({"content": "lo"}, logprobs=None) | FRAME | {"usage": None},
        delta({}, "stop", logprobs=None) | FRAME,
        counted() | FRAME,
    )
    assert reply == CODEC.read(encode(completion()))


def test_streamed_calls_are_read_like_whole_ones() -> None:
    """Fragments of several calls, one after the other or in between each other."""
    reply = final(
        delta({"role": "assistant", "content": None, "refusal": None}, logprobs=None) | FRAME,
        begun(0, "call_1", "inc"),
        more_of('{"n"'),
        begun(1, "call_2", "dec", "{"),
        more_of(": 1}", 0),
        more_of("}", 1),
        fragment(2, id="call_9", type="custom", custom={"name": "patch", "input": "*** "}),
        fragment(2, custom={"input": "begin"}),
        END,
        counted(),
    )
    whole = calling(function_call(), function_call("call_2", "dec", "{}"), custom_call())
    assert reply == CODEC.read(encode(completion(whole)))
    assert [call.complete for call in reply.calls] == [True, True, True]


@pytest.mark.parametrize(
    "events",
    [
        (),
        (delta({"role": "assistant"}),),
        (delta({"content": "hello"}), counted()),
        (begun(), more_of('{"n": 1}')),
        (delta({"content": "hello"}), delta({}, "")),
        (delta({}, None), chunk()),
        (counted(),),
    ],
)
def test_without_an_end_there_is_no_reply(events: tuple[Any, ...]) -> None:
    """What was streamed before a cut is never success, and its calls are nowhere to be run."""
    assembler = feed(*events)
    assert assembler.reply() is None
    assert assembler.response_id == ("chatcmpl-1" if events else None)
    assert not assembler.failed


def test_a_reply_without_a_usage_has_none() -> None:
    """It ended before the chunk that brings the usage: complete, but not settled at zero."""
    reply = final(delta({"content": "hello"}), STOP)
    assert (reply.status, reply.usage) == ("completed", None)


@pytest.mark.parametrize(
    "events",
    [
        (STOP, counted()),
        (STOP | {"usage": usage()},),
        (STOP | {"usage": None}, counted()),
        (STOP | {"usage": usage(1, 1)}, counted()),
        (STOP | {"usage": usage()}, chunk()),
        (delta({"content": "x"}) | {"usage": usage(10, 1)}, STOP | {"usage": usage()}),
        (delta({"content": "x"}) | {"usage": usage(10, 1)}, STOP, STOP | {"usage": usage()}),
    ],
)
def test_the_latest_usage_counts(events: tuple[Any, ...]) -> None:
    """On a chunk of its own, with the end, or counting up in every chunk: never added."""
    assert final(*events).usage == Usage(10, 5)


def test_a_usage_from_before_the_end_is_not_the_usage() -> None:
    """More may have been generated after it was counted."""
    assert final(delta({"content": "x"}) | {"usage": usage()}, STOP).usage is None
    two = (delta(end="stop") | {"usage": usage()}, delta({}, "stop", 1))
    assert final(*two).usage is None


def test_a_later_usage_that_cannot_be_right_is_not_replaced_by_an_earlier_one() -> None:
    """The latest counts, also when it is worth nothing."""
    assert final(STOP, counted(), counted({"prompt_tokens": -1})).usage is None
    assert final(STOP, counted(), chunk(usage=[])).usage is None


def test_the_id_is_known_from_the_first_chunk() -> None:
    """A blank one, as in the filter results of some servers, is none."""
    assert feed(chunk(id="", prompt_filter_results=[])).response_id is None
    assert feed(chunk(id=""), delta({})).response_id == "chatcmpl-1"
    assert final(chunk(id="", model="", object=""), delta({"content": "x"}), STOP).model == "gpt-5"


def test_a_stream_needs_no_id() -> None:
    """Nothing is fetched by it."""
    reply = final(delta({"content": "x"}) | {"id": ""}, STOP | {"id": ""})
    assert (reply.response_id, reply.problem) == (None, None)


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"error": {"code": "server_error", "message": "m"}}, "server_error"),
        ({"error": {"type": "overloaded_error", "code": 502}}, "overloaded_error"),
        ({"error": "words"}, None),
        ({"type": "error", "code": "bad_gateway"}, "bad_gateway"),
        ({"type": "error"}, None),
        (delta({"content": ""}, "error") | {"error": {"code": "rate_limit"}}, "rate_limit"),
    ],
)
def test_an_error_fails_the_stream(event: dict[str, Any], code: str | None) -> None:
    """There is no reply after it, and only a structured code is kept."""
    assembler = feed(delta({"content": "x"}), event, STOP, counted())
    assert (assembler.failed, assembler.error_code, assembler.reply()) == (True, code, None)


def test_an_error_after_the_end_changes_nothing() -> None:
    """The reply is there; only its usage may be missing."""
    assembler = feed(STOP, {"error": {"code": "server_error"}})
    reply = assembler.reply()
    assert reply is not None
    assert (assembler.failed, reply.usage) == (False, None)


@pytest.mark.parametrize(
    "event", [None, [], "text", {}, {"type": "ping"}, {"choices": None}, {"object": "chat.completion.chunk"}]
)
def test_events_that_are_no_chunks_are_skipped(event: Any) -> None:
    """They neither fail the stream nor end it."""
    assert final(delta({"content": "x"}), event, STOP, event, counted()).usage == Usage(10, 5)


def test_several_choices_end_one_by_one() -> None:
    """There is a reply when all have; which was asked for decides, where it is known."""
    first, second = delta({"content": "a"}, "stop"), delta({"content": "b"}, "stop", 1)
    assert feed(first, choices=2).reply() is None
    assert feed(first, delta({"content": "b"}, None, 1)).reply() is None
    assert feed(second).reply() is None
    for events in ((first, second), (second, first)):
        reply = final(*events, counted(), choices=2)
        assert [one["message"]["content"] for one in reply.body["choices"]] == ["a", "b"]
        assert reply.usage == Usage(10, 5)
    assert final(delta({}, "stop"), delta({}, "length", 1)).finish_reason == "length"


def test_a_choice_without_an_index_is_the_only_one() -> None:
    """Where a chunk has one choice, there is nothing to confuse it with."""
    reply = final(chunk({"delta": {"content": "x"}}), chunk({"delta": {}, "finish_reason": "stop"}))
    assert reply.body["choices"][0]["message"]["content"] == "x"


def test_fields_that_servers_add_are_kept() -> None:
    """Reasoning and signatures are needed again in the next round; filter results are repeated whole."""
    filtered = {"hate": {"filtered": False, "severity": "safe"}}
    signed = {"google": {"thought_signature": "s"}}
    reply = final(
        delta({"role": "assistant", "reasoning_content": "I "}, content_filter_results=filtered),
        delta({"role": "assistant", "reasoning_content": "think"}, content_filter_results=filtered),
        delta({"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "a", "format": "f"}]}),
        delta({"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "b", "format": "f"}]}),
        delta({"reasoning_details": [{"type": "reasoning.encrypted", "index": 1, "data": "d", "id": None}]}),
        fragment(0, id="c", type="function", function={"name": "f", "arguments": ""}, extra_content=signed),
        END | {"x_groq": {"id": "req"}},
    )
    said = reply.body["choices"][0]["message"]
    assert said["role"] == "assistant"
    assert said["reasoning_content"] == "I think"
    assert said["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "ab", "format": "f"},
        {"type": "reasoning.encrypted", "index": 1, "data": "d", "id": None},
    ]
    assert said["tool_calls"][0]["extra_content"] == signed
    assert reply.body["choices"][0]["content_filter_results"] == filtered
    assert reply.body["x_groq"] == {"id": "req"}


def test_log_probabilities_are_kept() -> None:
    """Those of a chunk follow those of the one before."""
    entries = [{"token": t, "logprob": -0.5, "bytes": [65], "top_logprobs": []} for t in "abc"]
    reply = final(
        delta({"content": "a"}, logprobs={"content": entries[:1], "refusal": None}),
        delta({"content": "bc"}, logprobs={"content": entries[1:], "refusal": None}),
        STOP,
    )
    assert reply.body["choices"][0]["logprobs"] == {"content": entries, "refusal": None}


def test_audio_is_kept() -> None:
    """Its id comes once, its data in pieces, and its expiry after the end."""
    reply = final(
        delta({"audio": {"id": "audio_1", "transcript": "hel"}}),
        delta({"audio": {"id": "audio_1", "data": "QUJD"}}),
        delta({"audio": {"transcript": "lo", "data": "REVG"}}),
        STOP,
        delta({"audio": {"expires_at": 1790000001}}),
    )
    assert reply.problem is None
    assert reply.body["choices"][0]["message"]["audio"] == {
        "id": "audio_1",
        "transcript": "hello",
        "data": "QUJDREVG",
        "expires_at": 1790000001,
    }


def test_content_in_parts_is_kept() -> None:
    """Some servers stream the parts of a content, and go on with bare text."""
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    text = {"type": "text", "text": "so"}
    for events, expected in (
        ((delta({"content": [thought]}), delta({"content": "so"})), [thought, text]),
        ((delta({"content": "so"}), delta({"content": [thought]})), [text, thought]),
        ((delta({"content": ""}), delta({"content": [thought]})), [thought]),
    ):
        assert final(*events, STOP).body["choices"][0]["message"]["content"] == expected


def test_a_message_beside_the_delta_is_not_read_twice() -> None:
    """Some servers repeat the message so far in every chunk."""
    part = {"index": 0, "delta": {"content": "hello"}, "message": message(), "finish_reason": None}
    assert final(chunk(part), STOP).body["choices"][0]["message"]["content"] == "hello"


@pytest.mark.parametrize("bad", ["\ud83d", float("nan"), {("a",): 1}, object()])
def test_a_chunk_that_is_no_json_is_unreadable(bad: Any) -> None:
    """Nothing is read after it, and there is no reply."""
    assembler = feed(delta({"content": "x"}))
    with pytest.raises(UnreadableReply, match="NOT_JSON"):
        assembler.feed(delta({"content": bad}))
    assembler.feed(STOP)
    assert assembler.reply() is None
    assert assembler.response_id == "chatcmpl-1"


def test_a_stream_is_bounded() -> None:
    """What a whole reply may not be, a stream may not become; nor may what is read again from its record."""
    text = delta({"content": "x" * 600}, "stop")
    keys, more = chunk(**{"x" * 600: 1}), chunk(**{"y" * 600: 1})
    for first, second in (
        (text, text),
        (text, chunk(other="x" * 600)),
        (chunk(a="x" * 600), text),
        (keys, more),
    ):
        assembler = OpenAIChatCodec(max_reply_bytes=1000).assembler()
        assembler.feed(first)
        with pytest.raises(UnreadableReply, match="TOO_LARGE"):
            assembler.feed(second)
        assert assembler.reply() is None


@pytest.mark.parametrize("said", [{}, {"content": ""}, {"content": None}, {"content": "", "deep": {}}])
def test_a_stream_of_nothing_is_bounded(said: dict[str, Any]) -> None:
    """Chunks that say nothing still take some room each."""
    assembler = OpenAIChatCodec(max_reply_bytes=1000).assembler()
    with pytest.raises(UnreadableReply, match="TOO_LARGE"):
        list(map(assembler.feed, [delta(said)] * 1000))


@pytest.mark.parametrize("field", ["finish_reason", "other"])
def test_every_text_of_a_choice_is_counted_and_checked(field: str) -> None:
    """Also those beside the delta."""
    assembler = OpenAIChatCodec(max_reply_bytes=1000).assembler()
    with pytest.raises(UnreadableReply, match="TOO_LARGE"):
        assembler.feed(chunk({"index": 0, "delta": {}, field: "x" * 1000}))
    with pytest.raises(UnreadableReply, match="NOT_JSON"):
        feed(chunk({"index": 0, "delta": {}, field: "\ud83d"}))


def nested(levels: int) -> dict[str, Any]:
    """Objects within each other."""
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


def test_what_could_not_be_read_again_from_its_record_is_no_reply() -> None:
    """A record is held to the limits of a whole reply."""
    assembler = OpenAIChatCodec(max_reply_bytes=1000).assembler()
    assembler.feed(delta({"content": "\u00e9" * 200}, "stop"))
    assert assembler.reply() is None
    assert feed(delta({"content": "x", "deep": nested(MAX_JSON_DEPTH)}, "stop")).reply() is None
    with pytest.raises(UnreadableReply, match="NOT_JSON"):
        feed(delta({"deep": nested(900)}))


def test_an_event_is_left_as_it_was() -> None:
    """Whoever gave it may go on using it."""
    for said in ({"content": "a"}, {"tool_calls": [{"index": 0, "id": "call_1"}]}):
        event = delta(said)
        before = copy.deepcopy(event)
        feed(event, event)
        assert event == before


def test_the_reply_is_a_copy() -> None:
    """An event object that is used again elsewhere does not change the reply."""
    event = delta({"reasoning_details": [{"text": "kept"}]}, "stop")
    assembler = feed(event)
    event["choices"][0]["delta"]["reasoning_details"][0]["text"] = "changed"
    reply = assembler.reply()
    assert reply is not None
    assert reply.body["choices"][0]["message"]["reasoning_details"] == [{"text": "kept"}]


def test_memory_grows_with_the_text_and_not_with_the_chunks() -> None:
    """Frames of chunks are forgotten."""
    decoder, assembler = SSEDecoder(), CODEC.assembler()
    line = b"data: " + encode(delta({"content": "xy"}, logprobs=None) | {"padding": "p" * 500}) + b"\n\n"
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(2000):
            for sse in decoder.feed(line):
                assembler.feed(event_json(sse) or {})
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 300_000


def test_bytes_after_the_end_mark_are_not_needed() -> None:
    """The mark itself is no JSON and is skipped."""
    events = [delta({"content": "hello"}), STOP, counted()]
    reply = assembled([stream_bytes(events)]).reply()
    assert reply == final(*events)
    assert reply is not None
    assert reply.body["choices"] == [
        {k: v for k, v in choice({"role": "assistant", "content": "hello"}).items() if k != "logprobs"}
    ]
