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


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One dispatched event; ``event`` is ``message`` where the stream names none."""

    event: str
    data: str = field(repr=False)


class SSEDecoder:
    """Turns chunks of a stream, cut anywhere, into events.

    Memory is bounded by ``max_event_bytes``. An event that the end of the stream cut off is never
    returned.
    """

    __slots__ = ("_data", "_event", "_max", "_partial", "_size", "_skip_newline", "_started")

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
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
        lines = chunk.splitlines(keepends=True)
        tail = lines.pop() if lines and not lines[-1].endswith((b"\n", b"\r")) else b""
        for line in lines:
            if (event := self._line(line.rstrip(b"\r\n"))) is not None:
                yield event
        # A line end split over two chunks must not count as two.
        self._skip_newline = chunk.endswith(b"\r") or (self._skip_newline and not chunk)
        self._grow(len(tail))
        self._partial += tail

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._max:
            raise UnreadableReply("TOO_LARGE")

    def _line(self, end: bytes) -> ServerSentEvent | None:
        self._grow(len(end))
        line = bytes(self._partial) + end if self._partial else end
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
        data, event = self._data, self._event or "message"
        self._data, self._event, self._size = [], "", 0
        return ServerSentEvent(event, "\n".join(data)) if data else None


def event_json(event: ServerSentEvent, *, max_bytes: int = MAX_EVENT_BYTES) -> dict[str, Any] | None:
    """The JSON object of an event, or None for what carries none (``[DONE]``, other JSON values).

    An object without a ``type`` gets the name of its event.

    Raises:
        UnreadableReply: the data is not strict JSON (``NOT_JSON``).
    """
    if event.data.strip() == "[DONE]":
        return None
    try:
        value = parse_strict(event.data, max_bytes=max_bytes, max_depth=MAX_JSON_DEPTH)
    except StrictJSONError:
        raise UnreadableReply("NOT_JSON") from None
    if not isinstance(value, dict):
        return None
    return value if "type" in value or event.event == "message" else {"type": event.event, **value}
