"""The outcome table in the words of Chat Completions and of Messages: what differs, is missing, or is new.

A row that is not mentioned here has the outcome that it has for the Responses API.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from memoflow.testing import error_event, missing_usage, raw, status, stops, text
from tests.turn._outcomes import (
    OUTCOMES,
    USED,
    Expected,
    Outcome,
    rejected,
    succeeded,
    unknown,
    without_usage,
)

__all__ = ["ROWS", "rows"]

# The status of a response, which the other APIs do not have. How failed replies look elsewhere is below.
_OF_RESPONSES = frozenset({"unknown_status", "queued"})
# Strictness is decided above the APIs; these show that they do not get in its way.
_STRICT = frozenset({"status_429_strict", "connect_refused_strict", "completed_strict"})


def rows(api: str) -> dict[str, Outcome]:
    """The table of an API."""
    changed = {row.name: row for row in _CHANGED[api]()}
    kept = {
        name: row
        for name, row in OUTCOMES.items()
        if name not in _OF_RESPONSES and (not name.endswith("_strict") or name in _STRICT)
    }
    return {**kept, **changed}


def _row(name: str, expected: Expected, streamed: Expected | None = None) -> Outcome:
    """A row of the table with another outcome."""
    return replace(OUTCOMES[name], whole=expected, streamed=streamed or expected)


def _new(name: str, reply: Any, whole: Expected, streamed: Expected | None = None) -> Outcome:
    return Outcome(name, reply, whole, streamed or whole)


def _failures(server: str) -> Iterator[Outcome]:
    """There is no reply that failed: it is a 500, or in a stream an error, and nothing is known of it."""
    codes = {"failed": server, "failed_early": server, "failed_unbilled": server}
    for name, code in {**codes, "failed_for_good": "invalid_prompt"}.items():
        yield _row(name, unknown("HTTP_500", http=500, code=code), unknown("ERROR_EVENT", code=code))


def _ends(words: dict[str, str]) -> Iterator[Outcome]:
    """Ends for a reason of the API's own, or one that nobody knows: each is a success, paid and kept."""
    for word, finish in words.items():
        reply = lambda word=word: stops(word, "Hello.", usage=USED)  # noqa: E731
        yield _new(f"ends_{word}", reply, succeeded(finish))


def _unended(field: str, value: Any, *, streamed: Expected) -> Outcome:
    """Replies that do not say why they ended have not ended."""
    return _new(
        "without_an_end", lambda: text("Hel", fields={field: value}), unknown("NOT_TERMINAL"), streamed
    )


def _chat() -> Iterator[Outcome]:
    yield from _failures("server_error")
    yield _row("other_reason", succeeded("brand_new"))
    # Of words that mean something here, a server's own use says nothing.
    own = {"error": "error", "failed": "unknown", "cancelled": "unknown", "refusal": "unknown"}
    yield from _ends({"length": "length", "content_filter": "content_filter", "eos": "eos", **own})
    unended = {"index": 0, "message": {"role": "assistant", "content": "Hel"}, "finish_reason": None}
    yield _unended("choices", [unended], streamed=unknown("NO_TERMINAL_EVENT"))
    for name, fields in (("blank_id", {"id": ""}), ("no_service_tier", {"service_tier": None})):
        reply = lambda fields=fields: text("Hello.", usage=USED, fields=fields)  # noqa: E731
        yield _new(name, reply, succeeded("stop"))
    unnamed = lambda: missing_usage(text("Hello.", fields={"id": ""}))  # noqa: E731
    yield _new("blank_id_and_no_usage", unnamed, without_usage())


def _messages() -> Iterator[Outcome]:
    yield from _failures("api_error")
    yield from _statuses()
    yield _row("other_reason", succeeded("brand_new"))
    yield _row("filtered", succeeded("refusal"))
    # There is no total that could be wrong; the parts of the written cache are no part of what is counted.
    yield _row("usage_wrong_total", succeeded("stop"))
    for name in ("error_event_False", "error_event_True"):
        said, whole = (
            unknown("ERROR_EVENT", code="api_error"),
            unknown("HTTP_500", http=500, code="api_error"),
        )
        yield _row(name, whole, said)
    overloaded = unknown("HTTP_500", http=500, code="overloaded_error")
    said = unknown("ERROR_EVENT", code="overloaded_error")
    yield _new("overloaded_within", lambda: error_event("overloaded_error"), overloaded, said)
    yield from _ends(
        {
            "max_tokens": "length",
            "model_context_window_exceeded": "model_context_window_exceeded",
            "pause_turn": "pause_turn",
            "stop_sequence": "stop",
            "compaction": "compaction",
            "cancelled": "unknown",
            "length": "unknown",
        }
    )
    bare = b'event: error\ndata: "Overloaded"\n\n'
    named = lambda: raw(bare, content_type="text/event-stream")  # noqa: E731
    yield _new("error_that_is_no_object", named, unknown("NOT_JSON"), unknown("ERROR_EVENT"))
    yield _unended("stop_reason", None, streamed=unknown("NOT_TERMINAL"))


def _statuses() -> Iterator[Outcome]:
    """The same statuses with this API's codes."""
    refused = {
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
    }
    for http, code in refused.items():
        yield _row(f"status_{http}", rejected(http, code))
    limited = rejected(429, "rate_limit_error", retryable=True, wait=300.0)
    yield _row("status_429", limited)
    yield _row("status_429_strict", unknown("HTTP_429", http=429, code="rate_limit_error"))
    yield _row("status_429_ms", rejected(429, "rate_limit_error", retryable=True, wait=0.01))
    yield _row("no_money", rejected(429, "billing_error"))
    open_ends = {408: "timeout_error", 409: "invalid_request_error", 504: "timeout_error"}
    for http in (500, 502, 503):
        open_ends[http] = "api_error"
    for http, code in {**open_ends, 529: "overloaded_error"}.items():
        yield _row(f"status_{http}", unknown(f"HTTP_{http}", http=http, code=code))
    yield _new("status_402", lambda: status(402), unknown("HTTP_402", http=402, code="billing_error"))


_CHANGED = {"chat": _chat, "messages": _messages}
ROWS = {api: rows(api) for api in _CHANGED}
