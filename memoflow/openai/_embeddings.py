"""`OpenAIEmbeddings` and `AsyncOpenAIEmbeddings`: budgeted, durable calls of the Embeddings API."""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import openai
from openai.types import CreateEmbeddingResponse

from memoflow.providers.openai_embeddings import MAX_EMBEDDINGS_BYTES, OpenAIEmbeddingsCodec
from memoflow.sdk.api import Api, check_client
from memoflow.sdk.calls import AsyncPlainCalls, PlainCalls
from memoflow.sdk.results import CallResult

__all__ = ["AsyncOpenAIEmbeddings", "EmbeddingsResult", "OpenAIEmbeddings"]

EmbeddingsResult: TypeAlias = CallResult[CreateEmbeddingResponse]


class _EmbeddingsApi(Api[CreateEmbeddingResponse]):
    """The API, whose vectors travel as base64; callers get lists of floats, as from the SDK."""

    def response(self, body: Mapping[str, Any]) -> CreateEmbeddingResponse:
        data = [{**one, "embedding": _floats(one["embedding"])} for one in body["data"]]
        return super().response({**body, "data": data})


def _floats(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    floats = array("f", base64.b64decode(given))
    if sys.byteorder == "big":
        floats.byteswap()
    return floats.tolist()


_API: Final = _EmbeddingsApi(sdk=openai, path="/embeddings", reply=CreateEmbeddingResponse)


class OpenAIEmbeddings(PlainCalls[OpenAIEmbeddingsCodec, CreateEmbeddingResponse]):
    """The Embeddings API over an official client, inside activities.

    Args:
        client: the caller's client. It is never changed; its retries are off for these calls.
        max_reply_bytes: largest reply that is read; above it the outcome is unknown.
    """

    def __init__(self, client: openai.OpenAI, *, max_reply_bytes: int = MAX_EMBEDDINGS_BYTES) -> None:
        check_client("OpenAIEmbeddings", client, openai.OpenAI, openai.AsyncOpenAI, "AsyncOpenAIEmbeddings")
        super().__init__(
            _API, client, OpenAIEmbeddingsCodec(max_reply_bytes=max_reply_bytes), max_reply_bytes
        )


class AsyncOpenAIEmbeddings(AsyncPlainCalls[OpenAIEmbeddingsCodec, CreateEmbeddingResponse]):
    """The Embeddings API over an official async client; the twin of `OpenAIEmbeddings`."""

    def __init__(self, client: openai.AsyncOpenAI, *, max_reply_bytes: int = MAX_EMBEDDINGS_BYTES) -> None:
        check_client("AsyncOpenAIEmbeddings", client, openai.AsyncOpenAI, openai.OpenAI, "OpenAIEmbeddings")
        super().__init__(
            _API, client, OpenAIEmbeddingsCodec(max_reply_bytes=max_reply_bytes), max_reply_bytes
        )
