"""`AnthropicMessages` and `AsyncAnthropicMessages`: budgeted, durable calls of the Messages API."""

from __future__ import annotations

from typing import Final, TypeAlias

import anthropic
from anthropic.types import Message, RawMessageStreamEvent

from memoflow.providers.anthropic_messages import COUNTED, AnthropicMessagesCodec
from memoflow.providers.base import MAX_REPLY_BYTES
from memoflow.sdk.api import Api, check_client
from memoflow.sdk.calls import AsyncCalls, Calls
from memoflow.sdk.results import AsyncCallStream, CallResult, CallStream

__all__ = [
    "AnthropicMessages",
    "AsyncAnthropicMessages",
    "AsyncMessageStream",
    "MessageStream",
    "MessagesResult",
]

MessagesResult: TypeAlias = CallResult[Message]
MessageStream: TypeAlias = CallStream[RawMessageStreamEvent, Message]
AsyncMessageStream: TypeAlias = AsyncCallStream[RawMessageStreamEvent, Message]

_API: Final = Api(
    sdk=anthropic,
    path="/v1/messages",
    reply=Message,
    event=RawMessageStreamEvent,
    count_path="/v1/messages/count_tokens",
    counted=COUNTED,
)


class AnthropicMessages(Calls[AnthropicMessagesCodec, RawMessageStreamEvent, Message]):
    """The Messages API over an official client, inside activities.

    Args:
        client: the caller's client. It is never changed; its retries are off for these calls.
        strict_tools: whether registered tools ask the provider to enforce their schema where it can; turn it
            off for a model or a compatible server that does not know ``strict``.
        max_reply_bytes: largest reply that is read; above it the outcome is unknown.
    """

    def __init__(
        self,
        client: anthropic.Anthropic,
        *,
        strict_tools: bool = True,
        max_reply_bytes: int = MAX_REPLY_BYTES,
    ) -> None:
        own, twin = anthropic.Anthropic, anthropic.AsyncAnthropic
        check_client("AnthropicMessages", client, own, twin, "AsyncAnthropicMessages")
        codec = AnthropicMessagesCodec(max_reply_bytes=max_reply_bytes, strict_tools=strict_tools)
        super().__init__(_API, client, codec, max_reply_bytes)


class AsyncAnthropicMessages(AsyncCalls[AnthropicMessagesCodec, RawMessageStreamEvent, Message]):
    """The Messages API over an official async client; the twin of `AnthropicMessages`, with its arguments."""

    def __init__(
        self,
        client: anthropic.AsyncAnthropic,
        *,
        strict_tools: bool = True,
        max_reply_bytes: int = MAX_REPLY_BYTES,
    ) -> None:
        own, twin = anthropic.AsyncAnthropic, anthropic.Anthropic
        check_client("AsyncAnthropicMessages", client, own, twin, "AnthropicMessages")
        codec = AnthropicMessagesCodec(max_reply_bytes=max_reply_bytes, strict_tools=strict_tools)
        super().__init__(_API, client, codec, max_reply_bytes)
