"""The outcome table: what the provider or the network does, and what the ledger and the caller then have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from memoflow.errors import (
    MemoflowError,
    OutcomeUnknown,
    ProviderFailed,
    ProviderNotReached,
    ProviderRejected,
)
from memoflow.testing import (
    call,
    calls,
    closed_before_reply,
    connect_refused,
    connect_timeout,
    corrupt_chunk,
    dns_failure,
    duplicate_terminal,
    error_event,
    failed,
    html_200,
    incomplete,
    items,
    malformed_usage,
    message,
    missing_usage,
    no_events,
    not_json,
    pool_timeout,
    raw,
    read_timeout,
    refusal,
    reset_before_reply,
    reset_mid_body,
    status,
    stream_ends_early,
    text,
    truncated_body,
    usage,
    write_error,
)

__all__ = ["OUTCOMES", "Expected", "Outcome"]


@dataclass(frozen=True)
class Expected:
    """What is there after the first attempt.

    Attributes:
        tokens: input and output that are settled, or None.
        error: class and attributes of what the call raised, besides the invocation's id.
        again: whether the next attempt sends the request again, instead of restoring it.
    """

    state: str
    reservation: str
    reason: str | None
    finish: str | None = None
    tokens: tuple[int, int] | None = None
    error: tuple[type[MemoflowError], dict[str, Any]] | None = None
    http: int | None = None
    code: str | None = None
    again: bool = True


@dataclass(frozen=True)
class Outcome:
    """A row of the table. ``options`` are those of the call."""

    name: str
    reply: Callable[[], Any]
    whole: Expected
    streamed: Expected
    options: dict[str, Any] = field(default_factory=dict)


def unknown(reason: str, *, http: int | None = None, code: str | None = None) -> Expected:
    error = (OutcomeUnknown, {"kind": "invocation", "reason": reason})
    return Expected("OUTCOME_UNKNOWN", "RECONCILE", reason, error=error, http=http, code=code)


def not_sent(cause: str) -> Expected:
    error = (ProviderNotReached, {"cause": cause, "retryable": True})
    return Expected("FAILED", "RELEASED", "PROVIDER_CALL_NOT_STARTED", error=error)


def rejected(http: int, code: str | None, *, retryable: bool = False, wait: float | None = None) -> Expected:
    told = {"status": http, "code": code, "retry_after": wait, "retryable": retryable}
    error = (ProviderRejected, told)
    return Expected("FAILED", "SETTLED", "PROVIDER_REJECTED", error=error, http=http, code=code)


def succeeded(finish: str) -> Expected:
    return Expected("SUCCEEDED", "SETTLED", None, finish, (10, 5), again=False)


def without_usage(finish: str = "stop") -> Expected:
    return Expected("SUCCEEDED", "RECONCILE", "USAGE_MISSING", finish, again=False)


def ended(code: str, *, retryable: bool, tokens: tuple[int, int] | None = (10, 5)) -> Expected:
    error = (ProviderFailed, {"status": "failed", "code": code, "retryable": retryable})
    settled = ("SETTLED", None) if tokens is not None else ("RECONCILE", "USAGE_MISSING")
    return Expected("FAILED", *settled, "failed", tokens, error, code=code)


USED = usage(10, 5)


def _replies() -> Iterator[Outcome]:
    for name, reply, expected in (
        ("completed", lambda: text("Hello.", usage=USED), succeeded("stop")),
        ("refusal", lambda: refusal("No.", usage=USED), succeeded("refusal")),
        ("cut_off", lambda: incomplete("Hel", usage=USED), succeeded("length")),
        (
            "filtered",
            lambda: incomplete("He", reason="content_filter", usage=USED),
            succeeded("content_filter"),
        ),
        ("other_reason", lambda: incomplete("He", reason="brand_new", usage=USED), succeeded("incomplete")),
        ("calls", lambda: calls(call("f", {"n": 1}), usage=USED), succeeded("tool_calls")),
        ("null_details", lambda: malformed_usage("null_details", text("x", usage=USED)), succeeded("stop")),
        ("failed", lambda: failed(usage=USED), ended("server_error", retryable=True)),
        (
            "failed_for_good",
            lambda: failed("invalid_prompt", usage=USED),
            ended("invalid_prompt", retryable=False),
        ),
        ("failed_early", lambda: failed(usage=None), ended("server_error", retryable=False, tokens=None)),
        ("missing_usage", missing_usage, without_usage()),
        (
            "failed_unbilled",
            lambda: failed("server_error", usage=usage(0, 0)),
            replace(ended("server_error", retryable=True), tokens=(0, 0)),
        ),
    ):
        yield Outcome(name, reply, expected, expected)  # type: ignore[arg-type]
    for kind in (
        "null",
        "empty",
        "null_counts",
        "strings",
        "floats",
        "booleans",
        "negative",
        "huge",
        "wrong_total",
    ):
        yield Outcome(
            f"usage_{kind}",
            lambda kind=kind: malformed_usage(kind, text("x", usage=USED)),  # type: ignore[misc]
            without_usage(),
            without_usage(),
        )


def _statuses() -> Iterator[Outcome]:
    codes = {401: "invalid_api_key", 403: "unsupported_country_region_territory", 404: "model_not_found"}
    for http in (400, 401, 403, 404, 405, 413, 415, 422):
        expected = rejected(http, codes.get(http, "invalid_request_error"))
        yield Outcome(f"status_{http}", lambda http=http: status(http), expected, expected)  # type: ignore[misc]
    limited = rejected(429, "rate_limit_exceeded", retryable=True, wait=300.0)
    yield Outcome("status_429", lambda: status(429, retry_after=300), limited, limited)
    soon = rejected(429, "rate_limit_exceeded", retryable=True, wait=0.01)
    yield Outcome("status_429_ms", lambda: status(429, retry_after_ms=10, retry_after=9), soon, soon)
    broke = rejected(429, "insufficient_quota")
    yield Outcome("no_money", lambda: status(429, code="insufficient_quota"), broke, broke)
    known = {408: "timeout", 409: "conflict", 503: "server_overloaded"}
    for http in (408, 409, 425, 500, 502, 503, 504, 529):
        code = known.get(http, "invalid_request_error" if http < 500 else "server_error")
        expected = unknown(f"HTTP_{http}", http=http, code=code)
        yield Outcome(f"status_{http}", lambda http=http: status(http), expected, expected)  # type: ignore[misc]
    moved = unknown("HTTP_307", http=307)
    elsewhere = {"location": "http://elsewhere.invalid/"}
    yield Outcome("redirect", lambda: raw(b"", status=307, headers=elsewhere), moved, moved)


def _connections() -> Iterator[Outcome]:
    for reply, cause in (
        (connect_refused, "ConnectError"),
        (dns_failure, "ConnectError"),
        (connect_timeout, "ConnectTimeout"),
        (pool_timeout, "PoolTimeout"),
    ):
        yield Outcome(reply.__name__, reply, not_sent(cause), not_sent(cause))
    for cut, reason in (
        (write_error, "CONNECTION_RESET"),
        (read_timeout, "READ_TIMEOUT"),
        (reset_before_reply, "CONNECTION_RESET"),
        (closed_before_reply, "CONNECTION_CLOSED"),
        (reset_mid_body, "CONNECTION_RESET"),
        (truncated_body, "CONNECTION_CLOSED"),
    ):
        yield Outcome(cut.__name__, cut, unknown(reason), unknown(reason))


def _bodies() -> Iterator[Outcome]:
    ends = unknown("NO_TERMINAL_EVENT")
    for name, reply, whole, streamed in (
        ("stream_ends_early", stream_ends_early, unknown("CONNECTION_CLOSED"), ends),
        (
            "cut_before_the_first_event",
            lambda: stream_ends_early(after=0),
            unknown("CONNECTION_CLOSED"),
            ends,
        ),
        ("corrupt_chunk", corrupt_chunk, unknown("NOT_JSON"), unknown("CORRUPT_STREAM")),
        ("no_events", no_events, unknown("NOT_JSON"), ends),
        ("html_200", html_200, unknown("NOT_JSON"), ends),
        ("not_json", not_json, unknown("NOT_JSON"), ends),
        ("wrong_object", lambda: raw(b'{"object": "list"}'), unknown("WRONG_OBJECT"), ends),
        ("array", lambda: raw(b"[1]"), unknown("WRONG_OBJECT"), ends),
        (
            "not_utf8",
            lambda: raw(b'{"object": "response", "id": "\xff"}'),
            unknown("NOT_JSON"),
            unknown("CORRUPT_STREAM"),
        ),
        (
            "unknown_status",
            lambda: _with_status("paused"),
            unknown("UNKNOWN_STATUS"),
            unknown("UNKNOWN_STATUS"),
        ),
        ("queued", lambda: _with_status("queued"), unknown("NOT_TERMINAL"), unknown("NOT_TERMINAL")),
    ):
        yield Outcome(name, reply, whole, streamed)  # type: ignore[arg-type]
    said = unknown("ERROR_EVENT", code="server_error")
    whole = unknown("HTTP_500", http=500, code="server_error")
    for nested in (False, True):
        yield Outcome(f"error_event_{nested}", lambda n=nested: error_event(nested=n), whole, said)  # type: ignore[misc]
    twice = lambda: duplicate_terminal(text("Hello.", usage=USED))  # noqa: E731
    yield Outcome("duplicate_terminal", twice, succeeded("stop"), succeeded("stop"))


def _with_status(value: str) -> Any:
    return items([message("x")], fields={"status": value})


def _strict() -> Iterator[Outcome]:
    """With ``strict_outcomes`` every exception after the SDK was entered is unknown; a reply is a reply."""
    for row in (*_statuses(), *_connections(), *_replies()):
        whole = row.whole
        if whole.error is not None and whole.error[0] is ProviderRejected:
            expected = unknown(f"HTTP_{whole.http}", http=whole.http, code=whole.code)
        elif whole.error is not None and whole.error[0] is ProviderNotReached:
            expected = unknown(whole.error[1]["cause"])
        else:
            continue
        yield Outcome(f"{row.name}_strict", row.reply, expected, expected, {"strict_outcomes": True})
    yield Outcome(
        "completed_strict",
        lambda: text("Hello.", usage=USED),
        succeeded("stop"),
        succeeded("stop"),
        {"strict_outcomes": True},
    )


OUTCOMES = {row.name: row for row in (*_replies(), *_statuses(), *_connections(), *_bodies(), *_strict())}
