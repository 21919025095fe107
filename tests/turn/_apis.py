"""The APIs that a world can speak: how a scenario's request is put into each, and how its replies are read.

A scenario's request has the keys of the Responses API. What another API calls otherwise is translated, what
it has no word for is left out, and every other key stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

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

__all__ = ["APIS", "SpokenApi"]

Body = dict[str, Any]
Told = tuple[str, str, bool]

# Only a response has these.
_OF_RESPONSES = ("include", "store", "text", "truncation")


@dataclass(frozen=True)
class SpokenApi:
    """One API.

    Attributes:
        name: its name in tests.
        adapter: the blocking adapter, and ``async_adapter`` its twin.
        client: the class of client that the adapter takes, and ``async_client`` its twin.
        connect: makes a client of a provider, and ``async_connect`` its twin.
        route: where its requests arrive.
        request: a scenario's request in its words.
        text: what a reply says.
        told: what a request tells the model about calls: (call id, text, whether it is marked as an error).
    """

    name: str
    adapter: type[Any]
    async_adapter: type[Any]
    client: type[Any]
    async_client: type[Any]
    connect: Callable[[SimulatedProvider], Any]
    async_connect: Callable[[SimulatedProvider], Any]
    route: str
    request: Callable[[Body], Body]
    text: Callable[[Any], str]
    told: Callable[[Body], list[Told]] = lambda body: []


def _as_chat(request: Body) -> Body:
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


def _said_in_chat(response: Any) -> str:
    return response.choices[0].message.content or ""


def _said_in_message(response: Any) -> str:
    return "".join(block.text for block in response.content if block.type == "text")


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


APIS: dict[str, SpokenApi] = {
    api.name: api
    for api in (
        SpokenApi(
            name="responses",
            adapter=OpenAIResponses,
            async_adapter=AsyncOpenAIResponses,
            client=OpenAI,
            async_client=AsyncOpenAI,
            connect=lambda provider: provider.client(),
            async_connect=lambda provider: provider.async_client(),
            route="POST /v1/responses",
            request=dict,
            text=lambda response: str(response.output_text),
            told=_told_in_response,
        ),
        SpokenApi(
            name="chat",
            adapter=OpenAIChat,
            async_adapter=AsyncOpenAIChat,
            client=OpenAI,
            async_client=AsyncOpenAI,
            connect=lambda provider: provider.client(),
            async_connect=lambda provider: provider.async_client(),
            route="POST /v1/chat/completions",
            request=_as_chat,
            text=_said_in_chat,
            told=_told_in_chat,
        ),
        SpokenApi(
            name="messages",
            adapter=AnthropicMessages,
            async_adapter=AsyncAnthropicMessages,
            client=Anthropic,
            async_client=AsyncAnthropic,
            connect=lambda provider: provider.anthropic_client(),
            async_connect=lambda provider: provider.async_anthropic_client(),
            route="POST /v1/messages",
            request=_as_message,
            text=_said_in_message,
            told=_told_in_message,
        ),
        SpokenApi(
            name="embeddings",
            adapter=OpenAIEmbeddings,
            async_adapter=AsyncOpenAIEmbeddings,
            client=OpenAI,
            async_client=AsyncOpenAI,
            connect=lambda provider: provider.client(),
            async_connect=lambda provider: provider.async_client(),
            route="POST /v1/embeddings",
            request=dict,
            text=lambda response: repr([one.embedding for one in response.data]),
        ),
    )
}
