"""Budgeted, durable calls of OpenAI's APIs over the official SDK."""

from __future__ import annotations

from memoflow.openai._chat import AsyncChatStream, AsyncOpenAIChat, ChatResult, ChatStream, OpenAIChat
from memoflow.openai._embeddings import AsyncOpenAIEmbeddings, EmbeddingsResult, OpenAIEmbeddings
from memoflow.openai._responses import (
    AsyncOpenAIResponses,
    AsyncResponseStream,
    OpenAIResponses,
    ResponsesResult,
    ResponseStream,
)
from memoflow.sdk.options import CallOptions

__all__ = [
    "AsyncChatStream",
    "AsyncOpenAIChat",
    "AsyncOpenAIEmbeddings",
    "AsyncOpenAIResponses",
    "AsyncResponseStream",
    "CallOptions",
    "ChatResult",
    "ChatStream",
    "EmbeddingsResult",
    "OpenAIChat",
    "OpenAIEmbeddings",
    "OpenAIResponses",
    "ResponseStream",
    "ResponsesResult",
]
