"""Budgeted, durable calls of OpenAI's APIs over the official SDK."""

from __future__ import annotations

from memoflow.openai._responses import (
    AsyncOpenAIResponses,
    AsyncResponseStream,
    OpenAIResponses,
    ResponsesResult,
    ResponseStream,
)
from memoflow.sdk.options import CallOptions

__all__ = [
    "AsyncOpenAIResponses",
    "AsyncResponseStream",
    "CallOptions",
    "OpenAIResponses",
    "ResponseStream",
    "ResponsesResult",
]
