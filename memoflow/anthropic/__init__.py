"""Budgeted, durable calls of Anthropic's Messages API over the official SDK (extra ``anthropic``)."""

from __future__ import annotations

try:
    import anthropic as _anthropic
except ModuleNotFoundError as error:
    if error.name != "anthropic":
        raise
    raise ModuleNotFoundError(
        "memoflow.anthropic needs Anthropic's SDK: pip install 'memoflow-runtime[anthropic]'.",
        name="anthropic",
    ) from None
from memoflow.anthropic._messages import (
    AnthropicMessages,
    AsyncAnthropicMessages,
    AsyncMessageStream,
    MessagesResult,
    MessageStream,
)
from memoflow.sdk.options import CallOptions

del _anthropic

__all__ = [
    "AnthropicMessages",
    "AsyncAnthropicMessages",
    "AsyncMessageStream",
    "CallOptions",
    "MessageStream",
    "MessagesResult",
]
