"""Streams of the Responses API."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import ResponseStreamEvent

from memoflow.providers import _responses_stream
from memoflow.providers._reading import STREAM_PROBLEM
from memoflow.providers._responses_stream import ResponsesAssembler
from memoflow.providers.base import Reply, UnreadableReply, Usage
from memoflow.providers.sse import SSEDecoder, event_json
from tests.providers._bodies import (
    CODEC,
    JSON_VALUES,
    custom_call,
    encode,
    function_call,
    message,
    reasoning,
    response,
)
from tests.providers.test_responses_damage import check_runnable, damaged


def created(**more: Any) -> dict[str, Any]:
    """The first event of a stream."""
    return {"type": "response.created", "response": response(status="in_progress", usage=None, **more)}


def done(item: Any, index: Any = 0) -> dict[str, Any]:
    """An item is finished."""
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def end(*output: Any, kind: str = "completed", **more: Any) -> dict[str, Any]:
    """The terminal event."""
    return {"type": f"response.{kind}", "response": response(*output, **{"status": kind, **more})}


def feed(*events: Any) -> ResponsesAssembler:
    """Assemble a stream."""
    assembler = CODEC.assembler()
    for event in events:
        assembler.feed(event)
    return assembler


def final(*events: Any) -> Reply:
    """The reply of a stream that has one."""
    reply = feed(*events).reply()
    assert reply is not None
    return reply


def test_a_stream_is_read_like_a_whole_reply() -> None:
    """The terminal snapshot is the reply; streaming or not makes no difference."""
    output = [reasoning(), function_call("call_1"), custom_call("call_2"), message()]
    events = [created(), *(done(item, index) for index, item in enumerate(output)), end(*output)]
    assert final(*events) == CODEC.read(encode(response(*output)))


@pytest.mark.parametrize(
    "events",
    [
        (),
        (created(),),
        (created(), done(function_call())),
        (created(), done(function_call()), {"type": "response.output_text.done", "text": "x"}),
    ],
)
def test_without_a_terminal_event_there_is_no_reply(events: tuple[Any, ...]) -> None:
    """What was streamed before a cut is never success, and its calls are nowhere to be run."""
    assembler = feed(*events)
    assert assembler.reply() is None
    assert assembler.response_id == ("resp_1" if events else None)
    assert not assembler.failed


@pytest.mark.parametrize("kind", ["created", "queued", "in_progress"])
def test_the_id_is_known_from_the_first_event(kind: str) -> None:
    """It is what a later reconciliation needs."""
    assert feed({**created(), "type": f"response.{kind}"}).response_id == "resp_1"


def test_the_first_id_stays() -> None:
    """Later events do not change it; where none came first, the terminal event names it."""
    second = {**created(id="resp_2"), "type": "response.in_progress"}
    assert feed(created(), second, end()).response_id == "resp_1"
    assert feed(end()).response_id == "resp_1"


@pytest.mark.parametrize(
    ("kind", "more", "reason"),
    [
        ("completed", {}, "stop"),
        ("incomplete", {"incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ("failed", {"error": {"code": "server_error", "message": "m"}}, "failed"),
        ("failed", {"status": "cancelled"}, "cancelled"),
        ("cancelled", {}, "cancelled"),
    ],
)
def test_every_terminal_event_carries_its_usage(kind: str, more: dict[str, Any], reason: str) -> None:
    """Incomplete and failed are ends like completed: nothing is lost with an exception."""
    reply = final(created(), end(message(), kind=kind, **more))
    assert (reply.finish_reason, reply.usage, reply.problem) == (reason, Usage(10, 5), None)
    assert reply.error_code == ("server_error" if "error" in more else None)


def test_only_the_first_terminal_event_counts() -> None:
    """A stream is settled once."""
    first = end(message("first"))
    assembler = feed(created(), first, end(function_call(), id="resp_2"), {"type": "error", "code": "late"})
    reply = assembler.reply()
    assert reply is not None
    assert reply.body == first["response"]
    assert not assembler.failed


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"type": "error", "code": "server_error", "message": "m", "sequence_number": 3}, "server_error"),
        ({"type": "error", "error": {"type": "overloaded_error"}}, "overloaded_error"),
        ({"error": {"code": "bad_gateway"}}, "bad_gateway"),
        ({"type": "error", "code": None}, None),
        ({"type": "error", "code": "words of a prompt"}, None),
    ],
)
def test_an_error_event_fails_the_stream(event: dict[str, Any], code: str | None) -> None:
    """There is no reply after it, and only a structured code is kept."""
    assembler = feed(created(), event)
    assert (assembler.failed, assembler.error_code, assembler.reply()) == (True, code, None)


CALL = function_call("call_1")


@pytest.mark.parametrize(
    ("streamed", "snapshot"),
    [
        ([CALL], []),
        ([message()], []),
        ([CALL], [message()]),
        ([message()], [message(), CALL]),
        ([CALL], [function_call("call_1", arguments='{"n": 2}')]),
        ([CALL], [function_call("call_1", name="other")]),
        ([CALL], [function_call("call_2")]),
        ([CALL], [function_call("call_1", namespace="crm")]),
        ([function_call("call_1", status="incomplete")], [CALL]),
        ([CALL, function_call("call_2")], [function_call("call_2"), CALL]),
        ([CALL, function_call("call_2")], [CALL]),
        ([custom_call(text="a")], [custom_call(text="b")]),
        ([custom_call("call_1", name="inc", text='{"n": 1}')], [CALL]),
        (["no item"], [CALL]),
        ([function_call("call_1", arguments="\ud83d")], [CALL]),
    ],
)
def test_a_snapshot_that_is_not_what_was_streamed_runs_nothing(
    streamed: list[Any], snapshot: list[Any]
) -> None:
    """Neither version of a call is trusted; the usage still counts."""
    reply = final(created(), *(done(item, index) for index, item in enumerate(streamed)), end(*snapshot))
    assert reply.problem
    assert not any(call.complete for call in reply.calls)
    assert reply.usage == Usage(10, 5)


@pytest.mark.parametrize(
    ("streamed", "snapshot"),
    [
        ([], [CALL]),
        ([(CALL, 0)], [{**CALL, "id": "other", "status": None, "brand_new": 1}]),
        ([(message("a"), 0)], [message("b")]),
        ([(function_call("call_2"), 1), (CALL, 0)], [CALL, function_call("call_2")]),
        ([(CALL, 0), (CALL, 0)], [CALL]),
        ([(CALL, None), (function_call("call_2"), "x")], [CALL, function_call("call_2")]),
        ([(function_call("call_1", namespace=None), 0)], [function_call("call_1", namespace="")]),
    ],
)
def test_what_does_not_matter_to_a_call_is_no_disagreement(
    streamed: list[tuple[Any, Any]], snapshot: list[Any]
) -> None:
    """Items by position, not by arrival; other fields may differ; a server may stream no items at all."""
    reply = final(created(), *(done(item, index) for item, index in streamed), end(*snapshot))
    assert reply.problem is None
    assert all(call.complete for call in reply.calls)


def test_an_item_that_was_streamed_twice_differently_disagrees() -> None:
    """The last version is compared, and an earlier different one is not forgotten."""
    other = function_call("call_1", arguments='{"n": 2}')
    assert final(created(), done(CALL), done(other), end(CALL)).problem
    assert final(created(), done(other), done(CALL), end(CALL)).problem


def test_a_reply_that_was_cut_short_may_hold_an_unfinished_call() -> None:
    """The call that hit the limit was never finished in the stream; one that was must be there."""
    cut = function_call("call_2", status="incomplete", arguments='{"n')
    incomplete = {"kind": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    reply = final(created(), done(CALL), end(CALL, cut, **incomplete))
    assert (reply.problem, [call.complete for call in reply.calls]) == (None, [False, False])
    assert final(created(), done(CALL), end(cut, **incomplete)).problem
    assert final(created(), done(CALL), end(**incomplete)).problem


@pytest.mark.parametrize("kind", ["failed", "cancelled"])
def test_a_failed_snapshot_need_not_repeat_the_items(kind: str) -> None:
    """Nothing of it can run, and the failure is what the caller must hear of."""
    assert final(created(), done(CALL), end(kind=kind)).problem is None


def test_another_id_than_the_stream_began_with_is_a_disagreement() -> None:
    """The events of two responses must not be mixed."""
    reply = final(created(), end(CALL, id="resp_2"))
    assert reply.problem
    assert not reply.calls[0].complete


@pytest.mark.parametrize(
    ("kind", "status"), [("completed", "failed"), ("failed", "completed"), ("incomplete", "completed")]
)
def test_a_status_that_does_not_belong_to_its_event_is_a_disagreement(kind: str, status: str) -> None:
    """A failed event with a completed snapshot runs nothing."""
    reply = final(created(), end(CALL, kind=kind, status=status))
    assert reply.problem
    assert not reply.calls[0].complete


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ({"type": "response.completed"}, "WRONG_OBJECT"),
        ({"type": "response.completed", "response": None}, "WRONG_OBJECT"),
        ({"type": "response.completed", "response": response(id="")}, "NO_ID"),
        (end(status="in_progress"), "NOT_TERMINAL"),
        (end(message("\ud83d")), "NOT_JSON"),
        (end(metadata={"a": float("nan")}), "NOT_JSON"),
        (end(metadata={1: "a"}), "NOT_JSON"),
    ],
)
def test_a_terminal_event_without_a_terminal_response_is_unreadable(event: Any, reason: str) -> None:
    """Nothing is read from it, and there is no reply afterwards."""
    assembler = feed(created())
    with pytest.raises(UnreadableReply) as caught:
        assembler.feed(event)
    assert caught.value.reason == reason
    assert assembler.reply() is None
    assert assembler.response_id == "resp_1"


def test_the_reply_is_a_copy() -> None:
    """An event object that is used again elsewhere does not change the reply."""
    event = end(message("kept"))
    reply = final(event)
    event["response"]["output"].clear()
    assert reply.body["output"][0]["content"][0]["text"] == "kept"


def test_items_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream of endless items is not remembered whole, and not trusted either."""
    monkeypatch.setattr(_responses_stream, "MAX_ITEMS", 3)
    calls = [function_call(f"call_{index}") for index in range(4)]
    events = [done(call, index) for index, call in enumerate(calls)]
    assert final(created(), *events[:3], end(*calls[:3])).problem is None
    assert final(created(), *events, end(*calls)).problem


def test_memory_does_not_grow_with_the_stream() -> None:
    """Deltas are forgotten and finished calls are kept as digests."""
    decoder, assembler = SSEDecoder(), CODEC.assembler()
    text = "x" * 50_000
    delta = {"type": "response.output_text.delta", "delta": text}
    gc.collect()
    tracemalloc.start()
    try:
        for index in range(200):
            for event in (delta, done(function_call(f"call_{index}", arguments=text), index)):
                for sse in decoder.feed(b"data: " + encode(event) + b"\n\n"):
                    assembler.feed(event_json(sse) or {})
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1_000_000


def test_the_events_that_matter_are_the_sdk_s() -> None:
    """Names that decide something are names of the installed SDK, but for the cancelled event it lacks."""
    union = get_args(ResponseStreamEvent)[0]
    names = {name for event in get_args(union) for name in get_args(event.model_fields["type"].annotation)}
    terminal, started = set(_responses_stream._TERMINAL), _responses_stream._STARTED
    assert terminal - names == {"response.cancelled"}
    assert names >= {*started, _responses_stream._ITEM_DONE, "error"}


@pytest.mark.parametrize(
    "event",
    [
        None,
        [],
        "text",
        {},
        {"type": None},
        {"type": 5},
        {"type": "brand.new"},
        {"type": "response.in_progress", "response": None},
    ],
)
def test_events_nobody_knows_are_skipped(event: Any) -> None:
    """They neither fail the stream nor end it."""
    for events in ((created(), event), (event, created()), (event,)):
        reply = final(*events, end(message()))
        assert (reply.status, reply.problem) == ("completed", None)


GOOD = [
    created(),
    done(reasoning(), 0),
    done(CALL, 1),
    done(custom_call("call_2"), 2),
    done(function_call("call_3"), 3),
    end(reasoning(), CALL, custom_call("call_2"), function_call("call_3")),
    end(reasoning(), CALL, kind="incomplete"),
    {"type": "error", "code": "server_error"},
]


@st.composite
def streams(draw: st.DrawFn) -> list[Any]:
    """Good events in any order and number, damaged terminal events, and arbitrary JSON."""
    terminal = st.builds(lambda body: {"type": "response.completed", "response": body}, damaged())
    item = st.builds(done, JSON_VALUES, JSON_VALUES)
    return draw(st.lists(st.sampled_from(GOOD) | terminal | item | JSON_VALUES, max_size=8))


@given(streams())
def test_garbage_never_raises_otherwise_and_never_runs(events: list[Any]) -> None:
    """Any sequence of JSON events ends in a consistent reply, in an UnreadableReply, or in no reply."""
    assembler = CODEC.assembler()
    for event in events:
        try:
            assembler.feed(event)
        except UnreadableReply:
            assert assembler.reply() is None
    reply = assembler.reply()
    if reply is None:
        return
    check_runnable(reply)
    assert CODEC.read(encode(reply.body)) == reply, "what is restored is what was live"
    body = {key: value for key, value in reply.body.items() if key != STREAM_PROBLEM}
    before = events[
        : next(i for i, e in enumerate(events) if isinstance(e, dict) and e.get("response") == body)
    ]
    items = [
        e["item"] for e in before if isinstance(e, dict) and e.get("type") == "response.output_item.done"
    ]
    if items:
        streamed = {item.get("call_id") for item in items if isinstance(item, dict)}
        assert streamed >= {call.call_id for call in reply.calls if call.complete}


@given(st.permutations(range(4)), st.integers(min_value=1, max_value=40))
def test_cut_anywhere_a_stream_gives_the_same_reply(order: list[int], size: int) -> None:
    """Bytes in chunks of any size and items in any order give the reply of the whole stream."""
    output = [reasoning(), CALL, custom_call("call_2"), message("caf\u00e9")]
    events = [created(), *(done(output[index], index) for index in order), end(*output)]
    stream = b"".join(b"event: %s\ndata: %s\n\n" % (e["type"].encode(), encode(e)) for e in events)
    decoder, assembler = SSEDecoder(), CODEC.assembler()
    for start in range(0, len(stream), size):
        for sse in decoder.feed(stream[start : start + size]):
            assembler.feed(event_json(sse) or {})
    assert assembler.reply() == CODEC.read(encode(response(*output)))
