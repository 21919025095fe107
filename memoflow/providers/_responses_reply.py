"""Whole replies of the Responses API."""

from __future__ import annotations

from typing import Any, Final

from memoflow.providers._reading import (
    UsageFields,
    noted_problem,
    parse_body,
    plausible,
    read_usage,
    short_or_none,
    text_or_none,
)
from memoflow.providers._responses_items import Items, read_items
from memoflow.providers.base import MAX_REPLY_BYTES, Reply, ReplyStatus, UnreadableReply
from memoflow.providers.http import safe_code

__all__ = ["STREAM_PROBLEMS", "USAGE", "read_body", "read_response"]

USAGE: Final = UsageFields("input_tokens", "output_tokens", "input_tokens_details", "output_tokens_details")

_STATUSES: Final[dict[str, ReplyStatus]] = {
    "cancelled": "cancelled",
    "completed": "completed",
    "failed": "failed",
    "in_progress": "pending",
    "incomplete": "incomplete",
    "queued": "pending",
}
STREAM_PROBLEMS: Final = frozenset(
    {
        "its status does not belong to the event that brought it",
        "its id is not the one the stream began with",
        "an item was streamed twice, differently",
        "more items were streamed than are compared",
        "items were streamed, but the terminal snapshot has none",
        "its calls are not the ones that were streamed",
    }
)
_INCOMPLETE_REASONS: Final = {
    "content_filter": "content_filter",
    "max_messages": "max_messages",
    "max_output_tokens": "length",
    "steered": "steered",
}


def read_body(body: bytes, *, max_bytes: int = MAX_REPLY_BYTES) -> Reply:
    """Read the bytes of a reply; raises UnreadableReply."""
    return read_response(parse_body(body, max_bytes))


def read_response(value: Any) -> Reply:
    """Read a response object that is plain JSON; raises UnreadableReply."""
    if not isinstance(value, dict) or value.get("object") != "response":
        raise UnreadableReply("WRONG_OBJECT")
    response_id = text_or_none(value.get("id"))
    if response_id is None:
        raise UnreadableReply("NO_ID")
    status = _status(value.get("status"))
    output = _output(value, status)
    items = read_items(output, runnable=status == "completed")
    reply = Reply(
        status=status,
        finish_reason=_finish_reason(value, status, items),
        usage=plausible(read_usage(value.get("usage"), USAGE), made=bool(output)),
        calls=items.calls,
        hosted=items.hosted,
        response_id=response_id,
        model=short_or_none(value.get("model")),
        service_tier=safe_code(value.get("service_tier")),
        body=value,
        problem=items.problem,
        error_code=_error_code(value.get("error")),
        needs_client=items.needs_client,
    )
    noted = noted_problem(value, STREAM_PROBLEMS)
    return reply if noted is None else reply.with_problem(noted)


def _status(value: Any) -> ReplyStatus:
    status = _STATUSES.get(value) if isinstance(value, str) else None
    if status is None:
        raise UnreadableReply("UNKNOWN_STATUS")
    return status


def _output(value: dict[str, Any], status: ReplyStatus) -> list[Any]:
    output = value.get("output")
    if output is None and status != "completed":
        return []
    if not isinstance(output, list):
        raise UnreadableReply("NO_OUTPUT")
    return output


def _finish_reason(value: dict[str, Any], status: ReplyStatus, items: Items) -> str:
    if status == "completed":
        if items.calls or items.needs_client:
            return "tool_calls"
        return "refusal" if items.refused else "stop"
    if status != "incomplete":
        return status
    details = value.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    return _INCOMPLETE_REASONS.get(reason, "incomplete") if isinstance(reason, str) else "incomplete"


def _error_code(error: Any) -> str | None:
    if not isinstance(error, dict):
        return None
    return safe_code(error.get("code")) or safe_code(error.get("type"))
