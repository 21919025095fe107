"""The three APIs that a case is played on: how each is asked, and what stands where on its wire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from memoflow.anthropic import AnthropicMessages, AsyncAnthropicMessages
from memoflow.openai import AsyncOpenAIChat, AsyncOpenAIResponses, OpenAIChat, OpenAIResponses
from memoflow.testing import SimulatedProvider
from memoflow.testing._anthropic_clients import loopback_client as anthropic_client
from memoflow.testing._clients import loopback_client as openai_client

__all__ = ["CHAT", "FACES", "MESSAGES", "RESPONSES", "Face"]

Body = dict[str, Any]


@dataclass(frozen=True)
class Face:
    """One API with its adapters.

    Attributes:
        name: what its tests are called after.
        path: its route.
        adapter: its blocking adapter.
        twin: its async adapter.
        field: the field that holds the conversation.
        cap: the field of the output cap.
        said: the text of a reply.
        answered: call id and text of each answer that a request holds, in order.
    """

    name: str
    path: str
    adapter: Any
    twin: Any
    field: str
    cap: str
    said: Callable[[Any], str]
    answered: Callable[[Body], list[tuple[str, str]]]

    def __repr__(self) -> str:
        return self.name

    def asking(self, prompt: str = "Do it.", **fields: Any) -> Body:
        """A request with one message of the user."""
        return {"model": "m-1", self.field: [{"role": "user", "content": prompt}], **fields}

    def over(self, provider: SimulatedProvider, **options: Any) -> Any:
        """The adapter over the provider's own client of the SDK."""
        client = provider.anthropic_client if self is MESSAGES else provider.client
        return self.adapter(client(**options))

    @contextmanager
    def at(self, url: str, **options: Any) -> Iterator[Any]:
        """The adapter over a client of a provider that is served there; the client is closed at the end."""
        make = anthropic_client if self is MESSAGES else openai_client
        with make(url, **options) as client:
            yield self.adapter(client)

    def over_async(self, provider: SimulatedProvider) -> Any:
        """The async adapter likewise."""
        return self.twin((provider.async_anthropic_client if self is MESSAGES else provider.async_client)())


def _items(body: Body) -> list[tuple[str, str]]:
    return [(item["call_id"], item["output"]) for item in body["input"] if "output" in item]


def _tool_messages(body: Body) -> list[tuple[str, str]]:
    return [(one["tool_call_id"], one["content"]) for one in body["messages"] if one["role"] == "tool"]


def _tool_results(body: Body) -> list[tuple[str, str]]:
    contents = [one["content"] for one in body["messages"] if isinstance(one["content"], list)]
    blocks = [block for content in contents for block in content if block["type"] == "tool_result"]
    return [(block["tool_use_id"], block["content"]) for block in blocks]


def _texts(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


RESPONSES: Final = Face(
    "responses",
    "/v1/responses",
    OpenAIResponses,
    AsyncOpenAIResponses,
    "input",
    "max_output_tokens",
    lambda reply: str(reply.output_text),
    _items,
)
CHAT: Final = Face(
    "chat",
    "/v1/chat/completions",
    OpenAIChat,
    AsyncOpenAIChat,
    "messages",
    "max_completion_tokens",
    lambda reply: reply.choices[0].message.content or "",
    _tool_messages,
)
MESSAGES: Final = Face(
    "messages",
    "/v1/messages",
    AnthropicMessages,
    AsyncAnthropicMessages,
    "messages",
    "max_tokens",
    _texts,
    _tool_results,
)
FACES: Final = (RESPONSES, CHAT, MESSAGES)
