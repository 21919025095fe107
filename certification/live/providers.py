"""The two providers: their SDK's client, memoflow's adapter, and what each boundary asks for.

The requests are published here, so no evidence has to repeat them. They name no output cap: memoflow sends the
one that fits the reservation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import httpx2

from memoflow import tool

__all__ = ["ANTHROPIC", "OPENAI", "Provider", "double"]

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
    """A provider and its official SDK.

    Attributes:
        name: also the SDK's distribution.
        base_url: where its real API is.
        connect: makes the SDK's client from a key, a base URL and an HTTP client.
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


def _openai_client(key: str, base_url: str, http: httpx2.Client) -> Any:
    from openai import OpenAI

    # Its retries stay as they are by default: that none is made is memoflow's doing, call by call.
    return OpenAI(api_key=key, base_url=base_url, http_client=http)


def _openai_adapter(client: Any) -> Any:
    from memoflow.openai import OpenAIResponses

    return OpenAIResponses(client)


def _openai_request(boundary: str, model: str) -> dict[str, Any]:
    more = {"parallel_tool_calls": False} if boundary == "tools" else {}
    return {"model": model, "input": TEXTS[boundary], **more}


def _anthropic_client(key: str, base_url: str, http: httpx2.Client) -> Any:
    from anthropic import Anthropic

    return Anthropic(api_key=key, base_url=base_url, http_client=http)


def _anthropic_adapter(client: Any) -> Any:
    from memoflow.anthropic import AnthropicMessages

    return AnthropicMessages(client)


def _anthropic_request(boundary: str, model: str) -> dict[str, Any]:
    alone = {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    messages = [{"role": "user", "content": TEXTS[boundary]}]
    return {"model": model, "messages": messages, **(alone if boundary == "tools" else {})}


OPENAI: Final = Provider(
    "openai",
    "responses",
    "https://api.openai.com/v1",
    _openai_client,
    _openai_adapter,
    _openai_request,
)
ANTHROPIC: Final = Provider(
    "anthropic",
    "messages",
    "https://api.anthropic.com",
    _anthropic_client,
    _anthropic_adapter,
    _anthropic_request,
)
