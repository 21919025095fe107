"""What a model is told about a call that has no result of its own: one small JSON object."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

__all__ = [
    "approval_text",
    "known_failure_text",
    "not_encodable_text",
    "refusal_text",
    "review_required_text",
    "too_large_text",
]

_MAX_DETAIL: Final = 2_000


def refusal_text(code: str, detail: str) -> str:
    """What the model is told about a call that was not run.

    Args:
        code: upper-case code, such as ``INVALID_ARGUMENTS`` or ``UNKNOWN_TOOL``.
        detail: a sentence without payload text; cut at 2,000 characters.
    """
    return _error(code, detail)


def known_failure_text(message: str) -> str:
    """What the model is told when a tool raised `ToolKnownFailure`: its message, cut at 2,000 characters."""
    return _error("TOOL_FAILED", message or "The tool failed, and nothing happened.")


def too_large_text(digest: str, size: int, limit: int) -> str:
    """What the model is told about a result over the limit: its digest and size, none of its content.

    Args:
        digest: tagged digest of the result's text.
        size: its bytes in UTF-8.
        limit: the most that were allowed.
    """
    return _error(
        "RESULT_TOO_LARGE",
        f"The tool ran, but its result of {size} bytes is over the limit of {limit} and is not shown. "
        "Calling it again gives the same; ask for less.",
        digest=digest,
        bytes=size,
    )


def not_encodable_text() -> str:
    """What the model is told about a result that has no exact text form."""
    return _error(
        "RESULT_NOT_ENCODABLE",
        "The tool ran, but its result cannot be written as text and is not shown. Do not call it again.",
    )


def approval_text(reason: str, told: str | None) -> str:
    """What the model is told about a call that no person allowed.

    Args:
        reason: ``APPROVAL_DENIED`` or ``APPROVAL_EXPIRED``, as the effect is recorded.
        told: what the approver wants the model to know, if anything.
    """
    if reason == "APPROVAL_EXPIRED":
        return _status("approval_expired", "Nobody allowed this call in time, so it was not run.")
    shared = {} if told is None else {"reason": told}
    detail = "A person did not allow this call, so it was not run. Do not ask for the same again."
    return _status("approval_denied", detail, **shared)


def review_required_text(findings: Iterable[tuple[str, str]]) -> str:
    """What the model is told about a call that a judge did not permit: each finding's judge and code."""
    listed = [{"judge": judge, "code": code} if code else {"judge": judge} for judge, code in findings]
    detail = "This call is not permitted as it stands, so it was not run."
    return _status("causal_review_required", detail, findings=listed)


def _status(status: str, detail: str, **more: Any) -> str:
    return json.dumps({"status": status, "detail": detail, **more}, ensure_ascii=False, separators=(",", ":"))


def _error(code: str, detail: str, **figures: str | int) -> str:
    if len(detail) > _MAX_DETAIL:
        detail = detail[: _MAX_DETAIL - 1] + "…"
    # A message may hold what no request can carry, such as a file name that was not UTF-8.
    detail = detail.encode(errors="replace").decode()
    return json.dumps(
        {"error": {"code": code, "detail": detail, **figures}}, ensure_ascii=False, separators=(",", ":")
    )
