"""The outcome table: what the end of a request means for its invocation and its reservation.

One function decides, from memoflow's own state and the transport's phase, never from a class
name or a message. Whatever is not listed as known is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, assert_never

from memoflow.budget import Amounts
from memoflow.errors import (
    CallCancelled,
    MemoflowError,
    OutcomeUnknown,
    ProviderFailed,
    ProviderNotReached,
    ProviderRejected,
)
from memoflow.ledger.holdings import ZERO
from memoflow.ledger.invocations import TokenUse
from memoflow.pricing import Price
from memoflow.providers.base import Reply, Usage
from memoflow.providers.http import classify_status, failure_is_retryable
from memoflow.turn.steps import Answered, Arrived, Dispatched, Interrupted, NotSent

__all__ = ["NOT_STARTED", "REJECTED", "STATES", "Verdict", "judge", "token_use"]

NOT_STARTED: Final = "PROVIDER_CALL_NOT_STARTED"
REJECTED: Final = "PROVIDER_REJECTED"
USAGE_MISSING: Final = "USAGE_MISSING"

STATES: Final = {
    "completed": "SUCCEEDED",
    "incomplete": "SUCCEEDED",
    "failed": "FAILED",
    "cancelled": "CANCELLED",
}
"""What an invocation becomes by the status of its terminal reply."""


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """What is recorded about a request, and what its caller is told.

    ``resolution`` is ``settle``, ``release`` or ``unknown``; ``reply`` is set when there is one to use.
    """

    state: str
    resolution: str
    reason: str | None = None
    finish_reason: str | None = None
    http_status: int | None = None
    error_code: str | None = None
    error_type: str | None = None
    response_id: str | None = None
    usage: TokenUse | None = None
    actual: Amounts = ZERO
    reply: Reply | None = None
    raises: BaseException | None = None


def judge(dispatched: Dispatched, invocation_id: str, *, price: Price | None, strict: bool) -> Verdict:
    """Apply the outcome table to one request."""
    answer, spent = dispatched.answer, Amounts(model_calls=1, wall_clock_ms=dispatched.elapsed_ms)
    match answer:
        case Arrived():
            return _terminal(answer.reply, invocation_id, spent, price)
        case NotSent() if not (strict and answer.entered):
            return _not_sent(answer, invocation_id)
        case Answered() if not strict and classify_status(answer.status) == "rejected":
            return _rejected(answer, invocation_id, spent)
        case NotSent():
            return _unknown(Interrupted(reason=answer.cause, error=answer.error), invocation_id)
        case Answered():
            reason = f"HTTP_{answer.status}"
            return _unknown(Interrupted(reason=reason, status=answer.status, code=answer.code), invocation_id)
        case Interrupted():
            return _unknown(answer, invocation_id)
        case _:
            assert_never(answer)


def _terminal(reply: Reply, invocation_id: str, spent: Amounts, price: Price | None) -> Verdict:
    if reply.status == "pending":
        return _unknown(Interrupted(reason="NOT_TERMINAL", response_id=reply.response_id), invocation_id)
    usage, actual = _use(reply, spent, price)
    resolution, reason = ("settle", None) if usage is not None else ("unknown", USAGE_MISSING)
    raises: MemoflowError | None = None
    if reply.status in ("failed", "cancelled"):
        raises = ProviderFailed(
            invocation_id=invocation_id,
            status=reply.status,
            code=reply.error_code,
            retryable=reply.status == "failed"
            and usage is not None
            and failure_is_retryable(reply.error_code),
        )
    return Verdict(
        state=STATES[reply.status],
        resolution=resolution,
        reason="INVALID_REPLY" if reply.problem is not None and reason is None else reason,
        finish_reason=reply.finish_reason,
        error_code=reply.error_code,
        response_id=reply.response_id if resolution == "unknown" else None,
        usage=usage,
        actual=actual,
        reply=reply,
        raises=raises,
    )


def token_use(usage: Usage, price: Price | None) -> TokenUse:
    """A reported usage as it is recorded, with its price if one is known."""
    cost = None
    if price is not None:
        cost = price.cost(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_input_tokens=usage.cached_input_tokens,
            cache_write_tokens=usage.cache_write_tokens,
        )
    return TokenUse(
        usage.input_tokens,
        usage.cached_input_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
        cost,
    )


def _use(reply: Reply, spent: Amounts, price: Price | None) -> tuple[TokenUse | None, Amounts]:
    if reply.usage is None:
        return None, Amounts()
    use = token_use(reply.usage, price)
    actual = spent._replace(
        total_tokens=reply.usage.total,
        input_tokens=use.input_tokens,
        output_tokens=use.output_tokens,
        cost=use.cost or 0,
    )
    return use, actual


def _not_sent(answer: NotSent, invocation_id: str) -> Verdict:
    error = answer.error
    signalled = isinstance(error, CallCancelled)
    cancelled = signalled or (error is not None and not isinstance(error, Exception))
    if signalled:
        raises: BaseException = CallCancelled(invocation_id=invocation_id, dispatched=False)
    elif error is not None and cancelled:
        raises = error
    else:
        raises = _unchained(ProviderNotReached(invocation_id=invocation_id, cause=answer.cause))
    return Verdict(
        state="CANCELLED" if cancelled else "FAILED",
        resolution="release",
        reason=NOT_STARTED,
        finish_reason="cancelled" if cancelled else None,
        error_type=_type_name(error),
        raises=raises,
    )


def _rejected(answer: Answered, invocation_id: str, spent: Amounts) -> Verdict:
    return Verdict(
        state="FAILED",
        resolution="settle",
        reason=REJECTED,
        http_status=answer.status,
        error_code=answer.code,
        actual=spent,
        raises=ProviderRejected(
            invocation_id=invocation_id,
            status=answer.status,
            code=answer.code,
            retry_after=answer.retry_after,
            retryable=answer.retryable,
            type=answer.type,
            param=answer.param,
        ),
    )


def _unknown(answer: Interrupted, invocation_id: str) -> Verdict:
    raises: BaseException = OutcomeUnknown(kind="invocation", id=invocation_id, reason=answer.reason)
    if isinstance(answer.error, CallCancelled):
        raises = CallCancelled(invocation_id=invocation_id, dispatched=True)
    elif answer.error is not None and not isinstance(answer.error, Exception):
        # A cancelled task or an interrupt from the keyboard leaves as what it is.
        raises = answer.error
    else:
        raises = _unchained(raises)
    return Verdict(
        state="OUTCOME_UNKNOWN",
        resolution="unknown",
        reason=answer.reason,
        finish_reason="cancelled" if answer.cancelled else None,
        http_status=answer.status,
        error_code=answer.code,
        error_type=_type_name(answer.error),
        response_id=answer.response_id,
        raises=raises,
    )


def _type_name(error: BaseException | None) -> str | None:
    return None if error is None else type(error).__name__[:128]


def _unchained(error: BaseException) -> BaseException:
    # The SDK's exception holds the request and the reply; a chained traceback would print them into logs.
    error.__suppress_context__ = True
    return error
