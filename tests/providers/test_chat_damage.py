"""Properties of chat completions: streams cut anywhere, streams like whole replies, and damage."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoflow.providers.base import Reply, UnreadableReply
from tests.providers._bodies import JSON_VALUES
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
    fragment,
    function_call,
    message,
    more_of,
    stream_bytes,
    usage,
)
from tests.providers.test_responses_damage import mutate, paths

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)


def check_runnable(reply: Reply) -> None:
    """The rules that hold for whatever was read."""
    runnable = [call for call in reply.calls if call.complete]
    if not runnable:
        return
    assert (reply.status, reply.finish_reason, reply.problem) == ("completed", "tool_calls", None)
    assert not reply.paused
    assert len({call.call_id for call in reply.calls}) == len(reply.calls)
    (only,) = reply.body["choices"]
    assert only["finish_reason"] in ("stop", "tool_calls")
    for call in runnable:
        assert call.call_id.strip()
        (entry,) = [one for one in only["message"]["tool_calls"] if one["id"] == call.call_id]
        part = entry[call.kind]
        text = part["arguments"] if call.kind == "function" else part["input"]
        assert (part["name"], text) == (call.name, call.arguments)


WHOLE = completion(
    calling(function_call("call_1"), custom_call("call_2"), function_call("call_3")), usage=usage()
)
PLACES = paths(WHOLE)


@st.composite
def damaged(draw: st.DrawFn) -> Any:
    """A good completion with a few places replaced by arbitrary JSON."""
    body: Any = WHOLE
    for path in draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=3)):
        try:
            body = mutate(body, path, draw(JSON_VALUES))
        except (KeyError, IndexError, TypeError):
            continue
    return body


@given(damaged() | JSON_VALUES)
def test_garbage_never_raises_otherwise_and_never_runs(body: Any) -> None:
    """Any JSON is a consistent reply or an UnreadableReply, and a reply can be shown and continued."""
    try:
        reply = CODEC.read(encode(body))
    except UnreadableReply:
        return
    assert reply.body == body
    check_runnable(reply)
    assert isinstance(CODEC.events(reply), list)
    prepared = CODEC.prepare({"model": "gpt-5", "messages": []})
    CODEC.measure(CODEC.next_request(prepared, reply, []), "estimate")


@given(st.integers(min_value=0))
def test_a_truncated_reply_is_unreadable(cut: int) -> None:
    """No prefix of a reply is a reply."""
    body = encode(WHOLE)
    with pytest.raises(UnreadableReply, match="NOT_JSON"):
        CODEC.read(body[: cut % len(body)])


def test_the_damage_reaches_the_calls() -> None:
    """The undamaged body has runnable calls, so the properties above can fail."""
    assert [call.complete for call in CODEC.read(encode(WHOLE)).calls] == [True] * 3


@st.composite
def conversations(draw: st.DrawFn, ordered: bool = False) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Chunks of a stream, and the body the same reply has when it is not streamed.

    Where they are ``ordered``, choices and calls begin in the order of their index.
    """
    count = draw(st.integers(1, 3))
    queues, choices = [], []
    for index in range(count):
        events, body = draw(choice_streams(index, ordered))
        queues.append(events)
        choices.append(body)
    events = [queue.pop(0) for queue in queues] if ordered else [chunk(id="", created=0)]
    while any(queues):
        queue = draw(st.sampled_from([queue for queue in queues if queue]))
        events.append(queue.pop(0))
    body = {key: completion()[key] for key in ("id", "object", "created", "model")} | {"choices": choices}
    if draw(st.booleans()):
        events.append(counted())
        body["usage"] = usage()
    return events, body


@st.composite
def choice_streams(draw: st.DrawFn, index: int, ordered: bool) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The chunks of one choice in order, and the choice as a whole."""
    texts = draw(st.lists(TEXT, max_size=3))
    calls = draw(st.lists(st.lists(TEXT, min_size=1, max_size=3), max_size=3))
    end = draw(st.sampled_from(["stop", "length", "content_filter", "new_word"]))
    said: dict[str, Any] = {"role": "assistant", "content": "".join(texts) if texts else None}
    events = [delta({"role": "assistant", "content": None}, index=index)]
    events += [delta({"content": text}, index=index) for text in texts]
    queues = [
        [
            {"index": n, "id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": first}},
            *({"index": n, "function": {"arguments": text}} for text in rest),
        ]
        for n, (first, *rest) in enumerate(calls)
    ]
    if ordered and queues:
        events.append(delta({"tool_calls": [queue.pop(0) for queue in queues]}, index=index))
    while any(queues):
        queue = draw(st.sampled_from([queue for queue in queues if queue]))
        events.append(delta({"tool_calls": [queue.pop(0)]}, index=index))
    if calls:
        said["tool_calls"] = [function_call(f"c{n}", "f", "".join(call)) for n, call in enumerate(calls)]
    events.append(delta({}, end, index))
    return events, {"index": index, "message": said, "finish_reason": end}


@given(conversations(), st.integers(1, 60))
def test_cut_anywhere_a_stream_gives_the_whole_reply(
    conversation: tuple[list[dict[str, Any]], dict[str, Any]], size: int
) -> None:
    """Chunks of bytes of any size, fragments in any order: the reply of the body that was not streamed."""
    events, body = conversation
    data = stream_bytes(events)
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    whole = CODEC.read(encode(body))
    for choices in (None, len(body["choices"])):
        reply = assembled(pieces, choices).reply()
        assert reply == whole
        assert reply.body == body
        assert CODEC.read(json.dumps(reply.body).encode()) == reply


@given(conversations())
def test_the_chunks_of_a_reply_are_a_stream_of_it(
    conversation: tuple[list[dict[str, Any]], dict[str, Any]],
) -> None:
    """What a restored reply is shown as is read as that reply."""
    reply = CODEC.read(encode(conversation[1]))
    assembler = CODEC.assembler(len(reply.body["choices"]))
    for event in CODEC.events(reply):
        assembler.feed(event)
    assert assembler.reply() == reply


@given(conversations(), st.integers(0))
def test_a_stream_that_was_cut_has_no_reply_before_all_have_ended(
    conversation: tuple[list[dict[str, Any]], dict[str, Any]], cut: int
) -> None:
    """Where the number of choices is known, no beginning of a stream is taken for all of it."""
    events, body = conversation
    kept = events[: cut % (len(events) + 1)]
    reply = assembled([stream_bytes(kept)], len(body["choices"])).reply()
    ended = sum(bool(one["finish_reason"]) for event in kept for one in event["choices"])
    assert (reply is None) == (ended < len(body["choices"]))
    if reply is not None:
        assert reply.body["choices"] == body["choices"]


GOOD = [
    delta({"role": "assistant", "content": None}),
    begun(),
    begun(1, "call_2"),
    more_of('{"n"'),
    more_of(": 1}"),
    more_of("{}", 1),
    begun(None, "call_3", "inc", "{}"),
    fragment(2, id="call_9", type="custom", custom={"name": "patch", "input": "x"}),
    delta({"content": "x"}, index=1),
    delta({"content": [{"type": "text", "text": "x"}]}),
    delta({"reasoning_details": [{"index": 0, "text": "x"}]}),
    END,
    STOP,
    delta(end="length"),
    delta(end="stop", index=1),
    counted(),
    {"error": {"code": "server_error"}},
]


@st.composite
def streams(draw: st.DrawFn) -> list[Any]:
    """Good chunks in any order and number, and damaged ones."""
    events: list[Any] = []
    for _ in range(draw(st.integers(0, 10))):
        event: Any = copy.deepcopy(draw(st.sampled_from(GOOD)))
        if draw(st.integers(0, 3)) == 0:
            event = mutate(event, draw(st.sampled_from(paths(event))), draw(JSON_VALUES))
        events.append(event)
    return [*events, STOP] if draw(st.booleans()) else events


@given(streams(), st.sampled_from([None, 1, 2]))
def test_garbage_in_a_stream_never_raises_otherwise_and_never_runs(
    events: list[Any], choices: int | None
) -> None:
    """Any chunks end in a consistent reply, in an UnreadableReply or in none; a record is read the same."""
    assembler = CODEC.assembler(choices)
    for event in events:
        try:
            assembler.feed(event)
        except UnreadableReply:
            assert assembler.reply() is None
    reply = assembler.reply()
    if reply is None:
        return
    assert not assembler.failed
    check_runnable(reply)
    assert CODEC.read(json.dumps(reply.body).encode()) == reply


def test_a_choice_is_what_the_helpers_say() -> None:
    """The parts of these tests fit together."""
    events = [delta(message("hello") | {"tool_calls": None}), STOP, counted()]
    reply = assembled([stream_bytes(events)]).reply()
    assert reply is not None
    assert reply.body["choices"][0]["message"] == choice()["message"]
