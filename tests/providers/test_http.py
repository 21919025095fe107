"""Statuses, waits and codes of HTTP answers."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoflow.providers.http import (
    MAX_ERROR_BODY_BYTES,
    MAX_RETRY_AFTER_SECONDS,
    classify_status,
    error_code,
    error_detail,
    failure_is_retryable,
    is_retryable,
    parse_retry_after,
    safe_code,
)

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 413, 415, 422, 429])
def test_a_definite_refusal_is_rejected(status: int) -> None:
    """These statuses prove that no tokens were used."""
    assert classify_status(status) == "rejected"


@pytest.mark.parametrize(
    "status", [100, 200, 204, 302, 402, 408, 409, 418, 425, 500, 502, 503, 504, 529, 599]
)
def test_any_other_status_proves_nothing(status: int) -> None:
    """A request that may have been worked on keeps its hold."""
    assert classify_status(status) == "unknown"


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (429, None, True),
        (429, "rate_limit_exceeded", True),
        (429, "slow_down", True),
        (429, "insufficient_quota", False),
        (429, "billing_hard_limit_reached", False),
        (400, "rate_limit_exceeded", False),
        (401, None, False),
        (404, None, False),
        (422, None, False),
        (500, None, False),
    ],
)
def test_only_a_429_that_waiting_can_cure_is_retryable(
    status: int, code: str | None, retryable: bool
) -> None:
    """An empty account stays empty, and a bad request stays bad."""
    assert is_retryable(status, code) is retryable


@pytest.mark.parametrize(
    ("code", "retryable"),
    [("server_error", True), ("rate_limit_exceeded", True), ("invalid_prompt", False), (None, False)],
)
def test_a_failed_reply_is_retryable_by_its_code(code: str | None, retryable: bool) -> None:
    """Only codes that name a passing fault of the provider allow a further attempt."""
    assert failure_is_retryable(code) is retryable


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "300"}, 300.0),
        ({"retry-after": " 0 "}, 0.0),
        ({"RETRY-AFTER": "1.5"}, 1.5),
        ({"retry-after-ms": "10"}, 0.01),
        ({"retry-after-ms": "10", "retry-after": "300"}, 0.01),
        ({"retry-after-ms": "nan", "retry-after": "300"}, 300.0),
        ({"retry-after": "Sun, 29 Nov 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Sun, 29 Nov 2026 12:00:30 -0000"}, 30.0),
        ({"retry-after": "Sun, 29 Nov 2026 13:00:30 +0100"}, 30.0),
        ({"retry-after": "Sun, 29 Nov 2026 11:59:00 GMT"}, 0.0),
        ({"retry-after": "9" * 30}, float(MAX_RETRY_AFTER_SECONDS)),
        ({"retry-after": "Sat, 29 Nov 3026 12:00:30 GMT"}, float(MAX_RETRY_AFTER_SECONDS)),
    ],
)
def test_a_wait_is_read_in_every_form(headers: dict[str, str], seconds: float) -> None:
    """Milliseconds win over seconds, dates count from now, and no wait is longer than a day."""
    assert parse_retry_after(headers, NOW) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "-1",
        "nan",
        "inf",
        "-inf",
        "1e3",
        "0x10",
        "soon",
        "1" * 33,
        "Sun, 99 Nov 2026 12:00:30 GMT",
        "x" * 4000,
    ],
)
def test_a_wait_that_cannot_be_meant_is_none(value: str) -> None:
    """Negative, infinite and malformed values say nothing; they are not read as zero."""
    assert parse_retry_after({"retry-after": value}, NOW) is None
    assert parse_retry_after({"retry-after-ms": value}, NOW) is None


def test_no_header_is_no_statement() -> None:
    """Without a header there is no wait to honour."""
    assert parse_retry_after({}, NOW) is None


def test_dates_are_compared_in_any_zone() -> None:
    """The zone of ``now`` does not shift the wait."""
    elsewhere = NOW.astimezone(timezone(timedelta(hours=9)))
    assert parse_retry_after({"retry-after": "Sun, 29 Nov 2026 12:00:30 GMT"}, elsewhere) == 30.0


@given(st.text(max_size=70))
def test_no_header_value_raises(value: str) -> None:
    """Whatever a server sends, the answer is a wait within the bounds or none."""
    wait = parse_retry_after({"retry-after": value, "retry-after-ms": value}, NOW)
    assert wait is None or 0 <= wait <= MAX_RETRY_AFTER_SECONDS


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"error": {"code": "insufficient_quota", "type": "x", "message": "m"}}, "insufficient_quota"),
        ({"error": {"code": None, "type": "invalid_request_error"}}, "invalid_request_error"),
        ({"error": {"code": 429, "type": "rate_limit"}}, "rate_limit"),
        ({"code": "bad", "message": "m"}, "bad"),
        ({"type": "error", "error": {"type": "overloaded_error"}}, "overloaded_error"),
        ({"error": "plain words"}, None),
        ({"error": {"code": "You exceeded your quota, see \n prompt"}}, None),
        ({"error": {"code": "c" * 65}}, None),
        ([], None),
        (None, None),
    ],
)
def test_the_code_of_an_error_body(body: object, code: str | None) -> None:
    """Structured codes are read, prose never is, whether the body is decoded already or not."""
    assert error_code(json.dumps(body)) == code
    assert error_code(json.dumps(body).encode()) == code
    assert error_code(body) == code  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ("input[0].content", "input[0].content"),
        ("tools.0-a_b", "tools.0-a_b"),
        ("my prompt", None),
        ("p" * 129, None),
        ("", None),
        (5, None),
        (None, None),
    ],
)
def test_the_parameter_an_error_body_names(given: object, param: str | None) -> None:
    """It is kept if it looks like a path in the request; code and type are kept apart, the message never."""
    body = {"error": {"code": "bad_value", "type": "invalid", "param": given, "message": "my prompt"}}
    assert error_detail(json.dumps(body)) == ("bad_value", "invalid", param)


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>Bad gateway</html>", b'{"error": {"code": "x"', b"\xff", b'{"error": {"code": "\\ud800"}}'],
)
def test_an_error_body_that_is_not_json_has_no_code(body: bytes) -> None:
    """A gateway's page is no code and no crash."""
    assert error_code(body) is None


def test_a_huge_error_body_is_not_read() -> None:
    """Reading stops at a bound."""
    body = json.dumps({"error": {"code": "x"}, "pad": "p" * MAX_ERROR_BODY_BYTES})
    assert error_code(body) is None


@pytest.mark.parametrize("value", ["", "a b", "a\nb", "é", None, 5, True, ["x"]])
def test_only_what_looks_like_a_code_is_one(value: object) -> None:
    """Codes reach errors and logs, so their alphabet is closed."""
    assert safe_code(value) is None
