"""The three APIs that generate, as tests ask them: one record of each, so that one test can hold for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

from memoflow import Tool
from memoflow.anthropic import AnthropicMessages, AsyncAnthropicMessages
from memoflow.openai import AsyncOpenAIChat, AsyncOpenAIResponses, OpenAIChat, OpenAIResponses
from tests.turn._asks import BUDGET, LOOP, Ask

__all__ = ["APIS", "CHAT", "MESSAGES", "RESPONSES", "Api"]


@dataclass(frozen=True)
class Api:
    """One API: its classes, its requests, and what a reply of it says.

    Attributes:
        path: where a request is posted.
        cap: the field of the output cap.
        adapters: memoflow's, blocking and async.
        clients: the SDK's, blocking and async.
        said: the text of a reply.
    """

    name: Literal["responses", "chat", "messages"]
    path: str
    cap: str
    adapters: tuple[Any, Any]
    clients: tuple[Any, Any]
    said: Callable[[Any], str]

    def __str__(self) -> str:
        return self.name

    def request(
        self, text: str, model: str, cap: int | None = None, more: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """A request that says this, with an output cap if one is given."""
        told = {"input": text} if self is RESPONSES else {"messages": [{"role": "user", "content": text}]}
        return {"model": model, **told, **({} if cap is None else {self.cap: cap}), **(more or {})}

    def ask(
        self,
        how: Literal["run", "run_with_tools", "stream"],
        text: str = "Hello",
        *,
        model: str = "some-model",
        cap: int | None = None,
        tools: Sequence[Tool[..., Any]] = (),
        rounds: int = 3,
        watch: Callable[[Any], object] = lambda event: None,
        more: dict[str, Any] | None = None,
        **options: Any,
    ) -> Ask:
        """One call under the replay key ``k``; with tools a loop of at most so many rounds."""
        return Ask(
            how=how,
            request=self.request(text, model, cap, more),
            tools=tuple(tools) or None,
            continuation=[LOOP] * (rounds - 1) if tools else None,
            options={"budget": LOOP if tools else BUDGET, "replay_key": "k", **options},
            watch=watch,
        )


def _text_of_message(reply: Any) -> str:
    return "".join(block.text for block in reply.content if block.type == "text")


RESPONSES = Api(
    "responses",
    "/v1/responses",
    "max_output_tokens",
    (OpenAIResponses, AsyncOpenAIResponses),
    (OpenAI, AsyncOpenAI),
    lambda reply: reply.output_text,
)
CHAT = Api(
    "chat",
    "/v1/chat/completions",
    "max_tokens",
    (OpenAIChat, AsyncOpenAIChat),
    (OpenAI, AsyncOpenAI),
    lambda reply: reply.choices[0].message.content or "",
)
MESSAGES = Api(
    "messages",
    "/v1/messages",
    "max_tokens",
    (AnthropicMessages, AsyncAnthropicMessages),
    (Anthropic, AsyncAnthropic),
    _text_of_message,
)
APIS = (RESPONSES, CHAT, MESSAGES)
