"""An incremental decoder of Server-Sent Events over bytes.

Follows https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream, with three
deliberate differences: what is not UTF-8 is refused instead of replaced, since the data is recorded as it
came, an event has a largest size, and ids and reconnection times are not kept, since nobody reconnects.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from memoflow.canonical import MAX_DEPTH, StrictJSONError, parse_strict
from memoflow.providers.base import UnreadableReply

__all__ = ["MAX_EVENT_BYTES", "MAX_JSON_DEPTH", "SSEDecoder", "ServerSentEvent", "event_json"]

MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
"""Largest event in bytes; as large as the largest whole reply, because the last event holds one."""

MAX_JSON_DEPTH: Final = MAX_DEPTH
"""Levels of JSON read from a provider: what is deeper has no digest, and could not be sent back."""

_BOM: Final = b"\xef\xbb\xbf"
_DONE: Final = "[DONE]"
_NAMED, _OBJECT = b"event: ", b"data: {"


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One dispatched event; ``event`` is ``message`` where the stream names none."""

    event: str
    data: str = field(repr=False)


class SSEDecoder:
    """Turns chunks of a stream, cut anywhere, into events.

    Memory is bounded by ``max_event_bytes``. An event that the end of the stream cut off is never
    returned.

    Args:
        max_event_bytes: largest event.
        skipped: endings of the names of events to leave out. They are bounded and must be UTF-8 like all
            others. What begins with ``[DONE]`` is given whatever its name, since it ends a stream.
    """

    __slots__ = (
        "_data",
        "_event",
        "_max",
        "_partial",
        "_size",
        "_skip_newline",
        "_skipped",
        "_skipped_names",
        "_started",
    )

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES, skipped: tuple[str, ...] = ()) -> None:
        self._max = max_event_bytes
        self._skipped = skipped
        self._skipped_names = tuple(name.encode() for name in skipped)
        self._partial = bytearray()
        self._data: list[str] = []
        self._event = ""
        self._size = 0
        self._skip_newline, self._started = False, False

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        """The events that this chunk finished, one by one, before what is wrong after them is met.

        Raises:
            UnreadableReply: the event is too large (``TOO_LARGE``) or not UTF-8 (``NOT_UTF8``).
        """
        if self._skip_newline and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._skip_newline = False
        lines = chunk.splitlines()
        tail = lines.pop() if lines and not chunk.endswith((b"\n", b"\r")) else b""
        at, end = 0, len(lines)
        while at < end:
            # No size means no line of an event yet: here one may begin that nobody wants.
            if not self._size and self._skips(lines, at):
                at += 3
                continue
            if (event := self._line(lines[at])) is not None:
                yield event
            at += 1
        # A line end split over two chunks must not count as two.
        self._skip_newline = chunk.endswith(b"\r") or (self._skip_newline and not chunk)
        if tail:
            self._grow(len(tail))
            self._partial += tail

    def _skips(self, lines: list[bytes], at: int) -> bool:
        """Whether one to leave out, whole and in its usual form, begins at this line.

        Of the bulk of a stream nothing is built then. What has another form is left out when dispatched.
        """
        name = lines[at]
        if not (name.endswith(self._skipped_names, len(_NAMED)) and name.startswith(_NAMED)):
            return False
        # Before the first line has ended there may be a BOM to take away.
        if not self._started or at + 2 >= len(lines) or lines[at + 2]:
            return False
        data = lines[at + 1]
        fits = len(name) + len(data) <= self._max
        return fits and data.startswith(_OBJECT) and data.isascii() and name.isascii()

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._max:
            raise UnreadableReply("TOO_LARGE")

    def _line(self, end: bytes) -> ServerSentEvent | None:
        if end:
            self._grow(len(end))
        line = end
        if self._partial:
            line = bytes(self._partial) + end
            self._partial.clear()
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        if not line.startswith(b":"):
            self._field(line)
        return None

    def _field(self, line: bytes) -> None:
        try:
            name, _, value = line.decode().partition(":")
        except UnicodeDecodeError:
            raise UnreadableReply("NOT_UTF8") from None
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value

    def _dispatch(self) -> ServerSentEvent | None:
        lines, event = self._data, self._event or "message"
        self._data, self._event, self._size = [], "", 0
        if not lines:
            return None
        data = "\n".join(lines)
        if event.endswith(self._skipped) and not data.startswith(_DONE):
            return None
        return ServerSentEvent(event, data)


def event_json(event: ServerSentEvent, *, max_bytes: int = MAX_EVENT_BYTES) -> dict[str, Any] | None:
    """The JSON object of an event, or None for what carries none (``[DONE]``, other JSON values).

    An object without a ``type`` gets the name of its event.

    Raises:
        UnreadableReply: the data is not strict JSON (``NOT_JSON``).
    """
    if event.data.strip() == _DONE:
        return None
    try:
        value = parse_strict(event.data, max_bytes=max_bytes, max_depth=MAX_JSON_DEPTH)
    except StrictJSONError:
        raise UnreadableReply("NOT_JSON") from None
    if not isinstance(value, dict):
        return None
    return value if "type" in value or event.event == "message" else {"type": event.event, **value}
