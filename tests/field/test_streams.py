"""Cases about streams, terminal states and usage."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memoflow import Budget, OutcomeUnknown, ProviderFailed, tool
from memoflow.openai import AsyncOpenAIResponses, OpenAIResponses
from memoflow.testing import (
    ScriptEntry,
    SimulatedProvider,
    call,
    calls,
    duplicate_terminal,
    failed,
    hold,
    incomplete,
    malformed_usage,
    missing_usage,
    no_events,
    refusal,
    stream_ends_early,
    text,
    truncated_body,
    usage,
)
from memoflow.testing._script import UsageVariant
from tests.field.conftest import REQUEST, Field

RAN: list[Any] = []
VARIANTS: list[UsageVariant] = [
    "null",
    "empty",
    "null_counts",
    "strings",
    "floats",
    "booleans",
    "negative",
    "huge",
    "wrong_total",
]


@tool(version="v1", effect="at_most_once")
def pay(amount: int) -> str:
    """Pay."""
    RAN.append(amount)
    return "paid"


@pytest.mark.parametrize(
    "fault",
    [
        stream_ends_early(calls(call("pay", {"amount": 5})), after=6),
        stream_ends_early(calls(call("pay", {"amount": 5})), after=2),
        no_events(),
        truncated_body(calls(call("pay", {"amount": 5}))),
    ],
    ids=["after the item", "inside the item", "no events", "cut chunk"],
)
def test_case_21_a_stream_without_its_end(case: Field, fault: ScriptEntry) -> None:
    """Without a terminal event the outcome is unknown, the whole hold stays, and nothing runs."""
    RAN.clear()
    played = case.play([fault], [pay], stream=True)
    assert isinstance(played.error, OutcomeUnknown)
    assert RAN == []
    (invocation,) = case.invocations
    assert (invocation.state, invocation.reservation_state) == ("OUTCOME_UNKNOWN", "RECONCILE")
    assert case.account.unknown.total_tokens == 4_000


@pytest.mark.parametrize("stream", [False, True])
def test_case_22_incomplete_and_failed_are_terminal(case: Field, stream: bool) -> None:
    """Both carry usage, which is settled; a second terminal event settles nothing more."""
    cut = case.play([incomplete("Half", usage=usage(10, 5))], stream=stream)
    assert cut.result is not None
    assert cut.result.response.status == "incomplete"
    lost = case.play([failed(usage=usage(10, 5))], stream=stream)
    assert isinstance(lost.error, ProviderFailed)
    assert case.account.settled.total_tokens == 30
    if stream:
        twice = case.play([duplicate_terminal(text("ok", usage=usage(10, 5)))], stream=True)
        assert twice.error is None
        assert case.account.settled.total_tokens == 45


@pytest.mark.parametrize("stream", [False, True])
def test_case_24_usage_that_cannot_be_used(case: Field, stream: bool) -> None:
    """Missing or mistyped usage returns the answer and keeps the hold to be reconciled; never zero."""
    spoilt: list[ScriptEntry] = [missing_usage(text("ok"))]
    spoilt += [malformed_usage(kind, text("ok")) for kind in VARIANTS]
    for entry in spoilt:
        played = case.play([entry], stream=stream)
        assert played.result is not None
        assert played.result.response.output_text == "ok"
    assert {item.reservation_reason for item in case.invocations} == {"USAGE_MISSING"}
    assert {item.reservation_state for item in case.invocations} == {"RECONCILE"}
    assert case.account.unknown.total_tokens == 4_000 * len(spoilt)
    assert case.account.settled.total_tokens == 0


def test_case_26_a_stream_that_is_left_early(case: Field) -> None:
    """A consumer that goes away leaves the whole reservation held: the provider may go on and bill."""
    provider = SimulatedProvider([text("one two three four")])
    llm = OpenAIResponses(provider.client())

    @case.runtime.activity(version="v1", budget="acme")
    def work() -> None:
        with llm.stream(REQUEST, budget=Budget(total_tokens=4_000)) as events:
            for event in events:
                if event.type == "response.output_text.delta":
                    break

    work.run()
    assert case.invocations[0].state == "OUTCOME_UNKNOWN"
    assert case.account.unknown.total_tokens == 4_000


def test_case_26_a_cancelled_call_that_the_server_completes(case: Field) -> None:
    """Cancelling an awaited call proves nothing: its outcome is unknown, and the cancellation leaves."""
    held = hold(text("late"))
    provider = SimulatedProvider([held])
    llm = AsyncOpenAIResponses(provider.async_client())

    @case.runtime.activity(version="v1", budget="acme")
    async def work() -> None:
        await llm.run(REQUEST, budget=Budget(total_tokens=4_000))

    async def cancel_when_sent() -> None:
        task = asyncio.ensure_future(work.run())
        assert await asyncio.to_thread(held.gate.entered.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_when_sent())
    (invocation,) = case.invocations
    assert (invocation.state, invocation.finish_reason) == ("OUTCOME_UNKNOWN", "cancelled")
    assert case.account.unknown.total_tokens == 4_000


def test_case_e7_a_reply_that_can_be_asked_for(case: Field) -> None:
    """The id is kept from the first event on: what the provider has stored is settled by its own word."""
    cut = stream_ends_early(text("ok", usage=usage(10, 5)), after=3)
    stored = case.play(SimulatedProvider([cut], store_interrupted=True), stream=True)
    assert isinstance(stored.error, OutcomeUnknown)
    gone = case.play(SimulatedProvider([cut], seed=1), stream=True)
    assert isinstance(gone.error, OutcomeUnknown)
    for played in (stored, gone):
        llm = OpenAIResponses(played.provider.client())
        case.runtime.reconcile.auto(llm.retrieve, llm.codec)
    (left,) = case.runtime.reconcile.list().invocations
    assert left.id == case.invocations[1].id
    settled = case.invocations[0]
    assert (settled.reservation_state, settled.reason) == ("SETTLED", "RETRIEVED")
    assert settled.actual is not None
    assert settled.actual.total_tokens == 15


def test_case_27_a_refusal_is_an_answer(case: Field) -> None:
    """A refusal is settled, recorded and replayed like any other reply, and asked for once."""
    first = case.play([refusal("no")], run="r")
    assert first.result is not None
    assert first.result.finish_reason == "refusal"
    assert first.result.response.output_text == ""
    assert first.wire == 1
    assert case.invocations[0].reservation_state == "SETTLED"
