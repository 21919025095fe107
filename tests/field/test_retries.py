"""Cases about retries and budgets."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from memoflow import (
    Budget,
    BudgetDenied,
    BudgetNotConfigured,
    BudgetTooSmall,
    InvalidRequest,
    OutcomeUnknown,
    ProviderNotReached,
    ProviderRejected,
    ReservationConflict,
)
from memoflow.budget import Amounts
from memoflow.ledger.invocations import SettleInvocation
from memoflow.openai import OpenAIResponses
from memoflow.testing import (
    ScriptEntry,
    SimulatedProvider,
    connect_refused,
    forever,
    read_timeout,
    reset_before_reply,
    status,
    text,
    truncated_body,
    usage,
)
from tests.field.conftest import REQUEST, Field, starting


@pytest.mark.parametrize("code", [408, 409, 429, 500, 503, 529])
def test_case_28_one_reservation_for_each_wire_request(case: Field, code: int) -> None:
    """The SDK's retries are off for the call, and the caller's client keeps its own."""
    provider = SimulatedProvider(default=forever(status(code, retry_after_ms=10)))
    client = provider.client(max_retries=2)
    llm = OpenAIResponses(client)

    @case.runtime.activity(version="v1", budget="acme")
    def work() -> None:
        llm.run(REQUEST, budget=Budget(total_tokens=4_000))

    with pytest.raises((ProviderRejected, OutcomeUnknown)):
        work.run()
    assert provider.wire_requests["POST /v1/responses"] == 1
    assert len(case.invocations) == 1
    assert client.max_retries == 2


@pytest.mark.parametrize("fault", [read_timeout(), reset_before_reply(), truncated_body(text("half"))])
def test_case_29_a_timeout_is_not_a_failure(case: Field, fault: ScriptEntry) -> None:
    """What may have been executed is unknown and not sent again; no idempotency key is made up."""
    played = case.play([fault])
    assert isinstance(played.error, OutcomeUnknown)
    assert played.wire == 1
    assert case.account.unknown.total_tokens == 4_000
    headers = played.provider.requests[0].headers
    assert not [name for name in headers if "idempotency" in name.lower()]


def test_case_29_a_connection_that_was_never_made(case: Field) -> None:
    """Before a byte is written a failure releases everything."""
    played = case.play([connect_refused()])
    assert isinstance(played.error, ProviderNotReached)
    assert case.invocations[0].reservation_state == "RELEASED"
    assert case.account.used == Amounts()


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({"retry-after": "300"}, 300.0),
        ({"retry-after-ms": "10"}, 0.01),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
    ],
)
def test_case_30_retry_after_is_told_and_not_slept(
    case: Field, headers: dict[str, str], wanted: float | None
) -> None:
    """The wait a provider asks for is parsed and handed to the caller; the call counts as one model call."""
    played = case.play([status(429, headers=headers)])
    assert isinstance(played.error, ProviderRejected)
    assert played.error.retry_after == wanted
    assert played.error.retryable
    assert (case.account.settled.total_tokens, case.account.settled.model_calls) == (0, 1)


def test_case_30_an_empty_account_is_not_retried(case: Field) -> None:
    """The structured code decides, not the status and not the prose."""
    played = case.play([status(429, code="insufficient_quota", message="Please retry later.")])
    assert isinstance(played.error, ProviderRejected)
    assert not played.error.retryable


def test_case_31_a_missing_budget_is_a_refusal(case: Field) -> None:
    """An account that does not exist refuses, before anything is sent. (The race is in tests/races.)"""
    played = case.play([text("never")], account="nobody")
    assert isinstance(played.error, BudgetNotConfigured)
    assert played.wire == 0


def test_case_31_reservations_at_once(case: Field) -> None:
    """Of eight reservations of 60 at once on a budget of 100, one is admitted."""
    case.runtime.budgets.put("small", Budget(total_tokens=100))
    ready = threading.Barrier(8)
    denied: list[BudgetDenied] = []

    @case.runtime.activity(version="v1", budget="small")
    def work(number: int) -> None:
        fence = case.runtime.current().record.fence
        ready.wait()
        try:
            case.runtime.commit(starting(fence, ("small",), 60))
        except BudgetDenied as error:
            denied.append(error)

    def run(number: int) -> None:
        work.run(number, run_id=f"r{number}")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(denied) == 7
    assert case.runtime.budgets.show("small").held.total_tokens == 60


def test_case_33_a_repeated_settlement(case: Field) -> None:
    """Settling again in the same way is a no-op, in another way a conflict; the balance moves once."""
    seen: dict[str, Any] = {}

    @case.runtime.activity(version="v1", budget="acme")
    def work() -> None:
        llm = OpenAIResponses(SimulatedProvider([text("ok", usage=usage(10, 5))]).client())
        result = llm.run(REQUEST, budget=Budget(total_tokens=4_000))
        fence = case.runtime.current().record.fence
        actual = case.invocations[0].actual
        assert actual is not None
        again = SettleInvocation(fence, result.invocations[0].id, "SUCCEEDED", "settle", actual=actual)
        case.runtime.commit(again)
        other = SettleInvocation(fence, result.invocations[0].id, "FAILED", "release")
        with pytest.raises(ReservationConflict) as conflict:
            case.runtime.commit(other)
        seen["conflict"] = conflict.value

    work.run()
    assert (seen["conflict"].state, seen["conflict"].asked) == ("SETTLED", "RELEASED")
    assert case.account.settled.total_tokens == 15


def test_case_34_more_was_used_than_reserved(case: Field) -> None:
    """The true figure is settled, the answer returned, and the next call refused."""
    case.runtime.budgets.put("acme", Budget(total_tokens=1_000))
    over = case.play(
        [text("ok", usage=usage(400, 1_000))], budget=Budget(total_tokens=1_000), output_cap="caller"
    )
    assert over.result is not None
    assert case.account.settled.total_tokens == 1_400
    assert case.account.over_limit == ("total_tokens",)
    refused = case.play([text("never")], budget=Budget(total_tokens=500))
    assert isinstance(refused.error, BudgetDenied)
    assert (refused.error.reason, refused.error.fits, refused.wire) == ("over_limit", 0, 0)


@pytest.mark.parametrize("cap", [0, -1, "10", True])
def test_case_34_a_cap_that_is_none(case: Field, cap: object) -> None:
    """An output cap that bounds nothing is refused before anything is reserved."""
    played = case.play([text("never")], request={**REQUEST, "max_output_tokens": cap})
    assert isinstance(played.error, InvalidRequest)
    assert played.wire == 0
    assert case.invocations == []


def test_case_34_a_cap_above_the_reservation(case: Field) -> None:
    """A cap that does not fit is refused, and the refusal says what would fit."""
    played = case.play([text("never")], request={**REQUEST, "max_output_tokens": 5_000})
    assert isinstance(played.error, BudgetTooSmall)
    assert 0 < played.error.output_cap_fits < 4_000
    fits = case.play([text("ok")], request={**REQUEST, "max_output_tokens": played.error.output_cap_fits})
    assert fits.error is None
