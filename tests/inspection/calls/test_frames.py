"""Frames: the bytes of a stream, cut where its events end, wherever its chunks do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoflow.inspection.calls.frames import Frame, Frames
from memoflow.providers.base import UnreadableReply
from tests.inspection.calls._streams import splits

STREAM = (
    b'\xef\xbb\xbf: hello\r\n\r\nevent: a\r\ndata: {"n": 1}\r\n\r\ndata: {"n":\ndata: 2}\n\n'
    b'data: {"t": "\xc3\xa9\xe2\x82\xac"}\r\rid: 7\nretry: 9\ndata: {"n": 3}\n\ndata: [DONE]\n\n'
)


def cut(chunks: list[bytes]) -> list[Frame]:
    """All frames of these chunks."""
    frames = Frames()
    return [*(frame for chunk in chunks for frame in frames.feed(chunk)), *frames.finish()]


@given(splits(STREAM))
def test_frames_are_the_same_however_a_stream_is_cut(chunks: list[bytes]) -> None:
    """Within a letter, a line end, or a mark; and together they are the stream."""
    found, expected = cut(chunks), cut([STREAM])
    assert b"".join(frame.raw for frame in found) == STREAM
    assert [(one.event, one.done, one.problem) for one in found if one.event or one.done or one.problem] == [
        (one.event, one.done, one.problem) for one in expected if one.event or one.done or one.problem
    ]


def test_what_frames_say_is_decoded() -> None:
    """Lines of data are joined, comments and other fields say nothing."""
    said = [frame.event for frame in cut([STREAM]) if frame.event is not None]
    assert said == [{"type": "a", "n": 1}, {"n": 2}, {"t": "\u00e9\u20ac"}, {"n": 3}]
    assert [frame.done for frame in cut([STREAM])].count(True) == 1


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b'data: {"a": 1}\ndata: {"b": 2}\n\n', "NOT_JSON"),
        (b'data: {"a": 1, "a": 2}\n\n', "NOT_JSON"),
        (b"data: {\n\n", "NOT_JSON"),
        (b"data: \xff\n\n", "NOT_UTF8"),
        (b"data: [1]\n\n", "NOT_AN_OBJECT"),
        (b'data: "x"\n\n', "NOT_AN_OBJECT"),
        (b' data: {"a": 1}\n\n', "STRANGE_LINE"),
        (b'{"a": 1}\n\n', "STRANGE_LINE"),
        (b'data: {"a": 1}\nDATA: {"b": 2}\n\n', "STRANGE_LINE"),
        (b": comment\n\n", None),
        (b"\n", None),
        (b"data\n\n", "NOT_JSON"),
        (b'event: a\ndata: {"type": "b"}\n\n', "NAME_DIFFERS"),
        (b'event: a\ndata: {"type": null}\n\n', "NAME_DIFFERS"),
        (b'event: a\ndata: {"type": "a"}\n\n', None),
        (b'event: error\ndata: {"type": "server_error"}\n\n', None),
        (b'event: message\ndata: {"type": "a"}\n\n', None),
    ],
)
def test_a_frame_that_clients_may_read_differently_says_so(raw: bytes, problem: str | None) -> None:
    """What is no strict JSON object or has two names, and lines that the standard leaves out."""
    (frame,) = cut([raw])
    assert (frame.raw, frame.problem) == (raw, problem)


def test_after_a_broken_frame_the_next_is_read() -> None:
    """In shadow mode a stream is looked at to its end."""
    assert [frame.event for frame in cut([b'data: {\n\ndata: {"a": 1}\n\n'])] == [None, {"a": 1}]


def test_a_frame_that_was_cut_off_is_none() -> None:
    """An event without its blank line is discarded by the standard."""
    frames = Frames()
    assert [*frames.feed(b'data: {"a": 1}\n'), *frames.finish()] == []
    assert frames.has_rest


def test_a_frame_has_a_largest_size() -> None:
    """In one line or in many."""
    for chunk in (b"data: " + b"x" * 200, b": x\n" * 50):
        with pytest.raises(UnreadableReply, match="TOO_LARGE"):
            list(Frames(max_bytes=100).feed(chunk))
    small = Frames(max_bytes=100)
    assert len([frame for _ in range(50) for frame in small.feed(b": x\n\n")]) == 50


@given(st.binary(max_size=200), st.data())
def test_no_bytes_break_the_cutting(data: bytes, drawn: st.DataObject) -> None:
    """Whatever comes, frames and rest are what came."""
    frames = Frames()
    found = [frame for chunk in drawn.draw(splits(data)) for frame in frames.feed(chunk)]
    found += frames.finish()
    assert data.startswith(b"".join(frame.raw for frame in found))
