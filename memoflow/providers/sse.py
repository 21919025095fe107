"""An incremental decoder of Server-Sent Events over bytes.

Follows https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream, with three
deliberate differences: what is not UTF-8 is refused instead of replaced, since the data is recorded as it
came, an event has a largest size, and ids and reconnection times are not kept, since nobody reconnects.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from memoflow.canonical import MAX_DEPTH, StrictJSONError, parse_strict
from memoflow.providers.base import UnreadableReply

__all__ = ["MAX_EVENT_BYTES", "MAX_JSON_DEPTH", "SSEDecoder", "ServerSentEvent", "encode_event", "event_json"]

MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
"""Largest event in bytes; as large as the largest whole reply, because the last event holds one."""

MAX_JSON_DEPTH: Final = MAX_DEPTH
"""Levels of JSON read from a provider: what is deeper has no digest, and could not be sent back."""

_BOM: Final = b"\xef\xbb\xbf"
_DONE: Final = "[DONE]"
_UNNAMED: Final = "message"
_NAMED, _DATA, _OBJECT = b"event: ", b"data: ", b"data: {"


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
            # No size means no line of an event yet: here a whole one may begin.
            taken, event = (0, None) if self._size else self._whole(lines, at)
            if not taken:
                taken, event = 1, self._line(lines[at])
            if event is not None:
                yield event
            at += taken
        # A line end split over two chunks must not count as two.
        self._skip_newline = chunk.endswith(b"\r") or (self._skip_newline and not chunk)
        if tail:
            self._grow(len(tail))
            self._partial += tail

    def _whole(self, lines: list[bytes], at: int) -> tuple[int, ServerSentEvent | None]:
        """How many of these lines are one event in its usual form, and that event unless it is left out.

        Nearly all events are: a name or none, one line with a JSON object, and the blank line. What has
        another form, or is not as it should be, is left to be read line by line.
        """
        name = lines[at]
        data_at = at + 1 if name.startswith(_NAMED) else at
        # Before the first line has ended there may be a BOM to take away.
        if not self._started or data_at + 1 >= len(lines) or lines[data_at + 1]:
            return 0, None
        data, named = lines[data_at], data_at > at
        if not data.startswith(_OBJECT) or len(data) + (len(name) if named else 0) > self._max:
            return 0, None
        taken = data_at + 2 - at
        # Of the bulk of a stream that nobody wants nothing is built.
        if named and name.endswith(self._skipped_names, len(_NAMED)) and data.isascii() and name.isascii():
            return taken, None
        try:
            event = (name[len(_NAMED) :].decode() if named else "") or _UNNAMED
            text = data[len(_DATA) :].decode()
        except UnicodeDecodeError:
            return 0, None
        return taken, None if event.endswith(self._skipped) else ServerSentEvent(event, text)

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
        lines, event = self._data, self._event or _UNNAMED
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
    return value if "type" in value or event.event == _UNNAMED else {"type": event.event, **value}


def encode_event(event: dict[str, Any]) -> bytes:
    """An event as it stands in a stream, named by its ``type`` if it has one."""
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n".encode()
