"""Whole replies of the Responses API."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from memoflow.canonical import StrictJSONError, parse_strict
from memoflow.providers._responses_items import Items, read_items, text_or_none
from memoflow.providers.base import Reply, ReplyStatus, UnreadableReply, Usage
from memoflow.providers.http import safe_code
from memoflow.providers.sse import MAX_JSON_DEPTH

__all__ = ["MAX_REPLY_BYTES", "MAX_TOKENS", "read_body", "read_response", "read_usage", "with_problem"]

MAX_REPLY_BYTES: Final = 64 * 1024 * 1024

MAX_TOKENS: Final = 1_000_000_000
"""A usage above this is a fault, not a usage: settling it would empty a budget for good."""

_LONGEST_MODEL: Final = 256
_STATUSES: Final[dict[str, ReplyStatus]] = {
    "cancelled": "cancelled",
    "completed": "completed",
    "failed": "failed",
    "in_progress": "pending",
    "incomplete": "incomplete",
    "queued": "pending",
}
_INCOMPLETE_REASONS: Final = {
    "content_filter": "content_filter",
    "max_messages": "max_messages",
    "max_output_tokens": "length",
    "steered": "steered",
}


def read_body(body: bytes, *, max_bytes: int = MAX_REPLY_BYTES) -> Reply:
    """Read the bytes of a reply; raises UnreadableReply."""
    try:
        value = parse_strict(body, max_bytes=max_bytes, max_depth=MAX_JSON_DEPTH)
    except StrictJSONError as error:
        raise UnreadableReply("TOO_LARGE" if error.problem == "TOO_LARGE" else "NOT_JSON") from None
    return read_response(value)


def read_response(value: Any) -> Reply:
    """Read a response object that is plain JSON; raises UnreadableReply."""
    if not isinstance(value, dict) or value.get("object") != "response":
        raise UnreadableReply("WRONG_OBJECT")
    response_id = text_or_none(value.get("id"))
    if response_id is None:
        raise UnreadableReply("NO_ID")
    status = _status(value.get("status"))
    items = read_items(_output(value, status), runnable=status == "completed")
    return Reply(
        status=status,
        finish_reason=_finish_reason(value, status, items),
        usage=read_usage(value.get("usage")),
        calls=items.calls,
        hosted=items.hosted,
        response_id=response_id,
        model=_short(value.get("model")),
        service_tier=safe_code(value.get("service_tier")),
        body=value,
        problem=items.problem,
        error_code=_error_code(value.get("error")),
        needs_client=items.needs_client,
    )


def with_problem(reply: Reply, problem: str) -> Reply:
    """The reply with a contradiction noted, so that none of its calls runs."""
    calls = tuple(replace(call, complete=False) for call in reply.calls)
    return replace(reply, calls=calls, problem=reply.problem or problem)


def read_usage(usage: Any) -> Usage | None:
    """A usage that is consistent in itself, else None: one part that cannot be right makes all doubtful."""
    if not isinstance(usage, dict):
        return None
    taken = _detail(usage, "input_tokens_details", "cached_tokens")
    written = _detail(usage, "input_tokens_details", "cache_write_tokens")
    reasoning = _detail(usage, "output_tokens_details", "reasoning_tokens")
    given, made = _count(usage.get("input_tokens")), _count(usage.get("output_tokens"))
    if given is None or made is None or taken is None or written is None or reasoning is None:
        return None
    total = usage.get("total_tokens")
    if total is not None and _count(total) != given + made:
        return None
    if taken + written > given or reasoning > made:
        return None
    return Usage(given, made, taken, written, reasoning)


def _short(value: Any) -> str | None:
    text = text_or_none(value)
    return text if text is not None and len(text) <= _LONGEST_MODEL else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


def _detail(usage: dict[str, Any], group: str, name: str) -> int | None:
    details = usage.get(group)
    if details is None:
        return 0
    value = details.get(name) if isinstance(details, dict) else False
    return 0 if value is None else _count(value)


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
