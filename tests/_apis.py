"""The APIs, as tests ask them: one record of each, so that one test can hold for all.

The requests of scenarios have the keys of the Responses API. What another API calls otherwise is translated,
what it has no word for is left out, and every other key stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

from memoflow import Tool
from memoflow.anthropic import AnthropicMessages, AsyncAnthropicMessages
from memoflow.openai import (
    AsyncOpenAIChat,
    AsyncOpenAIEmbeddings,
    AsyncOpenAIResponses,
    OpenAIChat,
    OpenAIEmbeddings,
    OpenAIResponses,
)
from memoflow.testing import SimulatedProvider
from tests.turn._asks import BUDGET, LOOP, Ask

__all__ = ["APIS", "CHAT", "EMBEDDINGS", "MESSAGES", "RESPONSES", "Api", "Told"]

Body = dict[str, Any]
Told = tuple[str, str, bool]
"""Call id and text of an answer to a call, and whether it is marked as an error."""


@dataclass(frozen=True)
class Api:
    """One API: its classes, its requests, and what a reply of it says.

    Attributes:
        path: where a request is posted.
        cap: the field of the output cap.
        adapters: memoflow's, blocking and async.
        clients: the SDK's, blocking and async.
        said: the text of a reply.
        spoken: a scenario's request in the words of the API.
        told: the answers to calls that a request holds, in order.
    """

    name: Literal["responses", "chat", "messages", "embeddings"]
    path: str
    cap: str
    adapters: tuple[Any, Any]
    clients: tuple[Any, Any]
    said: Callable[[Any], str]
    spoken: Callable[[Body], Body] = field(default=dict, repr=False)
    told: Callable[[Body], list[Told]] = field(default=lambda body: [], repr=False)

    def client(self, provider: SimulatedProvider) -> Any:
        """A client of the SDK for a provider."""
        return provider.anthropic_client() if self is MESSAGES else provider.client()

    def async_client(self, provider: SimulatedProvider) -> Any:
        """An async client of the SDK for a provider."""
        return provider.async_anthropic_client() if self is MESSAGES else provider.async_client()

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


# Only a response has these.
_OF_RESPONSES = ("include", "store", "text", "truncation")


def _as_chat(request: Body) -> Body:
    if "input" not in request:
        return request
    body = {key: value for key, value in request.items() if key not in (*_OF_RESPONSES, "input")}
    body["messages"] = _messages(request["input"])
    if "max_output_tokens" in body:
        body["max_completion_tokens"] = body.pop("max_output_tokens")
    if "tools" in body:
        body["tools"] = [_nested(tool) for tool in body["tools"]]
    return body


def _nested(tool: Body) -> Body:
    kind = tool["type"]
    return {"type": kind, kind: {key: value for key, value in tool.items() if key != "type"}}


def _as_message(request: Body) -> Body:
    if "input" not in request:
        return request
    body = {key: value for key, value in request.items() if key not in (*_OF_RESPONSES, "input")}
    body["messages"] = _messages(request["input"])
    if "max_output_tokens" in body:
        body["max_tokens"] = body.pop("max_output_tokens")
    if "tools" in body:
        body["tools"] = [_with_input_schema(tool) for tool in body["tools"]]
    if isinstance(body.get("tool_choice"), str):
        body["tool_choice"] = {"type": {"required": "any"}.get(body["tool_choice"], body["tool_choice"])}
    return body


def _with_input_schema(tool: Body) -> Body:
    kept = {key: value for key, value in tool.items() if key not in ("type", "parameters", "strict")}
    return {**kept, "input_schema": tool["parameters"]}


def _messages(given: Any) -> list[Body]:
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def _told_in_response(body: Body) -> list[Told]:
    items = body["input"] if isinstance(body["input"], list) else []
    return [(item["call_id"], item["output"], False) for item in items if "output" in item]


def _told_in_chat(body: Body) -> list[Told]:
    answers = (message for message in body["messages"] if message["role"] == "tool")
    return [(message["tool_call_id"], message["content"], False) for message in answers]


def _told_in_message(body: Body) -> list[Told]:
    contents = [message["content"] for message in body["messages"]]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    results = [block for block in blocks if block["type"] == "tool_result"]
    return [(block["tool_use_id"], block["content"], block.get("is_error", False)) for block in results]


def _text_of_message(reply: Any) -> str:
    return "".join(block.text for block in reply.content if block.type == "text")


RESPONSES = Api(
    "responses",
    "/v1/responses",
    "max_output_tokens",
    (OpenAIResponses, AsyncOpenAIResponses),
    (OpenAI, AsyncOpenAI),
    lambda reply: reply.output_text,
    told=_told_in_response,
)
CHAT = Api(
    "chat",
    "/v1/chat/completions",
    "max_tokens",
    (OpenAIChat, AsyncOpenAIChat),
    (OpenAI, AsyncOpenAI),
    lambda reply: reply.choices[0].message.content or "",
    _as_chat,
    _told_in_chat,
)
MESSAGES = Api(
    "messages",
    "/v1/messages",
    "max_tokens",
    (AnthropicMessages, AsyncAnthropicMessages),
    (Anthropic, AsyncAnthropic),
    _text_of_message,
    _as_message,
    _told_in_message,
)
EMBEDDINGS = Api(
    "embeddings",
    "/v1/embeddings",
    "",
    (OpenAIEmbeddings, AsyncOpenAIEmbeddings),
    (OpenAI, AsyncOpenAI),
    lambda reply: repr([one.embedding for one in reply.data]),
)
APIS = (RESPONSES, CHAT, MESSAGES)
"""Those in which there is a conversation."""
