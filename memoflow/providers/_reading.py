"""What is read of every reply in the same way, whatever API it is from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from typing import Any, Final, NamedTuple

from memoflow.canonical import StrictJSONError, parse_strict
from memoflow.providers.base import RequestedCall, UnreadableReply, Usage
from memoflow.providers.http import error_code, safe_code
from memoflow.providers.sse import MAX_JSON_DEPTH

__all__ = [
    "MAX_TOKENS",
    "STREAM_PROBLEM",
    "UsageFields",
    "count_or_none",
    "event_code",
    "event_type",
    "noted_problem",
    "own_word",
    "parse_body",
    "plausible",
    "read_usage",
    "repeated_ids",
    "short_or_none",
    "text_or_none",
]

MAX_TOKENS: Final = 1_000_000_000
"""A usage above this is a fault, not a usage: settling it would empty a budget for good."""

STREAM_PROBLEM: Final = "memoflow_problem"
"""Key of a recorded body whose stream contradicted itself: what is restored is refused as what was live."""

_OTHER_PROBLEM: Final = "its stream contradicted itself"
_LONGEST_MODEL: Final = 256
# Words that mean something to memoflow are not taken over from a provider that uses them for its own.
_TAKEN: Final = frozenset(
    {"cancelled", "content_filter", "failed", "length", "pending", "refusal", "stop", "tool_calls"}
)


def parse_body(body: bytes, max_bytes: int) -> Any:
    """The JSON of a whole reply; raises UnreadableReply."""
    try:
        return parse_strict(body, max_bytes=max_bytes, max_depth=MAX_JSON_DEPTH)
    except StrictJSONError as error:
        raise UnreadableReply("TOO_LARGE" if error.problem == "TOO_LARGE" else "NOT_JSON") from None


def event_type(event: Any) -> str | None:
    """The type of an event of a stream, None for what has none."""
    if not isinstance(event, dict):
        return None
    kind = event.get("type")
    # Gateways also send an error as the bare body of an error reply.
    if kind is None and event.get("error"):
        return "error"
    return kind if isinstance(kind, str) else None


def event_code(event: dict[str, Any]) -> str | None:
    """The structured code of an error event."""
    # The type of the event itself is "error", which says nothing.
    return error_code({key: value for key, value in event.items() if key != "type"})


def text_or_none(value: object) -> str | None:
    """Text that every database can hold: not blank and without NUL; else None."""
    return value if isinstance(value, str) and value.strip() and "\0" not in value else None


def short_or_none(value: object) -> str | None:
    """The name of a model as a reply gives it, if it can be one."""
    text = text_or_none(value)
    return text if text is not None and len(text) <= _LONGEST_MODEL else None


def own_word(value: object) -> str:
    """A provider's own word for why a reply ended, or ``unknown`` if it has none that can be taken over."""
    word = safe_code(value)
    return word if word is not None and word not in _TAKEN else "unknown"


def repeated_ids(calls: Iterable[RequestedCall]) -> str | None:
    """What is wrong with calls of which several have one id, else None."""
    counts = Counter(call.call_id for call in calls)
    repeated = sum(count > 1 for count in counts.values())
    return f"{repeated} call ids are used more than once" if repeated else None


def noted_problem(body: dict[str, Any], known: Container[str]) -> str | None:
    """What a body notes about its stream, in the words that are known; others are a provider's own."""
    if STREAM_PROBLEM not in body:
        return None
    noted = body[STREAM_PROBLEM]
    return noted if isinstance(noted, str) and noted in known else _OTHER_PROBLEM


class UsageFields(NamedTuple):
    """How an API names the figures of a usage: totals, and the objects their parts stand in."""

    given: str
    made: str
    given_parts: str
    made_parts: str


def read_usage(usage: Any, fields: UsageFields) -> Usage | None:
    """A usage that is consistent in itself, else None: one part that cannot be right makes all doubtful."""
    if not isinstance(usage, dict):
        return None
    taken = _part(usage, fields.given_parts, "cached_tokens")
    written = _part(usage, fields.given_parts, "cache_write_tokens")
    reasoning = _part(usage, fields.made_parts, "reasoning_tokens")
    given, made = count_or_none(usage.get(fields.given)), count_or_none(usage.get(fields.made))
    if given is None or made is None or taken is None or written is None or reasoning is None:
        return None
    total = usage.get("total_tokens")
    if total is not None and count_or_none(total) != given + made:
        return None
    if taken + written > given or reasoning > made:
        return None
    return Usage(given, made, taken, written, reasoning)


def plausible(usage: Usage | None, *, made: bool) -> Usage | None:
    """The usage of a reply, or None where it says that something was made of nothing, or as nothing.

    Servers that do not count say zero. Of a reply that holds nothing it may be true: of one that was refused
    or failed before anything was generated.
    """
    if usage is None or not made or (usage.input_tokens and usage.output_tokens):
        return usage
    return None


def count_or_none(value: Any) -> int | None:
    """A number of tokens, if it can be one."""
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


def _part(usage: dict[str, Any], group: str, name: str) -> int | None:
    details = usage.get(group)
    if details is None:
        return 0
    value = details.get(name) if isinstance(details, dict) else False
    return 0 if value is None else count_or_none(value)
