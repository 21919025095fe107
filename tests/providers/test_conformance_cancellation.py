"""A call of any API that is stopped leaves a record of what was done by then, wherever it was stopped."""

from __future__ import annotations

from typing import Any

import pytest

from memoflow import CallCancelled, CancelSignal, OutcomeUnknown
from memoflow.budget import Amounts
from memoflow.errors import ConfigurationError
from memoflow.testing import call, calls, hold, text, usage
from tests.providers.conformance import OnApi, everywhere
from tests.turn._asks import LEAVE, leave_at_the_end, run, stream
from tests.turn._stopping import (
    NOTHING,
    at_commit,
    at_point,
    check_released,
    check_unknown,
    meanwhile,
    stopped,
    stopping,
)
from tests.turn._tools import Bench

KINDS = {"whole": run, "streamed": stream}
START, SETTLE = 2, 3  # commits of an attempt, after its claim

pytestmark = everywhere
each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
def test_a_signal_before_the_reservation_costs_nothing(api_world: OnApi, kind: str) -> None:
    """A call whose signal was set beforehand reserves nothing and sends nothing."""
    signal, w = CancelSignal(), api_world(text("never"))
    signal.cancel()
    assert w.ask(KINDS[kind](signal=signal)).raised(CallCancelled).dispatched is False
    assert (w.invocations(), w.balance(), w.provider.requests) == ([], NOTHING, [])


@each_kind
def test_a_signal_between_the_reservation_and_the_request_releases_the_hold(
    api_world: OnApi, kind: str
) -> None:
    """Nothing was sent: CANCELLED and released; the next attempt starts afresh."""
    signal, w = CancelSignal(), api_world(text("again"))
    with at_point("before:Dispatch", signal.cancel):
        w.ask(KINDS[kind](signal=signal)).raised(CallCancelled)
    check_released(w, error_type="CallCancelled")
    assert w.text(w.ask(KINDS[kind]())) == "again"


def test_a_stop_while_the_reservation_is_recorded_releases_the_hold(api_world: OnApi) -> None:
    """An interrupt or cancelled task during the reservation's commit waits for it, then nothing is sent."""
    w = api_world(text("never"))
    with stopping(w) as stop, at_commit(START, stop):
        error = stopped(w, w.ask(run()))
    check_released(w, error_type=type(error).__name__)


@each_kind
def test_a_signal_after_the_request_leaves_the_outcome_unknown(api_world: OnApi, kind: str) -> None:
    """The provider may have done it: the whole hold stays."""
    held, signal = hold(text("late")), CancelSignal()
    w = api_world(held)
    with meanwhile(held.wait_entered, signal.cancel):
        assert w.ask(KINDS[kind](signal=signal)).raised(CallCancelled).dispatched is True
    held.release()
    check_unknown(w, "CANCELLED", kept_id=False)


@each_kind
def test_a_stop_after_the_request_leaves_the_outcome_unknown(api_world: OnApi, kind: str) -> None:
    """The record is written before the interrupt or cancellation goes on as what it is."""
    held = hold(text("late"))
    w = api_world(held)
    with stopping(w) as stop, meanwhile(held.wait_entered, stop):
        stopped(w, w.ask(KINDS[kind]()))
    check_unknown(w, "CANCELLED", kept_id=False)
    assert held.client_gone


def test_a_stop_within_a_stream_leaves_the_outcome_unknown(api_world: OnApi) -> None:
    """The id of the reply is kept, though nobody waits for that."""
    held = hold(text("Hello."), after=3)
    w = api_world(held)
    with stopping(w) as stop, meanwhile(held.wait_entered, stop):
        got = w.ask(stream())
    stopped(w, got)
    assert got.events
    check_unknown(w, "CANCELLED", kept_id=True)


def test_a_stop_while_a_reply_is_recorded_loses_nothing(api_world: OnApi) -> None:
    """The reply is settled and kept; the stop leaves afterwards; the next attempt restores the reply."""
    w = api_world(text("Hello.", usage=usage(10, 5)))
    with stopping(w) as stop, at_commit(SETTLE, stop):
        stopped(w, w.ask(run()))
    assert w.balance() == (Amounts(15, 10, 5, 1), Amounts(), Amounts())
    assert w.ask(run()).result.restored
    assert w.sent == 1


@each_kind
def test_the_total_time_ends_a_request_as_unknown(api_world: OnApi, kind: str) -> None:
    """`timeout` counts for the whole request; what came of it is not known."""
    held = hold(text("late"), after=2 if kind == "streamed" else None)
    w = api_world(held)
    assert w.ask(KINDS[kind](timeout=0.05)).raised(OutcomeUnknown).reason == "DEADLINE"
    held.release()
    check_unknown(w, "DEADLINE", kept_id=kind == "streamed")


def test_the_idle_time_ends_a_stream_as_unknown(api_world: OnApi) -> None:
    """`idle_timeout` counts between two events, however long the stream lasts."""
    held = hold(text("late"), after=2)
    w = api_world(held)
    assert w.ask(stream(idle_timeout=0.05)).raised(OutcomeUnknown).reason == "IDLE_TIMEOUT"
    held.release()
    check_unknown(w, "IDLE_TIMEOUT", kept_id=True)


# Streams that are left


def test_a_stream_left_before_its_end_is_unknown(api_world: OnApi) -> None:
    """Whoever leaves does not know what will be billed: the hold stays and there is no result."""
    w = api_world(text("Hello."))
    got = w.ask(stream(watch=lambda event: LEAVE))
    got.raised(ConfigurationError)
    assert len(got.events) == 1
    check_unknown(w, "ABANDONED", kept_id=True)


def test_a_stream_left_at_its_end_is_settled(api_world: OnApi) -> None:
    """By then everything is known; the result is there although nobody read on."""
    w = api_world(text("Hello.", usage=usage(10, 5)))
    assert w.text(w.ask(stream(watch=leave_at_the_end))) == "Hello."
    assert w.balance() == (Amounts(15, 10, 5, 1), Amounts(), Amounts())


def test_an_exception_in_the_block_leaves_the_stream(api_world: OnApi) -> None:
    """The consumer's exception goes on as it is; the stream is recorded as left."""

    def watch(event: Any) -> None:
        raise LookupError

    w = api_world(text("Hello."))
    w.ask(stream(watch=watch)).raised(LookupError)
    check_unknown(w, "ABANDONED", kept_id=True)


def test_a_stream_left_while_it_is_restored_is_left_quietly(api_world: OnApi) -> None:
    """No event of a later recorded round comes after the consumer went away; the record stays whole."""
    bench, w = Bench(), api_world(calls(call("f", {"n": 1})), calls(call("f", {"n": 2})), text("done"))
    f = bench.make("f")
    assert w.ask(stream(f)).error is None
    got = w.ask(stream(f, watch=lambda event: LEAVE))
    got.raised(ConfigurationError)
    assert len(got.events) == 1
    assert w.ask(stream(f)).result.restored
    assert (w.sent, bench.ran) == (3, [("f", 1), ("f", 2)])


def test_tools_of_a_stream_that_was_left_do_not_run(api_world: OnApi) -> None:
    """The round is settled, its call is FAILED / NOT_STARTED, and the next attempt runs it."""
    bench, w = Bench(), api_world(calls(call("f", {"n": 1})), text("Done."))
    w.ask(stream(bench.make("f"), watch=leave_at_the_end)).raised(ConfigurationError)
    assert (bench.ran, w.states()) == ([], [("FAILED", "NOT_STARTED", 1)])
    assert w.text(w.ask(stream(bench.make("f")))) == "Done."
    assert (bench.ran, w.states()[1:]) == ([("f", 1)], [("DONE", None, 2)])
