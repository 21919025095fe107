"""What may begin and end together with a call that is a single request."""

from __future__ import annotations

from typing import Any, Protocol

from memoflow.ledger.invocations import Started, StartInvocation
from memoflow.ledger.transaction import Operation
from memoflow.turn.outcome import Verdict

__all__ = ["Bracket"]


class Bracket(Protocol):
    """What begins and ends with the only request of a call, in the commits that the request makes anyway."""

    def opening(self, start: StartInvocation) -> Operation[Any]:
        """What is recorded instead of the start alone; if it is refused, nothing has begun."""

    def opened(self, started: Started) -> None:
        """It is recorded; the request is about to be sent."""

    def closing(self, verdict: Verdict, invocation_id: str) -> tuple[Operation[Any], ...]:
        """What is recorded together with the settlement, after it."""
