"""The decoder of Server-Sent Events."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memoflow.providers.base import UnreadableReply
from memoflow.providers.sse import ServerSentEvent, SSEDecoder, event_json


def decode(data: bytes, cuts: list[int] | None = None) -> list[ServerSentEvent]:
    """Decode a stream that arrives cut at these places."""
    decoder = SSEDecoder()
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts or []), len(data)]
    return [event for a, b in pairwise(edges) for event in decoder.feed(data[a:b])]


def reference(data: bytes) -> list[tuple[str, str]]:
    """The standard's algorithm over a whole stream, written without any thought of chunks."""
    found, name, lines = [], "", []
    for line in re.split("\r\n|\n|\r", data.decode().removeprefix("\ufeff"))[:-1]:
        if not line:
            if lines:
                found.append((name or "message", "\n".join(lines)))
            name, lines = "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            lines.append(value)
        elif field == "event":
            name = value
    return found


def test_an_event_has_a_name_and_data() -> None:
    """Fields are read with at most one space after the colon taken away."""
    (event,) = decode(b"event: a\nid:7\ndata:  x\nretry: 30\n\n")
    assert (event.event, event.data) == ("a", " x")


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_every_line_end_of_the_standard_is_one(end: bytes) -> None:
    """CR, LF and CRLF end a line, alone and mixed."""
    events = decode(end.join([b"data: a", b"data: b", b"", b"data: c", b"", b""]))
    assert [event.data for event in events] == ["a\nb", "c"]


def test_a_line_end_cut_in_two_counts_once() -> None:
    """CR at the end of one chunk and LF at the start of the next do not make an empty line."""
    decoder = SSEDecoder()
    assert list(decoder.feed(b"data: a\r")) == []
    assert list(decoder.feed(b"")) == []
    assert list(decoder.feed(b"\n")) == []
    assert list(decoder.feed(b"data: b\r\n")) == []
    assert [event.data for event in decoder.feed(b"\n")] == ["a\nb"]


@pytest.mark.parametrize(
    ("stream", "data"),
    [
        (b": comment\ndata: a\n\n", ["a"]),
        (b"data\n\n", [""]),
        (b"event: lonely\n\ndata: a\n\n", ["a"]),
        (b"unknown: x\ndata: a\n\n", ["a"]),
        ("\ufeffdata: a\n\n".encode(), ["a"]),
        ("data: a\u2028b\x0bc\x85d\n\n".encode(), ["a\u2028b\x0bc\x85d"]),
        (b"data: a\n\ndata: cut off\n", ["a"]),
        (b"data: a\n\ndata: cut off", ["a"]),
    ],
)
def test_the_corners_of_the_standard(stream: bytes, data: list[str]) -> None:
    """Comments, bare and unknown fields, BOM, other Unicode line ends and cut events are read as written."""
    assert [event.data for event in decode(stream)] == data


def test_an_event_name_lasts_for_one_event() -> None:
    """The name is forgotten after its event, also where that had no data."""
    assert [event.event for event in decode(b"event: a\n\ndata: 1\n\ndata: 2\n\n")] == ["message", "message"]


def test_what_is_wrong_does_not_undo_what_came_before_it() -> None:
    """The events of a chunk are given before the damage behind them is met."""
    events = SSEDecoder().feed(b"data: a\n\ndata: \xff\n\n")
    assert next(events).data == "a"
    with pytest.raises(UnreadableReply, match="NOT_UTF8"):
        next(events)


@pytest.mark.parametrize("chunk", [b"data: xxxxxxx\n", b"data: xxxxxxx", b"data: x\n" * 2])
def test_an_event_that_is_too_large_is_refused(chunk: bytes) -> None:
    """The size of lines that are finished and of the one that is not is bounded together."""
    list(SSEDecoder(max_event_bytes=len(chunk)).feed(chunk))
    with pytest.raises(UnreadableReply, match="TOO_LARGE"):
        list(SSEDecoder(max_event_bytes=11).feed(chunk))


def test_the_size_counts_one_event_not_the_stream() -> None:
    """A long stream of small events is never too large."""
    decoder = SSEDecoder(max_event_bytes=16)
    assert sum(len(list(decoder.feed(b"data: 12345678\n\n"))) for _ in range(1000)) == 1000


def test_a_line_in_small_pieces_is_bounded() -> None:
    """A line without an end is refused at the bound, not held for ever."""
    decoder = SSEDecoder(max_event_bytes=1000)
    for _ in range(1000):
        list(decoder.feed(b"x"))
    with pytest.raises(UnreadableReply, match="TOO_LARGE"):
        list(decoder.feed(b"x"))


def test_bytes_that_are_not_utf8_are_refused() -> None:
    """Data is recorded as it came, so nothing is replaced."""
    with pytest.raises(UnreadableReply, match="NOT_UTF8"):
        decode(b"data: \xff\n\n")


STREAMS = st.lists(
    st.sampled_from(
        [
            b"data: a\n",
            b"data:b\r\n",
            b"event: e\r",
            b"\n",
            b"\r",
            b"\r\n",
            b"id: 1\n",
            b": c\n",
            "data: \u20ac\U0001f600\n".encode(),
            b"\xef\xbb\xbf",
            b"data",
        ]
    ),
    max_size=20,
).map(b"".join)


@given(STREAMS, st.lists(st.integers(min_value=0), max_size=12))
def test_where_a_stream_is_cut_changes_nothing(stream: bytes, cuts: list[int]) -> None:
    """Chunks cut anywhere, within characters and line ends too, give the events of the whole stream."""
    expected = reference(stream)
    assert [(e.event, e.data) for e in decode(stream, cuts)] == expected
    assert [(e.event, e.data) for e in decode(stream, list(range(len(stream))))] == expected


@given(st.text(alphabet=st.characters(codec="utf-8")), st.lists(st.integers(min_value=0), max_size=6))
def test_any_text_is_read_like_the_standard_says(text: str, cuts: list[int]) -> None:
    """No text of a stream raises or is read in another way."""
    assert [(e.event, e.data) for e in decode(text.encode(), cuts)] == reference(text.encode())


SKIPPED = (".delta", "ping")
EVENTS = st.lists(
    st.sampled_from(
        [
            b'event: a.delta\ndata: {"x": 1}\n\n',
            b'event: a.delta\r\ndata: {"x": 1}\r\n\r\n',
            b'event: a.delta\rdata: {"x": 1}\r\r',
            'event: a.delta\ndata: {"x": "\u20ac"}\n\n'.encode(),
            b"event: a.delta\ndata: {\xff}\n\n",
            b"event: \xff.delta\ndata: {}\n\n",
            b"event: a.delta\ndata: {\ndata: }\n\n",
            b"event: a.delta\ndata: {}\nevent: b\n\n",
            b"event: b\ndata: {}\n\n",
            b"event:a.delta\ndata:{}\n\n",
            b"event:  ping\ndata: {}\n\n",
            b"event: ping\n\n",
            b"event: a.delta\ndata: [DONE]\n\n",
            b"event: a.delta\ndata: [1]\n\n",
            b"data: {}\n\n",
            b"data: {}\n",
            b"event: a.delta\n",
            b": ping\n",
            b"\n",
            b"\xef\xbb\xbf",
        ]
    ),
    max_size=12,
).map(b"".join)


def told(decoder: SSEDecoder, data: bytes, cuts: list[int]) -> list[tuple[str, str]]:
    """All that a decoder says of a stream cut at these places: its events, then why it stopped."""
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    found = []
    try:
        for a, b in pairwise(edges):
            for event in decoder.feed(data[a:b]):
                found.append((event.event, event.data))
    except UnreadableReply as error:
        found.append(("", error.reason))
    return found


DELTA = b"event: a.delta\ndata: {}\n\n"


@example(DELTA + b"\xef\xbb\xbf" + DELTA, [], 60)
@example(b"\nevent: a.delta\ndata: {\xff}\n\n", [], 60)
@example(b"\n" + DELTA, [], 20)
@example(b"\nevent: a.delta\ndata: {}\nevent: b\n\n", [], 60)
@example(b"\ndata: 1\n" + DELTA + b"data: 2\n\n", [], 60)
@given(EVENTS | st.binary(), st.lists(st.integers(min_value=0), max_size=6), st.integers(12, 60))
def test_what_is_skipped_is_left_out_and_nothing_else(stream: bytes, cuts: list[int], most: int) -> None:
    """Any bytes, cut anywhere: the same events but these, and the same refusal at the same place."""
    everything = told(SSEDecoder(max_event_bytes=most), stream, cuts)
    expected = [
        (event, data)
        for event, data in everything
        if not event.endswith(SKIPPED) or data.startswith("[DONE]")
    ]
    assert told(SSEDecoder(max_event_bytes=most, skipped=SKIPPED), stream, cuts) == expected


@example(b"\n" + DELTA, 24)
@example(b"\nevent: \ndata: {}\n\ndata: {}\n\n", 60)
@example(b"\ndata: {\xff}\n\n", 60)
@given(EVENTS | st.binary(), st.integers(12, 60))
def test_an_event_in_one_piece_is_read_like_one_in_many(stream: bytes, most: int) -> None:
    """Whole or byte by byte: the same events, and the same refusal at the same place."""
    for skipped in ((), SKIPPED):
        whole, bytewise = (SSEDecoder(max_event_bytes=most, skipped=skipped) for _ in range(2))
        assert told(whole, stream, []) == told(bytewise, stream, list(range(len(stream))))


@pytest.mark.parametrize("ending", ["", "message", "e", " a", "event: a", "nt: a"])
def test_only_the_name_of_an_event_is_compared(ending: str) -> None:
    """Not the field that holds it, nor the space before it; an event without a name is a ``message``."""
    stream = b"data: 1\n\nevent: a\ndata: {}\n\nevent:  a\ndata: {}\n\nevent: \ndata: {}\n\n"
    expected = [found for found in reference(stream) if not found[0].endswith(ending)]
    assert told(SSEDecoder(skipped=(ending,)), stream, []) == expected


def test_event_json_is_the_object_of_the_event() -> None:
    """An object without a type gets the name of its event; a type is never replaced."""
    assert event_json(ServerSentEvent("a", '{"x": 1}')) == {"type": "a", "x": 1}
    assert event_json(ServerSentEvent("a", '{"type": "b"}')) == {"type": "b"}
    assert event_json(ServerSentEvent("message", '{"x": 1}')) == {"x": 1}


@pytest.mark.parametrize("data", ["[DONE]", " [DONE] ", "[1]", "null", '"text"'])
def test_data_that_is_no_object_carries_no_event(data: str) -> None:
    """The end mark and other values are skipped."""
    assert event_json(ServerSentEvent("message", data)) is None


@pytest.mark.parametrize("data", ["", "{", '{"a": NaN}', '{"a": 1, "a": 2}', '{"a": "\\ud800"}'])
def test_data_that_is_not_strict_json_is_refused(data: str) -> None:
    """A corrupt event makes the stream unreadable instead of being skipped."""
    with pytest.raises(UnreadableReply, match="NOT_JSON"):
        event_json(ServerSentEvent("message", data))


def test_an_event_shows_no_payload() -> None:
    """Data is not part of the repr."""
    assert "secret" not in repr(ServerSentEvent("message", "secret"))
