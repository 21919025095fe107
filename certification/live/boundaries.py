"""The boundaries that a run crosses, and how each must end: for whoever runs them and whoever verifies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["ACCOUNT", "BOUNDARIES", "CALLS", "HOSTS", "Boundary", "Ending"]

ACCOUNT: Final = "live"
"""The account with the limits of a whole run. Each boundary has one of its own below it."""

HOSTS: Final[Mapping[str, str]] = {"openai": "api.openai.com", "anthropic": "api.anthropic.com"}
"""The one host of each provider that counts as the provider itself."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How one provider request must end.

    Attributes:
        event: what the journal says after the reservation.
        finishes: the finish reasons that will do.
        effects: the tool calls that run before the next request.
    """

    state: str
    reservation: str
    reason: str | None
    event: str
    finishes: tuple[str, ...]
    effects: int = 0


@dataclass(frozen=True, slots=True)
class Boundary:
    """A boundary between memoflow and a provider, and its requests in order."""

    name: str
    streamed: bool
    endings: tuple[Ending, ...]

    @property
    def account(self) -> str:
        """The account that its calls are charged to."""
        return f"{ACCOUNT}/{self.name}"


# A reply that its cap cut short is as terminal, and as settled, as one that was not.
_ANSWERED: Final = Ending("SUCCEEDED", "SETTLED", None, "settle", ("stop", "length"))
_CALLED: Final = Ending("SUCCEEDED", "SETTLED", None, "settle", ("tool_calls",), effects=1)
_LEFT: Final = Ending("OUTCOME_UNKNOWN", "RECONCILE", "CANCELLED", "unknown", ("cancelled",))

BOUNDARIES: Final = (
    Boundary("response", streamed=False, endings=(_ANSWERED,)),
    Boundary("stream", streamed=True, endings=(_ANSWERED,)),
    Boundary("tools", streamed=False, endings=(_CALLED, _ANSWERED)),
    Boundary("cancellation", streamed=True, endings=(_LEFT,)),
)
"""A terminal reply, a terminal stream, a tool call with its continuation, a cancellation after dispatch."""

CALLS: Final = sum(len(boundary.endings) for boundary in BOUNDARIES)
"""Provider requests of a whole run."""
