"""Usage as the provider counts it, as the APIs report it, and the ways a report can be spoilt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from memoflow.providers.base import Usage
from memoflow.testing._script import Tokens, UsageVariant

__all__ = ["report_usage", "resolve_usage", "spoil_report", "spoil_usage", "wrong_total"]

Report = dict[str, Any]
_DETAILS = ("input_tokens_details", "output_tokens_details")


def resolve_usage(wanted: Tokens, input_tokens: int, visible_tokens: int) -> Usage:
    """The usage of a reply: what the script says, counted where it says nothing."""
    counted = visible_tokens + wanted.reasoning_tokens
    return Usage(
        input_tokens=input_tokens if wanted.input_tokens is None else wanted.input_tokens,
        output_tokens=counted if wanted.output_tokens is None else wanted.output_tokens,
        cached_input_tokens=wanted.cached_input_tokens,
        cache_write_tokens=wanted.cache_write_tokens,
        reasoning_tokens=wanted.reasoning_tokens,
    )


def report_usage(usage: Usage) -> Report:
    """Usage as the Responses API reports it."""
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_input_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total,
    }


def _counts(report: Report, change: Callable[[int], Any]) -> Report:
    return {key: change(value) if isinstance(value, int) else value for key, value in report.items()}


def wrong_total(report: Report) -> Report:
    """A total that is not the sum."""
    return {**report, "total_tokens": report["total_tokens"] + 1}


_SPOILT: dict[str, Callable[[Report], Any]] = {
    "null": lambda report: None,
    "empty": lambda report: {},
    "null_counts": lambda report: _counts(report, lambda count: None),
    "strings": lambda report: _counts(report, str),
    "floats": lambda report: _counts(report, lambda count: count + 0.5),
    "booleans": lambda report: _counts(report, bool),
    "negative": lambda report: _counts(report, lambda count: -1 - count),
    "huge": lambda report: _counts(report, lambda count: 10**30 + count),
}


def spoil_report(
    report: Report,
    variant: UsageVariant,
    *,
    details: Sequence[str] = _DETAILS,
    wrong: Callable[[Report], Report] = wrong_total,
) -> Any:
    """A report spoilt in the given way, which is not ``absent``.

    Args:
        report: what would be reported.
        variant: the way.
        details: what ``null_details`` makes null.
        wrong: what ``wrong_total`` does.
    """
    if variant == "null_details":
        return {**report, **{key: None for key in details if key in report}}
    return wrong(report) if variant == "wrong_total" else _SPOILT[variant](report)


def spoil_usage(
    response: Report,
    variant: UsageVariant,
    *,
    details: Sequence[str] = _DETAILS,
    wrong: Callable[[Report], Report] = wrong_total,
) -> Report:
    """The response with its usage spoilt in the given way."""
    if variant == "absent":
        return {key: value for key, value in response.items() if key != "usage"}
    report = response["usage"]
    return {**response, "usage": spoil_report(report, variant, details=details, wrong=wrong)}
