"""What a type checker must see of every API's adapters. Checked by mypy and pyright, never run."""

from __future__ import annotations

from typing import assert_type

from anthropic import Anthropic, AsyncAnthropic
from anthropic.types import Message, RawMessageStreamEvent
from openai import AsyncOpenAI, OpenAI
from openai.types import CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from memoflow import Budget, tool
from memoflow.anthropic import (
    AnthropicMessages,
    AsyncAnthropicMessages,
    AsyncMessageStream,
    MessagesResult,
    MessageStream,
)
from memoflow.openai import (
    AsyncChatStream,
    AsyncOpenAIChat,
    AsyncOpenAIEmbeddings,
    ChatResult,
    ChatStream,
    EmbeddingsResult,
    OpenAIChat,
    OpenAIEmbeddings,
)

chat = OpenAIChat(OpenAI(), cap_field="max_tokens", max_reply_bytes=1_000)
async_chat = AsyncOpenAIChat(AsyncOpenAI())
embeddings = OpenAIEmbeddings(OpenAI())
async_embeddings = AsyncOpenAIEmbeddings(AsyncOpenAI())
messages = AnthropicMessages(Anthropic(), strict_tools=False)
async_messages = AsyncAnthropicMessages(AsyncAnthropic())

OpenAIChat(AsyncOpenAI())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
OpenAIChat(OpenAI(), cap_field="tokens")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
OpenAIEmbeddings(Anthropic())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
AnthropicMessages(OpenAI())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
AsyncAnthropicMessages(Anthropic())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

TWO = Budget(total_tokens=2_000, tool_calls=2)


@tool(version="v1", effect="read_only")
def look(city: str) -> dict[str, int]:
    return {city: 1}


def completions() -> None:
    result = chat.run({"model": "gpt"}, budget=TWO, replay_key="a")
    assert_type(result, ChatResult)
    assert_type(result.response, ChatCompletion)
    looped = chat.run_with_tools({"model": "gpt"}, [look], continuation_budgets=[TWO], budget=TWO)
    assert_type(looped.tool_results[0].output, str)
    assert_type(looped.response.choices[0].message.content, str | None)
    with chat.stream({"model": "gpt"}, [look], budget=TWO, replay_key="b") as stream:
        assert_type(stream, ChatStream)
        for event in stream:
            assert_type(event, ChatCompletionChunk)
    assert_type(stream.result, ChatResult)
    chat.run({"model": "gpt"}, output_cap="none")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def awaited_completions() -> None:
    assert_type(await async_chat.run({"model": "gpt"}), ChatResult)
    assert_type((await async_chat.run_with_tools({"model": "gpt"}, [look])).response, ChatCompletion)
    async with async_chat.stream({"model": "gpt"}) as stream:
        assert_type(stream, AsyncChatStream)
        async for event in stream:
            assert_type(event, ChatCompletionChunk)
    assert_type(stream.result, ChatResult)


def told() -> None:
    result = messages.run({"model": "claude", "max_tokens": 100}, budget=TWO)
    assert_type(result, MessagesResult)
    assert_type(result.response, Message)
    assert_type(messages.run_with_tools({"model": "claude"}, [look], budget=TWO), MessagesResult)
    with messages.stream({"model": "claude"}, budget=TWO) as stream:
        assert_type(stream, MessageStream)
        for event in stream:
            assert_type(event, RawMessageStreamEvent)
    assert_type(stream.result.response, Message)


async def awaited_messages() -> None:
    assert_type(await async_messages.run({"model": "claude"}), MessagesResult)
    assert_type(await async_messages.run_with_tools({"model": "claude"}, [look]), MessagesResult)
    async with async_messages.stream({"model": "claude"}, [look]) as stream:
        assert_type(stream, AsyncMessageStream)
        async for event in stream:
            assert_type(event, RawMessageStreamEvent)
    assert_type(stream.result.response, Message)


def embedded() -> None:
    result = embeddings.run({"model": "embed", "input": ["a", "b"]}, budget=Budget(total_tokens=100))
    assert_type(result, EmbeddingsResult)
    assert_type(result.response, CreateEmbeddingResponse)
    assert_type(result.response.data[0].embedding, list[float])
    embeddings.stream({})  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


async def awaited_embeddings() -> None:
    assert_type(await async_embeddings.run({"model": "embed", "input": "a"}), EmbeddingsResult)
