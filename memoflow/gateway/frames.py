"""Streams as bytes: where their events end, and the one that a client did not ask for."""

from __future__ import annotations

import json
import re
from typing import Final

__all__ = ["FrameCutter", "UsageFilter", "at_boundary"]

_BLANK: Final = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_NO_CHOICES: Final = re.compile(rb'"choices"\s*:\s*\[\s*\]')
_ENDS: Final = (b"\n\n", b"\r\r", b"\r\n\r\n", b"\n\r\n", b"\r\n\n")


class FrameCutter:
    """Cuts a stream into its events, as the bytes they are; all pieces together are the stream.

    What is kept back is at most one event, whose size is bounded.

    Args:
        max_bytes: largest event; a longer one is given as it comes.
    """

    __slots__ = ("_max", "_rest")

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that this chunk finished, each with the blank line that ends it."""
        start = max(0, len(self._rest) - 3)
        data, at = self._rest + chunk, 0
        frames = []
        for match in _BLANK.finditer(data, start):
            frames.append(data[at : match.end()])
            at = match.end()
        self._rest = data[at:]
        if len(self._rest) > self._max:
            frames.append(self.rest())
        return frames

    def rest(self) -> bytes:
        """What has come of an event that has not ended; it is given out once."""
        rest, self._rest = self._rest, b""
        return rest


class UsageFilter:
    """Leaves one event out of a stream of chat completions: the usage that only the gateway has asked for.

    A client that did not ask for it may take every chunk for one that has a choice.
    """

    __slots__ = ("_cutter",)

    def __init__(self, max_bytes: int) -> None:
        self._cutter = FrameCutter(max_bytes)

    def feed(self, chunk: bytes) -> bytes:
        """What the client is to have of these bytes and those before."""
        return b"".join(frame for frame in self._cutter.feed(chunk) if not _is_usage(frame))

    def rest(self) -> bytes:
        """What is left when the stream has ended."""
        return self._cutter.rest()


def _is_usage(frame: bytes) -> bool:
    if not _NO_CHOICES.search(frame):
        return False
    lines = [line[5:] for line in frame.splitlines() if line.startswith(b"data:")]
    try:
        chunk = json.loads(b"\n".join(lines))
    except ValueError:
        return False
    return isinstance(chunk, dict) and chunk.get("choices") == [] and isinstance(chunk.get("usage"), dict)


def at_boundary(tail: bytes) -> bool:
    """Whether a stream that ends in these bytes, four if there are as many, is between two events."""
    return not tail or tail.endswith(_ENDS)
