"""What each error becomes for a client."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from memoflow.errors import (
    ActivityBusy,
    ActivityMismatch,
    BudgetDenied,
    BudgetNotConfigured,
    BudgetTooSmall,
    BudgetUnbounded,
    InvalidRequest,
    LedgerUnavailable,
    OutcomeUnknown,
    PriceUnknown,
    ProviderNotReached,
    RequestNotAllowed,
    ResultNotRetained,
    VirtualKeyRefused,
)
from memoflow.gateway import GatewaySettings
from memoflow.gateway.calling import check_allowed
from memoflow.gateway.incoming import NO_MODEL
from memoflow.gateway.refusals import HttpRefusal, Refusal, refusal_of
from memoflow.ledger.virtual_keys import VirtualKey

MOMENT = datetime(2026, 12, 1, 0, 0, 0, 1, tzinfo=UTC)


def denied(**given: Any) -> BudgetDenied:
    """A refusal of a budget of 1000."""
    figures = {"limit": 1000, "settled": 0, "held": 0, "unknown": 0, "requested": 100, **given}
    return BudgetDenied(account="a", dimension="total_tokens", **figures)


# The error, and status, whether an SDK may try again by itself, and whether a time is named.
ROWS: list[tuple[Exception, int, bool | None, bool]] = [
    (denied(settled=950), 402, False, False),
    (denied(settled=950, resets_at=MOMENT), 402, False, True),
    (denied(unknown=950), 402, False, False),
    (denied(held=950), 429, None, False),
    (denied(held=950, resets_at=MOMENT), 429, None, False),
    (denied(held=60, settled=900), 429, None, False),
    (denied(held=60, settled=800, unknown=150), 402, False, False),
    (denied(requested=1001, resets_at=MOMENT), 402, False, False),
    (denied(reason="closed", resets_at=MOMENT), 402, False, False),
    (denied(reason="over_limit", settled=1001, resets_at=MOMENT), 402, False, True),
    (BudgetNotConfigured(account="a", namespace="n"), 402, False, False),
    (
        BudgetTooSmall(dimension="total_tokens", reserved=1, needed=2, output_cap_fits=0, basis="bound"),
        402,
        False,
        False,
    ),
    (BudgetUnbounded(account="a", dimension="total_tokens", hint="h"), 402, False, False),
    (PriceUnknown(model="m"), 402, False, False),
    (VirtualKeyRefused(reason="unknown"), 401, False, False),
    (RequestNotAllowed(what="model", name="m", allowed=("n",)), 403, False, False),
    (InvalidRequest("It is wrong."), 400, False, False),
    (ActivityBusy(activity="a", attempt=1, lease_expires_at=MOMENT), 409, None, True),
    (ActivityMismatch(activity="a", component="input", recorded="x", given="y"), 422, False, False),
    (ResultNotRetained(what="reply", digest=None, reason="purged"), 410, False, False),
    (OutcomeUnknown(kind="invocation", id="i", reason="READ_TIMEOUT"), 502, False, False),
    (ProviderNotReached(invocation_id="i", cause="ConnectError"), 502, True, False),
    (LedgerUnavailable("gone"), 503, True, False),
    (HttpRefusal(413, "too_large", "Less."), 413, False, False),
    (RuntimeError("a secret"), 500, False, False),
]


@pytest.mark.parametrize(
    ("error", "status", "retry", "timed"),
    ROWS,
    ids=[f"{n}-{type(r[0]).__name__}" for n, r in enumerate(ROWS)],
)
def test_what_a_client_is_told(error: Exception, status: int, retry: bool | None, timed: bool) -> None:
    """Status, whether an SDK tries again by itself, and a time only where it is true."""
    refusal = refusal_of(error)
    headers = dict(refusal.headers())
    assert refusal.status == status
    assert headers.get(b"x-should-retry") == {True: b"true", False: b"false", None: None}[retry]
    assert (b"retry-after" in headers) == timed
    if timed:
        # Never a second too early.
        assert headers[b"retry-after"] == b"Tue, 01 Dec 2026 00:00:01 GMT"


def test_both_shapes_hold_the_message_the_code_and_the_figures() -> None:
    """OpenAI's and Anthropic's errors, for people and for programs."""
    refusal = refusal_of(denied(settled=950, resets_at=MOMENT))
    openai, anthropic = (json.loads(refusal.body(provider)) for provider in ("openai", "anthropic"))
    assert openai["error"]["code"] == "budget_denied"
    assert openai["error"]["param"] is None
    assert anthropic["type"] == "error"
    assert anthropic["error"]["type"] == "billing_error"
    for told in (openai["error"], anthropic["error"]):
        assert told["message"] == refusal.message
        assert told["memoflow"]["limit"] == 1000
        assert told["memoflow"]["resets_at"] == MOMENT.isoformat()


@pytest.mark.parametrize(
    "status", [400, 401, 402, 403, 404, 405, 408, 409, 410, 413, 415, 422, 429, 500, 502, 503]
)
def test_every_status_has_a_type_in_both_shapes(status: int) -> None:
    """No refusal is without the type that SDKs decide by."""
    refusal = Refusal(status, "code", "It is refused.")
    openai, anthropic = (json.loads(refusal.body(provider))["error"] for provider in ("openai", "anthropic"))
    assert openai["type"].islower()
    assert anthropic["type"].endswith(("_error", "request_too_large"))


def test_a_model_without_a_price_is_told_to_whom_it_concerns() -> None:
    """A client has no price book; who runs the gateway has options."""
    refusal = refusal_of(PriceUnknown(model="gpt-x", account="app"))
    assert (refusal.status, refusal.figures["model"]) == (402, "gpt-x")
    assert "--price" in refusal.message
    assert "rt." not in refusal.message


def test_a_request_without_a_model_is_a_wrong_request() -> None:
    """Not one for another model; a key for all models leaves it to the provider."""
    key = VirtualKey("k", "tests", "web", "abcd", "app", ("gpt-5*",), ("*",), None, "ops", 0, None)
    with pytest.raises(InvalidRequest, match="names no model"):
        check_allowed(key, GatewaySettings(), NO_MODEL, {})
    check_allowed(replace(key, models=("*",)), GatewaySettings(), NO_MODEL, {})


def test_what_is_not_known_is_not_told() -> None:
    """The text of an unexpected exception may hold anything, so nobody is shown it."""
    assert "secret" not in refusal_of(RuntimeError("a secret")).message


@pytest.mark.parametrize(
    ("api", "begins"),
    [
        ("messages", b"event: error\ndata: {"),
        ("responses", b"event: error\ndata: {"),
        ("chat.completions", b"data: {"),
    ],
)
def test_an_error_within_a_stream_is_an_event_of_its_api(api: str, begins: bytes) -> None:
    """It has the form of the API's own error event, whole."""
    event = Refusal(502, "outcome_unknown", "It is not known.").event(api)
    assert event.startswith(begins)
    assert event.endswith(b"\n\n")
    assert b"outcome_unknown" in event
