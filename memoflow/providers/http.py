"""What an HTTP status, its headers and its error body prove about a call.

Everything is decided from the status and from structured codes, never from prose.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, Literal, NamedTuple

from memoflow.canonical import StrictJSONError, parse_strict

__all__ = [
    "MAX_ERROR_BODY_BYTES",
    "MAX_RETRY_AFTER_SECONDS",
    "ErrorDetail",
    "classify_status",
    "error_code",
    "error_detail",
    "failure_is_retryable",
    "is_retryable",
    "parse_retry_after",
    "safe_code",
]

MAX_ERROR_BODY_BYTES: Final = 64 * 1024
"""Error bodies above this are not read; a structured code needs a few hundred bytes."""

MAX_RETRY_AFTER_SECONDS: Final = 86_400
"""Longest wait that is reported; a longer one is reported as this. memoflow itself never sleeps."""

_REJECTED: Final = frozenset({400, 401, 403, 404, 405, 413, 415, 422, 429})

# An account without money, or without rights, stays so however long one waits.
_FINAL_CODES: Final = frozenset(
    {
        "access_terminated",
        "account_deactivated",
        "billing_error",
        "billing_hard_limit_reached",
        "billing_not_active",
        "insufficient_quota",
    }
)
# Ends of a response that a further attempt may not meet again.
_TRANSIENT_CODES: Final = frozenset(
    {"overloaded_error", "rate_limit_exceeded", "server_error", "vector_store_timeout"}
)
_CODE: Final = re.compile(r"[A-Za-z0-9_.\-]{1,64}")
_PARAMETER: Final = re.compile(r"[A-Za-z0-9_.\-\[\]]{1,128}")
_SECONDS: Final = re.compile(r"[0-9]{1,32}(\.[0-9]{1,32})?")


def classify_status(status: int) -> Literal["rejected", "unknown"]:
    """Whether an error status proves that the provider refused; anything else proves nothing."""
    return "rejected" if status in _REJECTED else "unknown"


def is_retryable(status: int, code: str | None) -> bool:
    """Whether a rejected request may succeed later: only 429, unless the account itself is the cause."""
    return status == 429 and code not in _FINAL_CODES


def failure_is_retryable(code: str | None) -> bool:
    """Whether a reply that ended as failed with this code may succeed on a further attempt."""
    return code in _TRANSIENT_CODES


def safe_code(value: object) -> str | None:
    """A provider's code if it has the form of one, so that no prose reaches errors and logs."""
    return value if isinstance(value, str) and _CODE.fullmatch(value) else None


class ErrorDetail(NamedTuple):
    """What an error body says in structured form; its message may hold payload and is never read."""

    code: str | None = None
    type: str | None = None
    param: str | None = None


def error_detail(body: bytes | str | Mapping[str, Any] | None) -> ErrorDetail:
    """The structured parts of an error body.

    Takes the whole body or the already decoded one, with or without the ``error`` envelope.
    """
    value: Any = body
    if isinstance(body, (bytes, str)):
        try:
            value = parse_strict(body, max_bytes=MAX_ERROR_BODY_BYTES)
        except StrictJSONError:
            return ErrorDetail()
    if not isinstance(value, Mapping):
        return ErrorDetail()
    inner = value.get("error")
    error = inner if isinstance(inner, Mapping) else value
    param = error.get("param")
    return ErrorDetail(
        safe_code(error.get("code")),
        safe_code(error.get("type")),
        param if isinstance(param, str) and _PARAMETER.fullmatch(param) else None,
    )


def error_code(body: bytes | str | Mapping[str, Any] | None) -> str | None:
    """The structured code of an error body, else its structured type, else None; see `error_detail`."""
    detail = error_detail(body)
    return detail.code or detail.type


def parse_retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds the provider asked to wait, or None where it says nothing usable.

    Reads ``retry-after-ms``, then ``retry-after`` as seconds or as an HTTP date. A date in the past
    is 0; negative, infinite and malformed values are no statement at all.

    Args:
        headers: names in any case.
        now: an aware datetime that dates are compared with.
    """
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    seconds = _number(lower.get("retry-after-ms"), 1000)
    if seconds is None:
        text = lower.get("retry-after")
        seconds = _number(text, 1)
        if seconds is None:
            seconds = _until(text, now)
    return None if seconds is None else min(seconds, float(MAX_RETRY_AFTER_SECONDS))


def _number(text: str | None, divisor: int) -> float | None:
    if text is None or not _SECONDS.fullmatch(text):
        return None
    return float(text) / divisor


def _until(text: str | None, now: datetime) -> float | None:
    if text is None or len(text) > 64:
        return None
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    # "-0000" gives a naive value; HTTP dates are always GMT.
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0.0, (aware - now).total_seconds())
