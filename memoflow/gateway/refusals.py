"""What a client is told when its request is refused: each provider's own shape of an error, with the figures.

- 402: the money, tokens or calls of an account are used up. Trying again does not help before the period
  resets, and ``Retry-After`` says when that is, where the request would fit then.
- 429: the request does not fit beside those that are running now. It may fit when they have ended, which
  nobody can foresee, so there is no ``Retry-After``.

SDKs try again by themselves what failed. Where that would pay a second time for what may have been done, or
cannot help, ``x-should-retry: false`` keeps them from it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, Final

from memoflow.errors import (
    ActivityBusy,
    ActivityMismatch,
    BudgetDenied,
    BudgetError,
    DigestKeyMismatch,
    InvalidRequest,
    LeaseLost,
    LedgerUnavailable,
    OutcomeUnknown,
    PriceUnknown,
    ProviderError,
    ProviderNotReached,
    RequestNotAllowed,
    ResultNotRetained,
    VirtualKeyRefused,
)

__all__ = ["HttpRefusal", "Refusal", "refusal_of"]

_OPENAI_TYPES: Final = {402: "insufficient_quota", 403: "permission_error", 429: "rate_limit_error"}
_ANTHROPIC_TYPES: Final = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_FIGURES: Final = (
    *("account", "dimension", "limit", "settled", "held", "unknown", "requested", "reserved", "needed"),
    *("fits", "output_cap_fits", "currency", "model", "reason"),
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal, before it has the shape of a provider.

    Attributes:
        code: what it is, for programs.
        retry: whether an SDK may try again by itself; None leaves that to the SDK.
        retry_at: when trying again may help, where that is known.
        figures: what the message says, for programs.
    """

    status: int
    code: str
    message: str
    retry: bool | None = False
    retry_at: datetime | None = None
    figures: dict[str, Any] = field(default_factory=dict)

    def body(self, provider: str) -> bytes:
        """The error as this provider writes it."""
        detail = {"code": self.code, **self.figures}
        if provider == "anthropic":
            kind = _ANTHROPIC_TYPES.get(self.status, "api_error" if self.status >= 500 else None)
            error = {"type": kind or "invalid_request_error", "message": self.message, "memoflow": detail}
            return _json({"type": "error", "error": error})
        kind = _OPENAI_TYPES.get(self.status, "server_error" if self.status >= 500 else None)
        return _json(
            {
                "error": {
                    "message": self.message,
                    "type": kind or "invalid_request_error",
                    "param": None,
                    "code": self.code,
                    "memoflow": detail,
                }
            }
        )

    def headers(self) -> list[tuple[bytes, bytes]]:
        """What goes with the body."""
        headers = [(b"content-type", b"application/json")]
        if self.retry is not None:
            headers.append((b"x-should-retry", b"true" if self.retry else b"false"))
        if self.retry_at is not None:
            headers.append((b"retry-after", _http_date(self.retry_at)))
        if self.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        return headers

    def event(self, api: str) -> bytes:
        """The error as an event of a stream that has begun."""
        if api == "messages":
            return b"event: error\ndata: " + self.body("anthropic") + b"\n\n"
        if api == "responses":
            event = {"type": "error", "code": self.code, "message": self.message, "param": None}
            return b"event: error\ndata: " + _json(event) + b"\n\n"
        return b"data: " + self.body("openai") + b"\n\ndata: [DONE]\n\n"


class HttpRefusal(Exception):
    """A request that is refused for what it is, before anything was looked up."""

    def __init__(self, status: int, code: str, message: str, *, retry: bool | None = False) -> None:
        self.refusal = Refusal(status, code, message, retry)
        super().__init__(message)


def refusal_of(error: Exception) -> Refusal:
    """What a client is told about an error. Nothing of what is not known here is told."""
    match error:
        case HttpRefusal():
            return error.refusal
        case VirtualKeyRefused():
            return Refusal(401, "invalid_api_key", str(error))
        case RequestNotAllowed():
            return Refusal(403, f"{error.what}_not_allowed", str(error))
        case BudgetDenied():
            return _denied(error)
        case PriceUnknown():
            message = (
                f"No price is known for model {error.model!r}, and the account limits money, so the request "
                "was refused before it was sent. Whoever runs the gateway may give one with --price or "
                "--genai-prices."
            )
            return Refusal(402, _code(error), message, figures=_figures(error))
        case BudgetError():
            return Refusal(402, _code(error), str(error), figures=_figures(error))
        case ActivityBusy():
            return Refusal(409, "request_in_progress", _BUSY, None, error.lease_expires_at)
        case ActivityMismatch():
            return Refusal(422, "idempotency_key_reused", _REUSED)
        case InvalidRequest():
            return Refusal(400, "invalid_request", str(error))
        case ResultNotRetained():
            return Refusal(410, "result_not_retained", str(error))
        case _:
            return _of_the_way(error)


def _of_the_way(error: Exception) -> Refusal:
    """What went wrong here, or on the way to the provider and back."""
    match error:
        case ProviderNotReached():
            return Refusal(502, "provider_not_reached", str(error), True)
        case OutcomeUnknown():
            return Refusal(502, "outcome_unknown", str(error), figures={"reason": error.reason})
        case ProviderError():
            return Refusal(502, _code(error), str(error))
        case LedgerUnavailable():
            return Refusal(503, "ledger_unavailable", str(error), True)
        case LeaseLost() | DigestKeyMismatch():
            return Refusal(409, _code(error), str(error))
        case _:
            return Refusal(500, "internal_error", _INTERNAL)


_BUSY: Final = (
    "A request with this Idempotency-Key is in progress. Try again when it has ended: its reply is then "
    "given once more, and nothing is paid twice. If nobody is at it any more, it is free at Retry-After."
)
_REUSED: Final = (
    "This Idempotency-Key was used for another request. Use a new key for a new request, or send exactly the "
    "request that the key was first used for."
)
_INTERNAL: Final = "The gateway could not carry out this request. Its log says why."


def _denied(error: BudgetDenied) -> Refusal:
    figures = _figures(error)
    if error.resets_at is not None:
        figures["resets_at"] = error.resets_at.isoformat()
    if error.reason == "limit" and error.requested <= error.limit - error.settled - error.unknown:
        # Only what is running is in the way.
        return Refusal(429, "budget_busy", str(error), None, figures=figures)
    fits_later = error.reason != "closed" and error.requested <= error.limit
    retry_at = error.resets_at if fits_later else None
    return Refusal(402, _code(error), str(error), retry_at=retry_at, figures=figures)


def _figures(error: BudgetError) -> dict[str, Any]:
    found = {name: getattr(error, name, None) for name in _FIGURES}
    return {name: value for name, value in found.items() if value is not None}


def _code(error: Exception) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()


def _http_date(moment: datetime) -> bytes:
    """A date, which is right whatever the clocks say; to the second, and never too early."""
    late = moment.astimezone(UTC)
    if late.microsecond:
        late = late.replace(microsecond=0) + timedelta(seconds=1)
    return format_datetime(late, usegmt=True).encode()


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
