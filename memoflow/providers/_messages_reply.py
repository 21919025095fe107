"""Whole replies of the Messages API."""

from __future__ import annotations

from typing import Any, Final

from memoflow.providers._messages_blocks import Blocks, read_blocks
from memoflow.providers._reading import (
    MAX_TOKENS,
    count_or_none,
    noted_problem,
    own_word,
    parse_body,
    plausible,
    short_or_none,
    text_or_none,
)
from memoflow.providers.base import MAX_REPLY_BYTES, Reply, ReplyStatus, UnreadableReply, Usage
from memoflow.providers.http import safe_code

__all__ = ["STREAM_PROBLEMS", "read_body", "read_message", "read_usage"]

STREAM_PROBLEMS: Final = frozenset(
    {
        "a content block began twice or out of order",
        "a content block was not finished",
        "a delta or end belongs to no open content block",
        "a delta does not fit its content block",
        "a second message began",
        "it gave two different stop reasons",
        "its content came after its stop reason",
        "its content or usage came before the message began",
        "the input of a call was sent twice, differently",
        "the message began with content",
    }
)

_ENDINGS: Final[dict[str, tuple[ReplyStatus, str]]] = {
    "end_turn": ("completed", "stop"),
    "max_tokens": ("incomplete", "length"),
    "model_context_window_exceeded": ("incomplete", "model_context_window_exceeded"),
    "refusal": ("completed", "refusal"),
    "stop_sequence": ("completed", "stop"),
    "tool_use": ("completed", "tool_calls"),
}
# A stop sequence may have cut the input of a call, so it is not among them.
_WHOLE_CALLS: Final = frozenset({"end_turn", "tool_use"})


def read_body(body: bytes, *, max_bytes: int = MAX_REPLY_BYTES) -> Reply:
    """Read the bytes of a reply; raises UnreadableReply."""
    return read_message(parse_body(body, max_bytes))


def read_message(value: Any) -> Reply:
    """Read a message object that is plain JSON; raises UnreadableReply."""
    if not isinstance(value, dict) or value.get("type") != "message":
        raise UnreadableReply("WRONG_OBJECT")
    response_id = text_or_none(value.get("id"))
    if response_id is None:
        raise UnreadableReply("NO_ID")
    reason = value.get("stop_reason")
    content = _content(value)
    blocks = read_blocks(content, runnable=isinstance(reason, str) and reason in _WHOLE_CALLS)
    status, finish_reason, paused = _ending(reason, blocks)
    usage = value.get("usage")
    reply = Reply(
        status=status,
        finish_reason=finish_reason,
        usage=plausible(read_usage(usage), made=bool(content)),
        # The conversation of a refusal does not go on, so its calls are not even answered.
        calls=() if finish_reason == "refusal" else blocks.calls,
        hosted=blocks.hosted,
        response_id=response_id,
        model=short_or_none(value.get("model")),
        service_tier=safe_code(usage.get("service_tier")) if isinstance(usage, dict) else None,
        body=value,
        problem=blocks.problem,
        paused=paused,
    )
    noted = noted_problem(value, STREAM_PROBLEMS)
    return reply if noted is None else reply.with_problem(noted)


def read_usage(usage: Any) -> Usage | None:
    """A usage that is consistent in itself, else None: one part that cannot be right makes all doubtful.

    The provider counts cached input apart from ``input_tokens``; here it is part of the input.
    """
    if not isinstance(usage, dict):
        return None
    fresh, made = count_or_none(usage.get("input_tokens")), count_or_none(usage.get("output_tokens"))
    written = _optional(usage, "cache_creation_input_tokens")
    taken = _optional(usage, "cache_read_input_tokens")
    thinking = _thinking(usage.get("output_tokens_details"))
    if fresh is None or made is None or written is None or taken is None or thinking is None:
        return None
    given = fresh + written + taken
    if given > MAX_TOKENS or thinking > made:
        return None
    return Usage(given, made, taken, written, thinking)


def _optional(group: dict[str, Any], name: str) -> int | None:
    value = group.get(name)
    return 0 if value is None else count_or_none(value)


def _thinking(details: Any) -> int | None:
    if details is None:
        return 0
    return _optional(details, "thinking_tokens") if isinstance(details, dict) else None


def _content(value: dict[str, Any]) -> list[Any]:
    content = value.get("content")
    if content is None and value.get("stop_reason") is None:
        return []
    if not isinstance(content, list):
        raise UnreadableReply("NO_CONTENT")
    return content


def _ending(reason: Any, blocks: Blocks) -> tuple[ReplyStatus, str, bool]:
    """Status, finish reason, and whether the model goes on when the reply is handed back."""
    if reason is None:
        return "pending", "pending", False
    known = _ENDINGS.get(reason) if isinstance(reason, str) else None
    if known is None:
        return "completed", own_word(reason), True
    status, finish_reason = known
    if finish_reason == "stop" and blocks.calls:
        finish_reason = "tool_calls"
    return status, finish_reason, False
