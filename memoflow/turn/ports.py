"""What the drivers need from the outside: a provider that can be asked, and a ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from memoflow.ledger.database import Database
from memoflow.ledger.writer import Writer
from memoflow.providers.base import Reply
from memoflow.turn.steps import Answered, Arrived, Interrupted, NotSent, Wire

__all__ = ["Answer", "AsyncEvents", "AsyncPort", "Ledger", "SyncEvents", "SyncPort"]

Answer = Arrived | Answered | NotSent | Interrupted


@dataclass(frozen=True, slots=True, eq=False)
class Ledger:
    """The database and the writer of a runtime."""

    database: Database
    writer: Writer


class SyncEvents(Protocol):
    """An open stream: the SDK's own events as they come, then the answer they make."""

    @property
    def response_id(self) -> str | None:
        """The provider's id of the reply, once an event has named it."""

    def __iter__(self) -> Iterator[Any]:
        """The events. Ends quietly whatever happens; `answer` tells how."""

    def answer(self) -> Answer:
        """How the stream ended, or has ended so far."""

    def close(self) -> None:
        """Close the connection; the iteration ends."""


class SyncPort(Protocol):
    """A provider behind a blocking SDK client. Methods translate; they never raise an `Exception`."""

    def send(self, wire: Wire) -> Answer:
        """Send a request and wait for the whole reply."""

    def stream(self, wire: Wire) -> SyncEvents:
        """Send a request whose reply is streamed. Nothing is sent before the iteration starts."""

    def repeat(self, reply: Reply) -> Iterable[Any]:
        """Events of a stream that ends in this reply, as the SDK would give them."""

    def count(self, body: dict[str, Any]) -> int:
        """The input tokens of a request, by the provider's own counting; may raise."""


class AsyncEvents(Protocol):
    """The async twin of `SyncEvents`."""

    @property
    def response_id(self) -> str | None:
        """The provider's id of the reply, once an event has named it."""

    def __aiter__(self) -> AsyncIterator[Any]:
        """The events. Ends quietly, or with the task's own cancellation."""

    def answer(self) -> Answer:
        """How the stream ended, or has ended so far."""

    async def close(self) -> None:
        """Close the connection; the iteration ends."""


class AsyncPort(Protocol):
    """The async twin of `SyncPort`. Cancellation passes through."""

    async def send(self, wire: Wire) -> Answer:
        """Send a request and wait for the whole reply."""

    def stream(self, wire: Wire) -> AsyncEvents:
        """Send a request whose reply is streamed."""

    def repeat(self, reply: Reply) -> Iterable[Any]:
        """Events of a stream that ends in this reply, as the SDK would give them."""

    async def count(self, body: dict[str, Any]) -> int:
        """The input tokens of a request, by the provider's own counting; may raise."""
