"""Budgeted, durable calls of OpenAI's APIs over the official SDK."""

from __future__ import annotations

from memoflow.openai._options import CallOptions
from memoflow.openai._responses import (
    AsyncOpenAIResponses,
    AsyncResponseStream,
    OpenAIResponses,
    ResponsesResult,
    ResponseStream,
)

__all__ = [
    "AsyncOpenAIResponses",
    "AsyncResponseStream",
    "CallOptions",
    "OpenAIResponses",
    "ResponseStream",
    "ResponsesResult",
]
