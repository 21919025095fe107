"""A stream of Server-Sent Events cut into frames, bytes and all, so that one can be held back whole.

What a frame says is decoded by `memoflow.providers.sse`. Everything between two blank lines is one frame,
comments included, and all frames together are the stream, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from memoflow.providers.base import UnreadableReply
from memoflow.providers.sse import MAX_EVENT_BYTES, SSEDecoder, event_json

__all__ = ["Frame", "Frames"]

_FIELDS: Final = (b"data", b"event", b"id", b"retry")
_DONE: Final = "[DONE]"
# Whoever takes an event for an error looks for no call in it; and the standard's name for what has none.
_NO_TYPES: Final = frozenset({"error", "message"})


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame.

    Attributes:
        raw: its bytes, with the blank line that ends it.
        event: the JSON object that it holds, if any.
        done: whether it is the ``[DONE]`` that ends a stream.
        problem: why clients may read something else in it, as a code.
    """

    raw: bytes = field(repr=False)
    event: dict[str, Any] | None = field(default=None, repr=False)
    done: bool = False
    problem: str | None = None


class Frames:
    """Cuts chunks of a stream, cut anywhere, into frames.

    Args:
        max_bytes: largest frame.
    """

    __slots__ = ("_decoder", "_max", "_partial", "_raw", "_size")

    def __init__(self, *, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_bytes
        self._decoder = SSEDecoder(max_event_bytes=max_bytes)
        self._raw: list[bytes] = []
        self._partial = bytearray()
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """The frames that this chunk finished.

        Raises:
            UnreadableReply: a frame is too large (``TOO_LARGE``).
        """
        waits = self._partial.endswith(b"\r")
        self._partial += chunk
        self._size += len(chunk)
        if waits or b"\n" in chunk or b"\r" in chunk:
            yield from self._lines()
        if self._size > self._max:
            raise UnreadableReply("TOO_LARGE")

    def _lines(self) -> Iterator[Frame]:
        lines = bytes(self._partial).splitlines(keepends=True)
        # A line end at the end of a chunk may be the first half of one; it waits for the next byte.
        rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        self._partial = bytearray(rest)
        for line in lines:
            self._raw.append(line)
            if not line.strip(b"\r\n"):
                yield self._frame()

    def finish(self) -> Iterator[Frame]:
        """What the end of the stream left: a line end that waited, and never a frame that was cut off."""
        if self._partial.endswith(b"\r"):
            self._raw.append(bytes(self._partial))
            self._partial.clear()
            if self._raw[-1] == b"\r":
                yield self._frame()

    @property
    def has_rest(self) -> bool:
        """Whether bytes are left that are no frame."""
        return bool(self._raw or self._partial)

    def _frame(self) -> Frame:
        raw, lines, self._raw = b"".join(self._raw), self._raw, []
        self._size -= len(raw)
        try:
            events = list(self._decoder.feed(raw))
            if not events:
                return Frame(raw, problem=_strange(lines))
            found = event_json(events[0])
        except UnreadableReply as error:
            self._decoder = SSEDecoder(max_event_bytes=self._max)
            return Frame(raw, problem=error.reason)
        done = events[0].data.strip() == _DONE
        problem = "NOT_AN_OBJECT" if found is None and not done else None
        named = found is None or events[0].event in _NO_TYPES or found["type"] == events[0].event
        return Frame(raw, found, done, problem or (None if named else "NAME_DIFFERS") or _strange(lines))


def _strange(lines: list[bytes]) -> str | None:
    """Lines that the standard leaves out and a lenient client may read."""
    for line in lines:
        name = line.strip(b"\r\n").partition(b":")[0].removeprefix(b"\xef\xbb\xbf")
        if name and name not in _FIELDS:
            return "STRANGE_LINE"
    return None
