"""`OpenAIChat` and `AsyncOpenAIChat`: budgeted, durable calls of Chat Completions."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

import openai
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from memoflow.providers.base import MAX_REPLY_BYTES
from memoflow.providers.openai_chat import OpenAIChatCodec
from memoflow.sdk.api import Api, check_client
from memoflow.sdk.calls import AsyncCalls, Calls
from memoflow.sdk.results import AsyncCallStream, CallResult, CallStream

__all__ = ["AsyncChatStream", "AsyncOpenAIChat", "ChatResult", "ChatStream", "OpenAIChat"]

CapField: TypeAlias = Literal["max_completion_tokens", "max_tokens"]
ChatResult: TypeAlias = CallResult[ChatCompletion]
ChatStream: TypeAlias = CallStream[ChatCompletionChunk, ChatCompletion]
AsyncChatStream: TypeAlias = AsyncCallStream[ChatCompletionChunk, ChatCompletion]

_API: Final = Api(sdk=openai, path="/chat/completions", reply=ChatCompletion, event=ChatCompletionChunk)
# The hosts whose newer models refuse ``max_tokens``. Other servers may ignore what they do not know, and a
# cap that is ignored bounds nothing.
_OWN_HOSTS: Final = (".openai.com", ".azure.com")
_AZURE: Final = (openai.AzureOpenAI, openai.AsyncAzureOpenAI)


class OpenAIChat(Calls[OpenAIChatCodec, ChatCompletionChunk, ChatCompletion]):
    """Chat Completions over an official client, inside activities; also of a compatible server.

    Args:
        client: the caller's client. It is never changed; its retries are off for these calls.
        cap_field: the field in which an output cap is sent when the request names none. By default
            ``max_completion_tokens`` for OpenAI and Azure, and ``max_tokens`` for every other host.
        max_reply_bytes: largest reply that is read; above it the outcome is unknown.
    """

    def __init__(
        self,
        client: openai.OpenAI,
        *,
        cap_field: CapField | None = None,
        max_reply_bytes: int = MAX_REPLY_BYTES,
    ) -> None:
        check_client("OpenAIChat", client, openai.OpenAI, openai.AsyncOpenAI, "AsyncOpenAIChat")
        codec = OpenAIChatCodec(cap_field=cap_field or _cap_field(client), max_reply_bytes=max_reply_bytes)
        super().__init__(_API, client, codec, max_reply_bytes)


class AsyncOpenAIChat(AsyncCalls[OpenAIChatCodec, ChatCompletionChunk, ChatCompletion]):
    """Chat Completions over an official async client; the twin of `OpenAIChat`, with its arguments."""

    def __init__(
        self,
        client: openai.AsyncOpenAI,
        *,
        cap_field: CapField | None = None,
        max_reply_bytes: int = MAX_REPLY_BYTES,
    ) -> None:
        check_client("AsyncOpenAIChat", client, openai.AsyncOpenAI, openai.OpenAI, "OpenAIChat")
        codec = OpenAIChatCodec(cap_field=cap_field or _cap_field(client), max_reply_bytes=max_reply_bytes)
        super().__init__(_API, client, codec, max_reply_bytes)


def _cap_field(client: openai.OpenAI | openai.AsyncOpenAI) -> CapField:
    host = urlsplit(str(client.base_url)).hostname or ""
    # Azure also has hosts of other clouds and of its customers, but clients of its own.
    own = isinstance(client, _AZURE) or f".{host}".endswith(_OWN_HOSTS)
    return "max_completion_tokens" if own else "max_tokens"
