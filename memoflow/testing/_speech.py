"""What the model says to a request, before an API puts it into its own form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from memoflow.providers.base import Usage
from memoflow.testing._items import Item, message
from memoflow.testing._request import ProviderRequest
from memoflow.testing._script import ModelReply
from memoflow.testing._tokens import count_item, cut_items
from memoflow.testing._usage import resolve_usage

__all__ = ["Speech", "speak"]

CUT = "max_output_tokens"


@dataclass(frozen=True, slots=True)
class Speech:
    """A reply of the script, carried out for a request.

    Attributes:
        items: the output items, cut at the cap.
        status: how the generation ended.
        reason: why it is incomplete.
        stop: the stop reason the script asks for in so many words.
        usage: tokens it took, or None if nothing is billed.
    """

    items: tuple[Item, ...]
    status: Literal["completed", "incomplete", "failed"]
    reason: str | None
    stop: str | None
    usage: Usage | None


def speak(reply: ModelReply, request: ProviderRequest, cap: int | None) -> Speech:
    """Carry out a reply of the script for a request that allows ``cap`` output tokens."""
    spoken = [message(f"echo: {request.last_text}")] if reply.items is None else list(reply.items)
    if reply.usage is None:
        return Speech(tuple(spoken), reply.status, reply.reason, reply.stop, None)
    visible = sum(count_item(item) for item in spoken)
    usage = resolve_usage(reply.usage, request.input_tokens, visible)
    if not reply.honour_cap or cap is None or usage.output_tokens <= cap:
        return Speech(tuple(spoken), reply.status, reply.reason, reply.stop, usage)
    kept, cut = cut_items(spoken, usage, cap)
    if reply.status == "completed":
        return Speech(tuple(kept), "incomplete", CUT, None, cut)
    return Speech(tuple(kept), reply.status, reply.reason, reply.stop, cut)
