"""How an API writes what every API has: events of a stream, errors, and errors within a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from memoflow.testing._rejections import Rejection
from memoflow.testing._script import Mangled, StatusFault

__all__ = ["Dialect", "Event", "Headers"]

Event = dict[str, Any]
Headers = tuple[tuple[str, str], ...]


class Dialect(Protocol):
    """The ways one API has of its own. Nothing in here knows what a request is about."""

    def encoded(self, event: Mapping[str, Any]) -> bytes:
        """An event as it stands on the wire."""
        ...

    def error_event(self, entry: Mangled, number: int) -> Event:
        """The event that ends a stream after ``number`` events because something went wrong."""
        ...

    def repeated(self, terminal: Event, number: int) -> Event:
        """The terminal event once more, as event ``number`` of its stream."""
        ...

    def differing(self, terminal: Event) -> Event:
        """The terminal event with a snapshot that is not what was streamed, if it has a snapshot."""
        ...

    def of_status(self, fault: StatusFault) -> Rejection:
        """The rejection a scripted status stands for, completed by what the API usually sends with it."""
        ...

    def error_body(self, rejection: Rejection, headers: Sequence[tuple[str, str]]) -> dict[str, Any]:
        """The body of an error reply that has these headers."""
        ...
