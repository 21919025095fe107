"""Cases about streams, terminal states and usage."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from memoflow import Budget, InvalidRequest, OutcomeUnknown, ProviderFailed, ProviderRejected, tool
from memoflow.openai import OpenAIResponses
from memoflow.testing import (
    ScriptEntry,
    SimulatedProvider,
    call,
    calls,
    corrupt_chunk,
    duplicate_terminal,
    error_event,
    failed,
    forever,
    hold,
    incomplete,
    malformed_usage,
    missing_usage,
    no_events,
    raw,
    refusal,
    reset_mid_body,
    stops,
    stream_ends_early,
    text,
    truncated_body,
    usage,
)
from memoflow.testing._script import UsageVariant
from tests.field._faces import CHAT, MESSAGES, Face
from tests.field.conftest import Field

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


WANTED = calls(call("pay", {"amount": 5}))


ENDLESS: dict[str, ScriptEntry] = {
    "all but the end": stream_ends_early(WANTED),
    "inside the item": stream_ends_early(WANTED, after=3),
    "after the start": stream_ends_early(WANTED, after=1),
    "no events": no_events(),
    "cut chunk": truncated_body(WANTED),
    "reset": reset_mid_body(WANTED),
    "corrupt": corrupt_chunk(WANTED),
    "error": error_event(then=WANTED, after=3),
}


def test_case_21_a_stream_without_its_end(each: Field) -> None:
    """Without a terminal event the outcome is unknown, the whole hold stays, and nothing runs."""
    RAN.clear()
    for what, fault in ENDLESS.items():
        played = each.play([fault], [pay], stream=True)
        assert isinstance(played.error, OutcomeUnknown), what
        assert RAN == []
    ended = {(one.state, one.reservation_state) for one in each.invocations}
    assert ended == {("OUTCOME_UNKNOWN", "RECONCILE")}
    assert each.account.unknown.total_tokens == 4_000 * len(ENDLESS)


def test_case_21_a_message_that_only_lacks_its_last_event(case: Field) -> None:
    """Its reason to stop was told, and that is not yet its end."""
    RAN.clear()
    played = case.play([stream_ends_early(WANTED, after=-1)], [pay], stream=True, face=MESSAGES)
    assert isinstance(played.error, OutcomeUnknown)
    assert RAN == []
    assert case.account.unknown.total_tokens == 4_000


def test_case_21_over_sockets(each: Field, stream: bool) -> None:
    """What an SDK makes of a connection that ends in the wrong place differs; what it proves does not."""
    faults = [truncated_body(text("one two three")), reset_mid_body(text("one two three")), no_events()]
    provider = SimulatedProvider(faults)
    with provider.serve() as url, each.face.at(url) as llm:

        @each.runtime.activity(version="v1", budget="acme")
        def work() -> None:
            if not stream:
                llm.run(each.face.asking(), budget=Budget(total_tokens=4_000))
                return
            with llm.stream(each.face.asking(), budget=Budget(total_tokens=4_000)) as events:
                list(events)

        for _ in faults:
            with pytest.raises(OutcomeUnknown):
                work.run()
    assert len(provider.requests) == len(faults)
    assert each.account.unknown.total_tokens == 4_000 * len(faults)


def test_case_21_the_id_is_kept_if_it_was_seen(each: Field) -> None:
    """Whoever asks the provider about it can name it."""
    played = each.play([stream_ends_early(text("one two three"), after=3)], stream=True)
    assert isinstance(played.error, OutcomeUnknown)
    (invocation,) = each.invocations
    assert invocation.retrievable
    each.play([no_events()], stream=True)
    assert not each.invocations[1].retrievable


def test_case_21_a_new_attempt_is_a_request_of_its_own(each: Field) -> None:
    """It is reserved beside the old hold, which stays; what the cut stream had begun is not continued."""
    provider = SimulatedProvider([stream_ends_early(text("one two three"), after=3), text("whole")])
    each.play(provider, stream=True, run="r")
    again = each.play(provider, stream=True, run="r")
    assert again.text == "whole"
    assert again.sent[0] == again.sent[1]
    assert each.account.unknown.total_tokens == 4_000


def test_case_22_incomplete_and_failed_are_terminal(case: Field, stream: bool) -> None:
    """Both carry usage, which is settled; a second terminal event settles nothing more."""
    cut = case.play([incomplete("Half", usage=usage(10, 5))], stream=stream)
    assert cut.result is not None
    assert cut.result.response.status == "incomplete"
    lost = case.play([failed(usage=usage(10, 5))], stream=stream)
    assert isinstance(lost.error, ProviderFailed)
    assert case.account.settled.total_tokens == 30


def test_case_22_a_cut_reply_is_an_answer_with_its_usage(each: Field, stream: bool) -> None:
    """In each API's own words: it is returned with its reason, and what it took is settled."""
    for reason, told in (("max_output_tokens", "length"), ("content_filter", None)):
        played = each.play([incomplete("Half", reason=reason, usage=usage(10, 5))], stream=stream)
        assert played.text == "Half"
        assert played.result is not None
        assert played.result.finish_reason == (told or played.result.finish_reason) != "stop"
    assert each.account.settled.total_tokens == 30


def test_case_22_an_end_that_comes_twice(each: Field) -> None:
    """It is settled once, and returned once."""
    twice = each.play([duplicate_terminal(text("ok", usage=usage(10, 5)))], stream=True)
    assert twice.text == "ok"
    assert each.account.settled.total_tokens == 15
    assert each.account.settled.model_calls == 1


@pytest.mark.parametrize("face", [CHAT, MESSAGES], ids=str)
def test_case_22_where_a_reply_cannot_have_failed(case: Field, stream: bool, face: Face) -> None:
    """There a failure is an error of which nobody says what it took: unknown, and the hold stays."""
    played = case.play([failed(usage=usage(10, 5))], stream=stream, face=face)
    assert isinstance(played.error, OutcomeUnknown)
    assert case.account.settled.total_tokens == 0
    assert case.account.unknown.total_tokens == 4_000


def test_case_24_usage_that_cannot_be_used(each: Field, stream: bool) -> None:
    """Missing or mistyped usage returns the answer and keeps the hold to be reconciled; never zero."""
    spoilt: list[ScriptEntry] = [missing_usage(text("ok"))]
    # A message has no total. What its parts of the written cache are is nowhere used, and stale in streams.
    kinds = VARIANTS[:-1] if each.face is MESSAGES else VARIANTS
    spoilt += [malformed_usage(kind, text("ok")) for kind in kinds]
    for entry in spoilt:
        played = each.play([entry], stream=stream)
        assert played.text == "ok"
    each.play([malformed_usage("null_details", text("ok"))], stream=stream)
    *unusable, details = each.invocations
    assert {item.reservation_reason for item in unusable} == {"USAGE_MISSING"}
    assert {item.reservation_state for item in unusable} == {"RECONCILE"}
    assert each.account.unknown.total_tokens == 4_000 * len(spoilt)
    # Details may be missing where the totals are there.
    assert details.reservation_state == "SETTLED"


def test_case_24_details_that_contradict_the_totals(each: Field, stream: bool) -> None:
    """One part that cannot be right makes all doubtful: more reasoning than output, more cache than input."""
    doubtful = [usage(10, 5, reasoning=50)]
    # Anthropic's input is what was not cached, so there no figure for the cache is too large.
    doubtful += (
        [] if each.face is MESSAGES else [usage(10, 5, cached=11), usage(10, 5, cached=6, cache_write=6)]
    )
    for reported in doubtful:
        assert each.play([text("ok", usage=reported)], stream=stream).text == "ok"
    assert {item.reservation_reason for item in each.invocations} == {"USAGE_MISSING"}
    assert each.account.unknown.total_tokens == 4_000 * len(doubtful)


def test_case_24_the_next_round_after_usage_that_is_missing(each: Field, stream: bool) -> None:
    """A round is not free because the one before it was not counted: it is measured and reserved anew."""
    RAN.clear()
    played = each.play([missing_usage(WANTED), text("ok")], [pay], stream=stream)
    assert played.text == "ok"
    assert RAN == [5]
    assert [item.reservation_state for item in each.invocations] == ["RECONCILE", "SETTLED"]
    measured = [item.input_measured or 0 for item in each.invocations]
    assert measured[1] > measured[0] > 0


def test_case_26_a_stream_that_is_left_early(each: Field) -> None:
    """A consumer that goes away leaves the whole reservation held: the provider may go on and bill.

    What a stream says of its input before its end is not what it took.
    """
    provider = SimulatedProvider([text("one two three four five six")])
    llm = each.face.over(provider)

    @each.runtime.activity(version="v1", budget="acme")
    def work() -> None:
        with llm.stream(each.face.asking(), budget=Budget(total_tokens=4_000)) as events:
            for number, _ in enumerate(events):
                if number == 4:
                    break

    work.run()
    assert each.invocations[0].state == "OUTCOME_UNKNOWN"
    assert each.account.unknown.total_tokens == 4_000
    assert each.account.settled.total_tokens == 0


def test_case_26_an_async_stream_that_is_left_early(each: Field) -> None:
    """The same where nobody blocks, whether it is left by a break or by an exception of the reader."""
    provider = SimulatedProvider(default=forever(text("one two three four five six")))
    llm = each.face.over_async(provider)

    @each.runtime.activity(version="v1", budget="acme")
    async def work(fails: bool) -> None:
        async with llm.stream(each.face.asking(), budget=Budget(total_tokens=4_000)) as events:
            await anext(events)
            await anext(events)
            if fails:
                raise ConnectionError("the reader's own")

    asyncio.run(work.run(False))
    with pytest.raises(ConnectionError):
        asyncio.run(work.run(True))
    assert [item.state for item in each.invocations] == ["OUTCOME_UNKNOWN"] * 2
    assert each.account.unknown.total_tokens == 8_000


def test_case_26_a_cancelled_call_that_the_server_completes(each: Field, stream: bool) -> None:
    """Cancelling an awaited call proves nothing: its outcome is unknown, and the cancellation leaves."""
    held = hold(text("late"))
    provider = SimulatedProvider([held])
    llm = each.face.over_async(provider)

    @each.runtime.activity(version="v1", budget="acme")
    async def work() -> None:
        if not stream:
            await llm.run(each.face.asking(), budget=Budget(total_tokens=4_000))
            return
        async with llm.stream(each.face.asking(), budget=Budget(total_tokens=4_000)) as events:
            async for _ in events:
                pass

    async def cancel_when_sent() -> None:
        task = asyncio.ensure_future(work.run())
        assert await asyncio.to_thread(held.gate.entered.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_when_sent())
    (invocation,) = each.invocations
    assert (invocation.state, invocation.finish_reason) == ("OUTCOME_UNKNOWN", "cancelled")
    assert each.account.unknown.total_tokens == 4_000


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


def test_case_e7_a_background_response(case: Field) -> None:
    """Its reply is no end, and what comes of it may be gone when it is asked for: it is refused unsent."""
    played = case.play([text("never")], request=case.face.asking(background=True, store=True))
    assert isinstance(played.error, InvalidRequest)
    assert (played.wire, case.invocations) == (0, [])


@pytest.mark.parametrize("face", [CHAT, MESSAGES], ids=str)
def test_case_e7_a_reply_that_nobody_can_ask_for(case: Field, face: Face) -> None:
    """Other APIs keep nothing: their unknowns wait for a person, and are not asked for elsewhere."""
    case.play([stream_ends_early(text("ok"), after=3)], stream=True, face=face)
    elsewhere = SimulatedProvider()
    llm = OpenAIResponses(elsewhere.client())
    case.runtime.reconcile.auto(llm.retrieve, llm.codec)
    assert elsewhere.requests == []
    (left,) = case.runtime.reconcile.list().invocations
    assert left.id == case.invocations[0].id
    assert case.account.unknown.total_tokens == 4_000


def test_case_27_a_refusal_is_an_answer(each: Field, stream: bool) -> None:
    """A refusal is settled, recorded and replayed like any other reply, and asked for once."""
    provider = SimulatedProvider([refusal("no")])
    llm = each.face.over(provider)
    seen: list[tuple[str, bool]] = []

    @each.runtime.activity(version="v1", budget="acme")
    def work() -> None:
        for _ in range(2):
            options = {"budget": Budget(total_tokens=4_000), "replay_key": "turn"}
            if stream:
                with llm.stream(each.face.asking(), **options) as events:
                    list(events)
                result = events.result
            else:
                result = llm.run(each.face.asking(), **options)
            seen.append((result.finish_reason, result.restored))

    work.run()
    assert seen == [("refusal", False), ("refusal", True)]
    assert len(provider.requests) == 1
    assert each.invocations[0].reservation_state == "SETTLED"
    assert each.account.settled.total_tokens == provider.billed.total


def test_case_27_a_refusal_without_a_word(case: Field, stream: bool) -> None:
    """Nothing in a message is not nothing: Anthropic refuses with an empty content, which is settled."""
    played = case.play([stops("refusal", usage=usage(10, 0))], stream=stream, face=MESSAGES)
    assert played.result is not None
    assert (played.result.finish_reason, played.result.response.content) == ("refusal", [])
    assert (played.wire, case.account.settled.total_tokens) == (1, 10)


def test_case_27_a_refusal_with_a_call_in_it(each: Field, stream: bool) -> None:
    """A turn that a filter ended runs nothing, and the conversation is not carried on."""
    RAN.clear()
    script = [incomplete(call("pay", {"amount": 5}), reason="content_filter"), text("never")]
    played = each.play(script, [pay], stream=stream)
    assert RAN == []
    assert played.wire == 1


def test_case_27_a_rejected_request_is_not_a_refusal(each: Field) -> None:
    """A filter that rejects the prompt is a 400: not billed, not retryable, not an answer."""
    body = {"error": {"code": "content_filter", "type": "invalid_request_error", "message": "no"}}
    played = each.play([raw(json.dumps(body).encode(), status=400, performed=False)])
    assert isinstance(played.error, ProviderRejected)
    assert not played.error.retryable
    assert each.account.settled.total_tokens == 0
