"""Any replies and streams of the Messages API: never another exception, never a call that runs unseen."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoflow.providers._messages_growing import GrowingBlock
from memoflow.providers.base import Reply, UnreadableReply
from tests.providers._message_bodies import (
    CODEC,
    JSON_VALUES,
    by_the_sdk,
    call,
    closed,
    delta,
    encode,
    ending,
    feed,
    from_wire,
    message,
    opened,
    read,
    search,
    search_result,
    start,
    streamed_call,
    streamed_text,
    text,
    thinking,
    usage,
    wire,
    without_nulls,
)

WHOLE = message(thinking(), text(), call("toolu_1"), search(), search_result(), call("toolu_2", given={}))
TEXTS = st.text(max_size=12)
OBJECTS = st.dictionaries(st.text(max_size=6), JSON_VALUES, max_size=3)
CITATIONS = st.lists(
    st.fixed_dictionaries({"type": st.just("char_location"), "cited_text": TEXTS}), max_size=3
)


def check_runnable(reply: Reply) -> None:
    """The rules that hold for whatever was read."""
    runnable = [one for one in reply.calls if one.complete]
    if not runnable:
        return
    assert (reply.status, reply.finish_reason, reply.paused) == ("completed", "tool_calls", False)
    assert reply.problem is None
    assert len({one.call_id for one in reply.calls}) == len(reply.calls)
    raw = [block for block in reply.body["content"] if block["type"] == "tool_use"]
    for one in runnable:
        (block,) = [block for block in raw if block["id"] == one.call_id]
        assert (block["name"], block.get("toolset_name") or None) == (one.name, one.namespace)
        if "partial_json" not in block:
            assert json.loads(one.arguments) == block["input"]


def restored(reply: Reply) -> Reply:
    """The reply as it is read from its record."""
    return CODEC.read(json.dumps(reply.body, ensure_ascii=False, separators=(",", ":")).encode())


def paths(value: Any, prefix: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    yield prefix
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, child in children:
        yield from paths(child, (*prefix, key))


def mutate(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The value with one place replaced."""
    if not path:
        return value
    result = node = copy.deepcopy(body)
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return result


@st.composite
def damaged(draw: st.DrawFn, whole: Any) -> Any:
    """A good value with a few places replaced by arbitrary JSON."""
    body = whole
    for path in draw(st.lists(st.sampled_from(list(paths(whole))), min_size=1, max_size=3)):
        try:
            body = mutate(body, path, draw(JSON_VALUES))
        except (KeyError, IndexError, TypeError):
            continue
    return body


@given(damaged(WHOLE) | JSON_VALUES)
def test_garbage_never_raises_otherwise_and_never_runs(body: Any) -> None:
    """Any JSON is a consistent reply or an UnreadableReply."""
    try:
        reply = CODEC.read(encode(body))
    except UnreadableReply:
        return
    assert reply.body == body
    check_runnable(reply)
    assert restored(reply) == reply
    prepared = CODEC.prepare({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    for event in CODEC.events(reply):
        json.dumps(event)
    CODEC.needs_declaration(CODEC.next_request(prepared, reply, []))


@given(
    st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_bytes_that_are_no_reply_are_unreadable(body: bytes) -> None:
    """Arbitrary bytes are never a reply."""
    with pytest.raises(UnreadableReply):
        CODEC.read(body)


@given(st.integers(min_value=0))
def test_a_truncated_reply_is_unreadable(cut: int) -> None:
    """No prefix of a reply is a reply."""
    body = encode(WHOLE)
    with pytest.raises(UnreadableReply, match="NOT_JSON"):
        CODEC.read(body[: cut % len(body)])


def test_the_damage_reaches_the_calls() -> None:
    """The undamaged body has runnable calls, so the properties here can fail."""
    assert [one.complete for one in CODEC.read(encode(WHOLE)).calls] == [True, True]


GOOD: list[Any] = [
    start(),
    {"type": "ping"},
    opened(0, {"type": "thinking", "thinking": "", "signature": ""}),
    delta(0, "thinking_delta", thinking="a"),
    delta(0, "signature_delta", signature="RQ"),
    closed(0),
    *streamed_text(1, "a", "b"),
    *streamed_call(2, '{"n":', "1}"),
    opened(3, search()),
    closed(3),
    *streamed_call(4, id="toolu_2"),
    *ending(),
]


@st.composite
def streams(draw: st.DrawFn) -> list[Any]:
    """A good stream with events damaged, dropped, repeated, moved, and arbitrary JSON among them."""
    events = list(GOOD)
    for place in draw(st.lists(st.integers(0, len(GOOD) - 1), max_size=4)):
        place %= len(events)
        match draw(st.sampled_from(["damage", "drop", "repeat", "move", "other"])):
            case "damage":
                events[place] = draw(damaged(events[place]))
            case "drop" if len(events) > 1:
                del events[place]
            case "repeat":
                events.insert(place, events[place])
            case "move":
                events.insert(draw(st.integers(0, len(events) - 1)), events.pop(place))
            case _:
                events.insert(place, draw(JSON_VALUES))
    return events


@given(streams())
def test_a_damaged_stream_never_raises_otherwise_and_never_runs(events: list[Any]) -> None:
    """Any events make a reply that is restored as it was, an UnreadableReply, or no reply."""
    assembler = CODEC.assembler()
    for event in events:
        try:
            assembler.feed(event)
        except UnreadableReply:
            assert assembler.reply() is None
            return
    reply = assembler.reply()
    if reply is not None:
        check_runnable(reply)
        assert restored(reply) == reply


@given(st.integers(0, len(GOOD) - 1))
def test_a_call_of_a_stream_with_a_hole_is_whole_or_does_not_run(place: int) -> None:
    """Of each call that runs all events were seen, apart from empty ones and pieces nobody could miss."""
    events = [event for number, event in enumerate(GOOD) if number != place]
    try:
        reply = feed(*events).reply()
    except UnreadableReply:
        return
    pieces = [event for event in GOOD if event.get("delta", {}).get("type") == "input_json_delta"]
    for one in reply.calls if reply is not None and reply.problem is None else ():
        if GOOD[place] not in pieces:
            assert (one.arguments, one.complete) == ('{"n":1}' if one.ordinal == 0 else "{}", True)
        elif one.ordinal == 0:
            assert one.arguments in ('{"n":', "1}")


@st.composite
def blocks(draw: st.DrawFn, number: int) -> dict[str, Any]:
    """A content block of the documented form."""
    match draw(st.sampled_from(["text", "thinking", "redacted", "call", "search", "result"])):
        case "text":
            return draw(st.builds(lambda value, more: text(value, citations=more or None), TEXTS, CITATIONS))
        case "thinking":
            return draw(st.builds(thinking, TEXTS, TEXTS))
        case "redacted":
            return {"type": "redacted_thinking", "data": draw(TEXTS)}
        case "call":
            return call(f"toolu_{number}", given=draw(OBJECTS))
        case "search":
            return search(f"srvtoolu_{number}", input=draw(OBJECTS))
        case _:
            return search_result(f"srvtoolu_{number}")


@st.composite
def contents(draw: st.DrawFn) -> list[dict[str, Any]]:
    """The content of a message."""
    return [draw(blocks(number)) for number in range(draw(st.integers(0, 4)))]


@st.composite
def pieces(draw: st.DrawFn, value: str) -> list[str]:
    """A text in pieces, some of them empty."""
    cuts = sorted(draw(st.lists(st.integers(0, len(value)), max_size=3)))
    return [value[a:b] for a, b in zip([0, *cuts], [*cuts, len(value)], strict=True)]


@st.composite
def cut_streams(draw: st.DrawFn, body: dict[str, Any]) -> list[dict[str, Any]]:
    """A stream of this message as the API might send it: its texts and inputs cut anywhere."""
    events: list[dict[str, Any]] = []
    for event in CODEC.events(CODEC.read(encode(body))):
        field = next(
            (key for key in ("text", "thinking", "partial_json") if key in event.get("delta", ())), None
        )
        if field is None:
            events.append(event)
            continue
        for piece in draw(pieces(event["delta"][field])):
            events.append({**event, "delta": {**event["delta"], field: piece}})
        if draw(st.booleans()):
            events.append({"type": "ping"})
    return events


@given(contents(), st.data())
def test_a_stream_gives_what_the_whole_reply_gives(
    content: list[dict[str, Any]], data: st.DataObject
) -> None:
    """However texts and inputs are cut, and wherever the bytes are, streaming or not makes no difference."""
    body = message(*content)
    stream = data.draw(cut_streams(body))
    cuts = data.draw(st.lists(st.integers(0, 10_000), max_size=6))
    assert from_wire(wire(stream), cuts) == CODEC.read(encode(body))


@given(st.integers(min_value=1, max_value=40))
def test_cut_into_chunks_of_any_size_a_stream_gives_the_same_reply(size: int) -> None:
    """Down to single bytes, within characters and line ends."""
    events = [start(), *streamed_text(0, "caf\u00e9 \U0001f600"), *streamed_call(1, '{"n"', ":1}"), *ending()]
    stream = wire(events).replace(b"\n", b"\r\n")
    whole = read(text("caf\u00e9 \U0001f600"), call(), usage=usage())
    assert from_wire(stream, range(0, len(stream), size)) == whole


@given(st.integers(min_value=0))
def test_a_stream_that_was_cut_off_has_no_reply(cut: int) -> None:
    """No prefix of a stream is a reply."""
    stream = wire([event for event in GOOD if isinstance(event, dict)])
    assert from_wire(stream[: cut % (len(stream) - 1)], ()) is None


@given(contents(), st.data())
def test_the_sdk_makes_the_same_message_of_a_stream(
    content: list[dict[str, Any]], data: st.DataObject
) -> None:
    """The SDK's own accumulator agrees with the assembler on streams as the API sends them."""
    stream = data.draw(cut_streams(message(*content)))
    reply = feed(*stream).reply()
    assert reply is not None
    assert without_nulls(by_the_sdk(stream).to_dict(mode="json")) == without_nulls(reply.body)


@given(contents(), st.sampled_from(["end_turn", "max_tokens", "refusal", "pause_turn", "tool_use", "other"]))
def test_the_events_of_a_record_make_the_record(content: list[dict[str, Any]], reason: str) -> None:
    """For the SDK and for the assembler, whatever the record ended with."""
    more = {
        "container": {"id": "c", "expires_at": "2026-11-29T00:00:00Z"},
        "stop_details": {"type": "refusal"},
    }
    reply = read(*content, stop_reason=reason, brand_new={"a": [1]}, **more)
    events = CODEC.events(reply)
    assert without_nulls(by_the_sdk(events).to_dict(mode="json")) == without_nulls(reply.body)
    assert feed(*events).reply() == reply


@pytest.mark.parametrize(
    "block",
    [
        call(given={}, partial_json='{"a": 1'),
        {"type": "brand_new", "text": "a", "input": {"a": 1}},
        text("a", citations=[]),
        text("a", citations=["b"]),
        {"type": "text", "text": None},
        {"type": "text"},
        {"type": "thinking", "thinking": "a"},
        {"type": "tool_use", "id": "a", "name": "b", "input": [1]},
        {"type": "mcp_tool_use", "id": "a", "name": "b", "server_name": "c", "input": {"d": 1}},
        {"type": "compaction", "content": "a"},
        None,
        {"type": 5},
        {"type": []},
    ],
)
def test_the_events_of_an_odd_record_make_the_record(block: Any) -> None:
    """What has no documented form comes whole."""
    reply = read(block, stop_reason="tool_use")
    assert feed(*CODEC.events(reply)).reply() == reply


def test_the_events_of_a_record_bring_texts_as_deltas() -> None:
    """Who reads the texts of a stream finds them in a restored one."""
    kinds = [event["type"] for event in CODEC.events(read(text("a"), call()))]
    around = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert kinds == ["message_start", *around, *around, "message_delta", "message_stop"]


@pytest.mark.parametrize("given_", [None, [], {}, {"input_tokens": 10}])
def test_the_events_of_a_record_without_a_usage_can_be_read(given_: Any) -> None:
    """The SDK needs a usage to write to; there is still none afterwards."""
    events = CODEC.events(read(text(), usage=given_))
    assert by_the_sdk(events).usage.output_tokens is None
    reply = feed(*events).reply()
    assert reply is not None
    assert reply.usage is None


def test_the_events_of_a_reply_that_contradicted_itself_do_not_say_so() -> None:
    """The note is memoflow's own; a consumer sees what the provider sent, restored as live."""
    reply = feed(start(), start(), *streamed_call(0), *ending()).reply()
    assert reply is not None
    assert reply.problem
    assert "memoflow_problem" in reply.body
    assert "memoflow_problem" not in str(CODEC.events(reply))


@given(OBJECTS, st.lists(OBJECTS, max_size=4))
def test_any_block_takes_any_delta(block: dict[str, Any], deltas: list[dict[str, Any]]) -> None:
    """What does not fit is said, never raised."""
    growing = GrowingBlock(copy.deepcopy(block))
    for one in deltas:
        assert isinstance(growing.add(one), bool)
    json.dumps(growing.finished())
