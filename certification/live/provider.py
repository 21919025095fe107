"""What a run needs to know of a provider, and what every run asks for.

The requests are published here, so no evidence has to repeat them. They name no output cap: memoflow sends
the one that fits the reservation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import httpx2

from memoflow import tool

__all__ = ["TEXTS", "Provider", "double"]

TEXTS: Final[Mapping[str, str]] = {
    "response": "Reply with the one word: ready.",
    "stream": "Reply with these words: one two three.",
    "tools": "Call double with n = 3.",
    "cancellation": "Tell a very long story.",
}
"""What the model is told at each boundary."""


@tool(version="v1", effect="read_only")
def double(n: int) -> dict[str, int]:
    """Doubles a whole number and returns the result."""
    return {"n": 2 * n}


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider, its official SDK, and memoflow's adapter for it.

    Attributes:
        name: also the SDK's distribution.
        base_url: where its real API is.
        connect: makes the SDK's client from a key, a base URL and an HTTP client. Its retries stay as they
            are by default: that none is made is memoflow's doing, call by call.
        adapt: memoflow's adapter over such a client.
        request: the request of a boundary, for a model.
    """

    name: Literal["openai", "anthropic"]
    api: Literal["responses", "messages"]
    base_url: str
    connect: Callable[[str, str, httpx2.Client], Any] = field(repr=False)
    adapt: Callable[[Any], Any] = field(repr=False)
    request: Callable[[str, str], dict[str, Any]] = field(repr=False)

    def variable(self, name: str) -> str:
        """The name of an environment variable of the SDK."""
        return f"{self.name.upper()}_{name}"

    def setting(self, name: str) -> str:
        """The name of an environment variable of this program."""
        return f"MEMOFLOW_{self.name.upper()}_{name}"
