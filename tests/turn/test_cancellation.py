"""A call that is stopped leaves a record of what was done by then, and the caller's own stop leaves it."""

from __future__ import annotations

from typing import Any

import pytest

from memoflow import Budget, CallCancelled, CancelSignal, OutcomeUnknown
from memoflow.budget import Amounts
from memoflow.errors import ConfigurationError
from memoflow.ledger import schema as s
from memoflow.testing import call, calls, hold, status, text, usage
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
from tests.turn._worlds import MakeWorld, World

SOON = 0.05  # seconds until a limit is reached that is to be reached
KINDS = {"whole": run, "streamed": stream}
# The commits of an attempt: its claim, its first reservation, the settlement of that.
CLAIM, START, SETTLE = 1, 2, 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_before_the_reservation_costs_nothing(world: MakeWorld, kind: str) -> None:
    """A call whose signal was set beforehand reserves nothing and sends nothing."""
    signal = CancelSignal()
    signal.cancel()
    w = world(text("never"))
    error = w.ask(KINDS[kind](signal=signal)).raised(CallCancelled)
    assert (error.dispatched, error.invocation_id) == (False, None)
    assert (w.invocations(), w.balance(), w.provider.requests) == ([], NOTHING, [])


@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_between_the_reservation_and_the_request_releases_the_hold(
    world: MakeWorld, kind: str
) -> None:
    """STARTED is durable, nothing was sent: CANCELLED and released; the next attempt starts afresh."""
    signal, w = CancelSignal(), world(text("again"))
    with at_point("before:Dispatch", signal.cancel):
        error = w.ask(KINDS[kind](signal=signal)).raised(CallCancelled)
    assert (error.dispatched, error.invocation_id) == (False, w.invocation.id)
    check_released(w, error_type="CallCancelled")
    assert w.ask(KINDS[kind]()).result.response.output_text == "again"


@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_while_the_reservation_is_recorded_releases_the_hold(world: MakeWorld, kind: str) -> None:
    """An interrupt or cancelled task during the reservation's commit waits for it, then nothing is sent."""
    w = world(text("never"))
    with stopping(w) as stop, at_commit(START, stop):
        error = stopped(w, w.ask(KINDS[kind]()))
    check_released(w, error_type=type(error).__name__)


@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_after_the_request_leaves_the_outcome_unknown(world: MakeWorld, kind: str) -> None:
    """The provider may have done it: the whole hold stays, and the exception names the invocation."""
    held, signal = hold(text("late")), CancelSignal()
    w = world(held)
    with meanwhile(held.wait_entered, signal.cancel):
        error = w.ask(KINDS[kind](signal=signal)).raised(CallCancelled)
    held.release()
    assert (error.dispatched, error.invocation_id) == (True, w.invocation.id)
    check_unknown(w, "CANCELLED", kept_id=False)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_after_the_request_leaves_the_outcome_unknown(world: MakeWorld, kind: str) -> None:
    """The record is written before the interrupt or cancellation goes on as what it is."""
    held = hold(text("late"))
    w = world(held)
    with stopping(w) as stop, meanwhile(held.wait_entered, stop):
        error = stopped(w, w.ask(KINDS[kind]()))
    check_unknown(w, "CANCELLED", kept_id=False)
    assert w.invocation.error_type == type(error).__name__
    assert held.client_gone


def test_a_stop_within_a_stream_keeps_the_id_of_the_reply(world: MakeWorld) -> None:
    """The first event names the reply; its id is kept for reconciliation, though nobody waits for that."""
    held = hold(text("Hello."), after=3)
    w = world(held)
    with stopping(w) as stop, meanwhile(held.wait_entered, stop):
        got = w.ask(stream())
    stopped(w, got)
    assert [event.type for event in got.events][:2] == ["response.created", "response.in_progress"]
    check_unknown(w, "CANCELLED", kept_id=True)


def test_a_signal_within_a_stream_keeps_the_id_of_the_reply(world: MakeWorld) -> None:
    """The same for a cancel signal, which comes from anywhere."""
    held, signal = hold(text("Hello."), after=3), CancelSignal()
    w = world(held)
    with meanwhile(held.wait_entered, signal.cancel):
        assert w.ask(stream(signal=signal)).raised(CallCancelled).dispatched is True
    held.release()
    check_unknown(w, "CANCELLED", kept_id=True)


def test_a_stop_while_a_reply_is_recorded_loses_nothing(world: MakeWorld) -> None:
    """The reply is settled and kept; the stop leaves afterwards; the next attempt restores the reply."""
    w = world(text("Hello.", usage=usage(10, 5)))
    with stopping(w) as stop, at_commit(SETTLE, stop):
        stopped(w, w.ask(run()))
    assert w.balance() == (Amounts(15, 10, 5, 1), Amounts(), Amounts())
    assert w.ask(run()).result.restored
    assert w.sent == 1


def test_a_task_that_is_cancelled_while_a_stream_is_recorded_loses_nothing(make_world: MakeWorld) -> None:
    """The same where other commits, for which nobody waits, come in between."""
    w = make_world("async", text("Hello.", usage=usage(10, 5)))
    with stopping(w) as stop, at_point("before:Commit", stop, occurrence=2):
        stopped(w, w.ask(stream()))
    assert w.balance() == (Amounts(15, 10, 5, 1), Amounts(), Amounts())
    assert w.ask(stream()).result.restored


def test_a_stop_goes_before_what_the_provider_said(world: MakeWorld) -> None:
    """A refusal that is being recorded when the caller stops is recorded, and the stop is what leaves."""
    w = world(status(429))
    with stopping(w) as stop, at_commit(SETTLE, stop):
        stopped(w, w.ask(run()))
    assert w.invocation.reason == "PROVIDER_REJECTED"
    assert w.balance()[0] == Amounts(model_calls=1)


def test_a_stop_while_an_attempt_is_claimed_gives_the_claim_back(world: MakeWorld) -> None:
    """The activity is free at once, not only when the lease has run out."""
    w = world(text("Hello."))
    with stopping(w) as stop, at_commit(CLAIM, stop):
        stopped(w, w.ask(run()))
    (attempt,) = w.read(lambda c: c.execute(s.attempts.select().where(_of(w))).all())
    assert (attempt.state, attempt.error_type) == ("CANCELLED", "Interrupted")
    assert w.ask(run()).result.response.output_text == "Hello."


def test_a_stop_while_an_activity_completes_completes_it(world: MakeWorld) -> None:
    """The output is recorded before the stop leaves; the next run returns it and calls nobody."""
    w = world(text("Hello."))
    with stopping(w) as stop, at_commit(SETTLE + 1, stop):
        stopped(w, w.ask(run(), complete=True))
    assert w.ask(run(), complete=True).value == 1
    assert w.sent == 1


def _of(w: World) -> Any:
    mine = s.activities.select().where(s.activities.c.namespace == w.rt.namespace)
    return s.attempts.c.activity_id.in_(mine.with_only_columns(s.activities.c.id))


# Limits of time


@pytest.mark.parametrize("kind", KINDS)
def test_the_total_time_ends_a_request_as_unknown(world: MakeWorld, kind: str) -> None:
    """`timeout` counts for the whole request; what came of it is not known."""
    held = hold(text("late"), after=2 if kind == "streamed" else None)
    w = world(held)
    error = w.ask(KINDS[kind](timeout=SOON)).raised(OutcomeUnknown)
    held.release()
    assert (error.id, error.reason) == (w.invocation.id, "DEADLINE")
    check_unknown(w, "DEADLINE", kept_id=kind == "streamed")


def test_the_reserved_wall_clock_is_a_time_limit(world: MakeWorld) -> None:
    """A call that reserves provider time is told to stop there, also when its own timeout is longer."""
    held = hold(text("late"))
    w = world(held)
    budget = Budget(total_tokens=20_000, wall_clock_ms=50)
    w.ask(run(budget=budget, timeout=60.0)).raised(OutcomeUnknown)
    held.release()
    check_unknown(w, "DEADLINE", kept_id=False)
    assert w.invocation.reserved.wall_clock_ms == 50


def test_the_idle_time_ends_a_stream_as_unknown(world: MakeWorld) -> None:
    """`idle_timeout` counts between two events, however long the stream lasts."""
    held = hold(text("late"), after=2)
    w = world(held)
    got = w.ask(stream(idle_timeout=SOON, timeout=60.0))
    held.release()
    assert got.raised(OutcomeUnknown).reason == "IDLE_TIMEOUT"
    assert [event.type for event in got.events] == ["response.created", "response.in_progress"]
    check_unknown(w, "IDLE_TIMEOUT", kept_id=True)


def test_the_idle_time_is_no_limit_of_a_whole_reply(world: MakeWorld) -> None:
    """Without streaming there is nothing to be idle between."""
    held = hold(text("Hello."))
    w = world(held)
    with meanwhile(held.wait_entered, held.release):
        assert w.ask(run(idle_timeout=0.000_001)).result.response.output_text == "Hello."


@pytest.mark.parametrize("kind", KINDS)
def test_limits_that_are_not_reached_change_nothing(world: MakeWorld, kind: str) -> None:
    """The same reply and events as without limits, on the helper thread of the blocking adapter too."""
    w = world(text("Hello."), text("Hello."))
    plain = w.ask(KINDS[kind](replay_key="plain"))
    limits = {"timeout": 60.0, "signal": CancelSignal()} | (
        {"idle_timeout": 30.0} if kind == "streamed" else {}
    )
    limited = w.ask(KINDS[kind](replay_key="limited", **limits))
    assert limited.result.response.output_text == plain.result.response.output_text == "Hello."
    assert [e.type for e in limited.events] == [e.type for e in plain.events]


# Streams that are left


def test_a_stream_left_before_its_terminal_event_is_unknown(world: MakeWorld) -> None:
    """Whoever leaves does not know what will be billed: the hold stays and there is no result."""
    w = world(text("Hello."))
    got = w.ask(stream(watch=lambda event: LEAVE))
    got.raised(ConfigurationError)
    assert len(got.events) == 1
    check_unknown(w, "ABANDONED", kept_id=True)


def test_a_stream_left_at_its_terminal_event_is_settled(world: MakeWorld) -> None:
    """By then everything is known; the result is there although nobody read on."""
    w = world(text("Hello.", usage=usage(10, 5)))
    ending = stream(watch=leave_at_the_end)
    assert w.ask(ending).result.response.output_text == "Hello."
    assert w.balance() == (Amounts(15, 10, 5, 1), Amounts(), Amounts())


def test_a_stream_left_while_it_is_restored_is_left_quietly(world: MakeWorld) -> None:
    """No event of a later recorded round comes after the consumer went away; the record stays whole."""
    bench, w = Bench(), world(calls(call("note", {"n": 1})), calls(call("note", {"n": 2})), text("done"))
    note = bench.make("note")
    assert w.ask(stream(note)).error is None
    got = w.ask(stream(note, watch=lambda event: LEAVE))
    got.raised(ConfigurationError)
    assert [event.type for event in got.events] == ["response.created"]
    assert w.ask(stream(note)).result.restored
    assert (w.sent, bench.ran) == (3, [("note", 1), ("note", 2)])


def test_an_exception_in_the_block_leaves_the_stream(world: MakeWorld) -> None:
    """The consumer's exception goes on as it is; the stream is recorded as left."""

    def watch(event: Any) -> None:
        raise LookupError

    w = world(text("Hello."))
    w.ask(stream(watch=watch)).raised(LookupError)
    check_unknown(w, "ABANDONED", kept_id=True)


def test_a_stream_that_is_never_read_costs_nothing(world: MakeWorld) -> None:
    """Nothing is reserved or sent before the first event is asked for."""
    w = world(text("never"))

    def nobody(llm: Any) -> None:
        llm.stream({"model": "gpt-test", "input": "Hello"}, budget=Budget(total_tokens=2_000))

    w.within(nobody)
    assert (w.invocations(), w.provider.requests) == ([], [])


def test_tools_of_a_stream_that_was_left_do_not_run(world: MakeWorld) -> None:
    """The round is settled, its call is FAILED / NOT_STARTED, and the next attempt runs it."""
    bench = Bench()
    leaving = stream(bench.make("f"), watch=leave_at_the_end)
    w = world(calls(call("f", {"n": 1})), text("Done."))
    w.ask(leaving).raised(ConfigurationError)
    assert (bench.ran, w.states()) == ([], [("FAILED", "NOT_STARTED", 1)])
    assert w.ask(stream(bench.make("f"))).result.response.output_text == "Done."
    assert (bench.ran, w.states()[1:]) == ([("f", 1)], [("DONE", None, 2)])
