"""`OpenAIResponses` and `AsyncOpenAIResponses`: budgeted, durable calls of the Responses API."""

from __future__ import annotations

from typing import TypeAlias

import openai
from openai.types.responses import Response, ResponseStreamEvent

from memoflow.providers.base import MAX_REPLY_BYTES
from memoflow.providers.openai_responses import COUNTED, OpenAIResponsesCodec
from memoflow.sdk.api import Api, check_client
from memoflow.sdk.calls import AsyncCalls, Calls
from memoflow.sdk.results import AsyncCallStream, CallResult, CallStream

__all__ = [
    "AsyncOpenAIResponses",
    "AsyncResponseStream",
    "OpenAIResponses",
    "ResponseStream",
    "ResponsesResult",
]

ResponsesResult: TypeAlias = CallResult[Response]
ResponseStream: TypeAlias = CallStream[ResponseStreamEvent, Response]
AsyncResponseStream: TypeAlias = AsyncCallStream[ResponseStreamEvent, Response]

_API = Api(
    sdk=openai,
    path="/responses",
    reply=Response,
    event=ResponseStreamEvent,
    count_path="/responses/input_tokens",
    counted=COUNTED,
)


class OpenAIResponses(Calls[OpenAIResponsesCodec, ResponseStreamEvent, Response]):
    """The Responses API over an official client, inside activities.

    Args:
        client: the caller's client. It is never changed; its retries are off for these calls.
        max_reply_bytes: largest reply that is read; above it the outcome is unknown.
    """

    def __init__(self, client: openai.OpenAI, *, max_reply_bytes: int = MAX_REPLY_BYTES) -> None:
        check_client("OpenAIResponses", client, openai.OpenAI, openai.AsyncOpenAI, "AsyncOpenAIResponses")
        super().__init__(_API, client, OpenAIResponsesCodec(max_reply_bytes=max_reply_bytes), max_reply_bytes)
        self._client = client

    def retrieve(self, response_id: str) -> bytes | None:
        """A stored response as JSON, or None if there is none (any more); what ``rt.reconcile.auto`` asks."""
        client = self._client.with_options(max_retries=0)
        try:
            raw = client.responses.with_raw_response.retrieve(response_id)
        except openai.NotFoundError:
            return None
        return raw.http_response.content


class AsyncOpenAIResponses(AsyncCalls[OpenAIResponsesCodec, ResponseStreamEvent, Response]):
    """The Responses API over an official async client; the twin of `OpenAIResponses`.

    Args:
        client: the caller's client. It is never changed; its retries are off for these calls.
        max_reply_bytes: largest reply that is read; above it the outcome is unknown.
    """

    def __init__(self, client: openai.AsyncOpenAI, *, max_reply_bytes: int = MAX_REPLY_BYTES) -> None:
        check_client("AsyncOpenAIResponses", client, openai.AsyncOpenAI, openai.OpenAI, "OpenAIResponses")
        super().__init__(_API, client, OpenAIResponsesCodec(max_reply_bytes=max_reply_bytes), max_reply_bytes)
        self._client = client

    async def retrieve(self, response_id: str) -> bytes | None:
        """A stored response as JSON, or None if there is none; what ``rt.reconcile.aauto`` asks."""
        client = self._client.with_options(max_retries=0)
        try:
            raw = await client.responses.with_raw_response.retrieve(response_id)
        except openai.NotFoundError:
            return None
        return raw.http_response.content
