"""Cases about hidden retries, what a failure proves, and what a provider asks to wait for."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from memoflow import (
    Budget,
    OutcomeUnknown,
    ProviderNotReached,
    ProviderRejected,
    Retry,
)
from memoflow.budget import Amounts
from memoflow.testing import (
    ScriptEntry,
    SimulatedProvider,
    closed_before_reply,
    connect_refused,
    connect_timeout,
    delay,
    dns_failure,
    forever,
    pool_timeout,
    read_timeout,
    reset_before_reply,
    reset_mid_body,
    status,
    text,
    truncated_body,
    write_error,
)
from tests.field._faces import FACES, Face
from tests.field.conftest import Field

BUDGET = Budget(total_tokens=4_000)
# What the SDKs would send again by themselves.
REPEATED: list[ScriptEntry] = [
    *(status(code, retry_after_ms=10) for code in (408, 409, 429, 500, 503, 529)),
    status(400, headers={"x-should-retry": "true"}),
    reset_before_reply(),
    truncated_body(text("half")),
    connect_refused(),
]


def test_case_28_one_reservation_for_each_wire_request(each: Field, stream: bool) -> None:
    """The SDK's retries are off for the call, and the caller's client keeps its own."""
    provider = SimulatedProvider(REPEATED, default=forever(text("never")))
    llm = each.face.over(provider, max_retries=2)
    client = llm._port.client

    @each.runtime.activity(version="v1", budget="acme")
    def work() -> None:
        if not stream:
            llm.run(each.face.asking(), budget=BUDGET)
            return
        with llm.stream(each.face.asking(), budget=BUDGET) as events:
            list(events)

    for number in range(len(REPEATED)):
        with pytest.raises((ProviderRejected, OutcomeUnknown, ProviderNotReached)):
            work.run()
        assert len(provider.requests) == number + 1
    assert len(each.invocations) == len(REPEATED)
    assert client.max_retries == 2


def test_case_28_async_clients_too(each: Field) -> None:
    """The async SDKs have the same habit."""
    provider = SimulatedProvider(default=forever(status(503)))
    llm = each.face.over_async(provider)

    @each.runtime.activity(version="v1", budget="acme")
    async def work() -> None:
        await llm.run(each.face.asking(), budget=BUDGET)

    with pytest.raises(OutcomeUnknown):
        asyncio.run(work.run())
    assert len(provider.requests) == 1


def test_case_28_retries_of_the_activity_are_attempts_with_a_reservation_each(each: Field) -> None:
    """Three attempts are three requests, not nine, and each is there to be seen."""
    provider = SimulatedProvider(default=forever(status(429)))
    llm = each.face.over(provider)

    @each.runtime.activity(version="v1", budget="acme", retry=Retry(attempts=3, wait=lambda _: 0.0))
    def work() -> None:
        llm.run(each.face.asking(), budget=BUDGET, replay_key="turn")

    with pytest.raises(ProviderRejected):
        work.run()
    assert len(provider.requests) == 3
    assert [item.attempt for item in each.invocations] == [1, 2, 3]
    assert each.account.settled.model_calls == 3


AMBIGUOUS: list[ScriptEntry] = [
    read_timeout(),
    reset_before_reply(),
    closed_before_reply(),
    write_error(),
    truncated_body(text("half")),
    reset_mid_body(text("half")),
]


def test_case_29_a_timeout_is_not_a_failure(each: Field, stream: bool) -> None:
    """What may have been executed is unknown and not sent again; no idempotency key is made up."""
    provider = SimulatedProvider(AMBIGUOUS)
    for _ in AMBIGUOUS:
        played = each.play(provider, stream=stream)
        assert isinstance(played.error, OutcomeUnknown)
    assert len(each.invocations) == len(AMBIGUOUS)
    assert each.account.unknown.total_tokens == 4_000 * len(AMBIGUOUS)
    names = {name.lower() for request in provider.requests for name in request.headers}
    assert not [name for name in names if "idempotency" in name]


def test_case_29_a_server_that_answers_too_late(each: Field) -> None:
    """The server executed it once; the client gave up, and neither it nor memoflow sent it again."""
    provider = SimulatedProvider([delay(0.4, text("late"))])
    with provider.serve() as url, each.face.at(url, timeout=0.1, max_retries=2) as llm:

        @each.runtime.activity(version="v1", budget="acme")
        def work() -> None:
            llm.run(each.face.asking(), budget=BUDGET)

        with pytest.raises(OutcomeUnknown):
            work.run()
    assert len(provider.requests) == 1
    assert each.account.unknown.total_tokens == 4_000


def test_case_29_a_further_run_is_a_new_attempt(each: Field) -> None:
    """Whoever runs it again has a reservation admitted beside the hold that is still there."""
    provider = SimulatedProvider([read_timeout(), text("ok")])
    each.play(provider, run="r")
    again = each.play(provider, run="r")
    assert again.text == "ok"
    assert [item.attempt for item in each.invocations] == [1, 2]
    assert each.account.unknown.total_tokens == 4_000


def test_case_29_a_connection_that_was_never_made(each: Field, stream: bool) -> None:
    """Before a byte is written a failure releases everything."""
    unsent = [connect_refused(), dns_failure(), connect_timeout(), pool_timeout()]
    for fault in unsent:
        played = each.play([fault], stream=stream)
        assert isinstance(played.error, ProviderNotReached)
    assert {item.reservation_state for item in each.invocations} == {"RELEASED"}
    assert each.account.used == Amounts()


def _in_two_minutes() -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=120), usegmt=True)


WAITS: list[tuple[dict[str, str], float | None]] = [
    ({"retry-after": "300"}, 300.0),
    ({"retry-after": "4294967"}, 86_400.0),
    ({"retry-after-ms": "10"}, 0.01),
    ({"retry-after": "-1"}, None),
    ({"retry-after": "nan"}, None),
    ({"retry-after": "inf"}, None),
    ({"retry-after": "soon"}, None),
    ({"retry-after": "Mon, 01 Jan 2001 00:00:00 GMT"}, 0.0),
    ({}, None),
]


def test_case_30_retry_after_is_told_and_not_slept(each: Field) -> None:
    """The wait a provider asks for is parsed and handed to the caller; the call counts as one model call."""
    began = time.monotonic()
    for headers, wanted in WAITS:
        played = each.play([status(429, headers=headers)])
        assert isinstance(played.error, ProviderRejected)
        assert (played.error.retry_after, played.error.retryable, played.wire) == (wanted, True, 1)
    assert time.monotonic() - began < 30
    settled = each.account.settled
    assert (settled.total_tokens, settled.model_calls) == (0, len(WAITS))


def test_case_30_retry_after_as_a_date(each: Field) -> None:
    """An HTTP date is a wait from now on."""
    played = each.play([status(429, headers={"retry-after": _in_two_minutes()})])
    assert isinstance(played.error, ProviderRejected)
    assert played.error.retry_after is not None
    assert 60 < played.error.retry_after <= 120


def test_case_30_no_lock_is_held_while_a_provider_is_slow(each: Field) -> None:
    """Others reserve and settle while a call waits; nothing of the ledger is open meanwhile."""

    def answer(request: Any) -> Any:
        each.runtime.budgets.put("other", Budget(total_tokens=5))
        return text("ok")

    played = each.play(SimulatedProvider(answer))
    assert played.text == "ok"


@pytest.mark.parametrize("face", FACES, ids=str)
def test_case_30_an_empty_account_is_not_retried(case: Field, face: Face) -> None:
    """The structured code decides, not the status and not the prose."""
    for code, retryable in (("insufficient_quota", False), ("rate_limit_exceeded", True)):
        message = "Please retry later." if not retryable else "You exceeded your current quota: billing."
        played = case.play([status(429, code=code, message=message)], face=face)
        assert isinstance(played.error, ProviderRejected)
        assert played.error.retryable is retryable
