"""Asking the provider to count the input: it may take no longer than the call, and reserves nothing."""

from __future__ import annotations

import pytest

from memoflow import Budget, CallCancelled, CancelSignal, ProviderError
from memoflow.budget import Amounts
from memoflow.testing import Held, call, calls, hold, status, text
from tests.turn._asks import LOOP, loop, run, stream
from tests.turn._stopping import at_point, meanwhile, stopped, stopping
from tests.turn._tools import Bench
from tests.turn._worlds import MakeWorld, World

KINDS = {"whole": run, "streamed": stream}


def held_count(w: World) -> Held:
    """The provider does not answer how many tokens the input has."""
    held = hold(status(500))
    w.provider.push(held, to="count")
    return held


def nothing_reserved(w: World) -> bool:
    """Whether the ledger knows of no invocation, and nothing was generated."""
    return w.invocations() == [] and w.balance() == (Amounts(),) * 3 and w.sent == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_before_a_count_sends_nothing(world: MakeWorld, kind: str) -> None:
    """Not even the question how large the input is."""
    signal, w = CancelSignal(), world()
    with at_point("before:Count", signal.cancel):
        error = w.ask(KINDS[kind](count_input=True, signal=signal)).raised(CallCancelled)
    assert (error.dispatched, error.invocation_id) == (False, None)
    assert (nothing_reserved(w), w.provider.requests) == (True, [])


@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_during_a_count_reserves_nothing(world: MakeWorld, kind: str) -> None:
    """The provider's answer is not waited for."""
    signal, w = CancelSignal(), world()
    held = held_count(w)
    with meanwhile(held.wait_entered, signal.cancel):
        error = w.ask(KINDS[kind](count_input=True, signal=signal)).raised(CallCancelled)
    held.release()
    assert (error.dispatched, error.invocation_id) == (False, None)
    assert nothing_reserved(w)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_during_a_count_reserves_nothing(world: MakeWorld, kind: str) -> None:
    """An interrupt or a cancelled task leaves as what it is."""
    w = world()
    held = held_count(w)
    with stopping(w) as stop, meanwhile(held.wait_entered, stop):
        stopped(w, w.ask(KINDS[kind](count_input=True)))
    held.release()
    assert nothing_reserved(w)


@pytest.mark.parametrize(
    "limit", [{"timeout": 0.05}, {"budget": Budget(total_tokens=20_000, wall_clock_ms=50)}]
)
def test_the_total_time_limits_a_count(world: MakeWorld, limit: dict[str, object]) -> None:
    """The limit of the call, or the time it reserves, is the limit of the question too."""
    w = world()
    held = held_count(w)
    error = w.ask(run(count_input=True, **limit)).raised(ProviderError)
    held.release()
    assert "within 0.05 s" in str(error)
    assert "input_tokens=" in str(error)
    assert nothing_reserved(w)


def test_limits_that_are_not_reached_change_nothing(world: MakeWorld) -> None:
    """Neither the count nor what the provider says about it, also on a helper thread."""
    w = world(text("Hello."))
    w.provider.push(status(429), to="count")
    limits = {"timeout": 60.0, "signal": CancelSignal()}
    assert "status 429" in str(w.ask(run(count_input=True, **limits)).raised(ProviderError))
    assert w.ask(run(count_input=True, **limits)).error is None
    assert w.invocation.input_basis == "counted"


def test_a_signal_during_the_count_of_a_later_round_says_what_stays(world: MakeWorld) -> None:
    """Only the round that was not sent costs nothing; those before it are charged, and so is said."""
    signal, w = CancelSignal(), world(calls(call("f", {"n": 1})), text("Done."))
    bench = Bench()
    ask = loop(bench.make("f"), count_input=True, signal=signal, budget=LOOP)
    with at_point("before:Count", signal.cancel, occurrence=2):
        error = w.ask(ask).raised(CallCancelled)
    assert "no budget was used for that one" in str(error)
    assert "earlier rounds used stays charged" in str(error)
    assert (w.invocation.state, w.balance()[0].model_calls) == ("SUCCEEDED", 1)
    assert w.states() == [("DONE", None, 1)]
    assert w.ask(loop(bench.make("f"), count_input=True)).result.response.output_text == "Done."
    assert bench.ran == [("f", 1)]
