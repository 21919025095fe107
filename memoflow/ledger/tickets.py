"""What callers of the writer hold until their operations are recorded: futures, also of event loops."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from memoflow.ledger.transaction import Operation, Outcome

__all__ = ["Group", "Ticket", "deliver"]


class Ticket:
    """One operation that is going to be recorded, and who waits for it."""

    __slots__ = ("future", "loop", "operation")

    def __init__(self, operation: Operation[Any], loop: asyncio.AbstractEventLoop | None) -> None:
        self.operation = operation
        self.loop = loop
        self.future: Any
        if loop is None:
            self.future = Future()
            # What was submitted is going to be recorded; there is nothing to cancel.
            self.future.set_running_or_notify_cancel()
        else:
            self.future = loop.create_future()


class Group:
    """Operations submitted together; they land in one batch, in order.

    Args:
        loop: the event loop whose futures the caller awaits; without one they block a thread.
    """

    __slots__ = ("tickets",)

    def __init__(
        self, operations: Sequence[Operation[Any]], loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.tickets = [Ticket(operation, loop) for operation in operations]

    def futures(self) -> list[Any]:
        """One for each operation."""
        return [ticket.future for ticket in self.tickets]


def deliver(tickets: Iterable[Ticket], outcomes: Iterable[Outcome]) -> None:
    """Tell callers what became of their operations; an event loop is woken once for all of its own."""
    of_loops: dict[asyncio.AbstractEventLoop, list[tuple[Any, Outcome]]] = defaultdict(list)
    for ticket, outcome in zip(tickets, outcomes, strict=True):
        if ticket.loop is None:
            _resolve(ticket.future, outcome)
        else:
            of_loops[ticket.loop].append((ticket.future, outcome))
    for loop, resolved in of_loops.items():
        with suppress(RuntimeError):  # The loop is closed, so nobody waits any more.
            loop.call_soon_threadsafe(_resolve_all, resolved)


def _resolve_all(resolved: list[tuple[Any, Outcome]]) -> None:
    for future, outcome in resolved:
        _resolve(future, outcome)


def _resolve(future: Any, outcome: Outcome) -> None:
    if future.done():
        return
    if outcome.error is not None:
        future.set_exception(outcome.error)
    else:
        future.set_result(outcome.value)
