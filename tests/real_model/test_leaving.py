"""Leaving a real model in the middle of a reply: nobody knows what it will have cost."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from certification.estimate.server import Llama
from memoflow import CallCancelled, CancelSignal, OutcomeUnknown
from memoflow.budget import Amounts
from tests.real_model.conftest import MODEL, RealWorld
from tests.turn._asks import LEAVE, Ask

AFTER = 12  # events, of several hundred


def story(w: RealWorld, watch: Callable[[Any], object] = lambda event: None, **options: Any) -> Ask:
    """A reply that takes seconds."""
    given = {"model": MODEL, "cap": 600, "watch": watch, **options}
    return w.api.ask("stream", "Tell a very long story.", **given)


def after_some(does: Callable[[], object]) -> Callable[[Any], object]:
    """Does something once, when some events have come."""
    seen = iter(range(AFTER))
    return lambda event: does() if next(seen, None) is None else None


def check_unknown(w: RealWorld, llama: Llama, reason: str) -> None:
    """The whole hold stays, as unknown, though part of the reply was seen; the server stops working."""
    found = w.invocation
    assert (found.state, found.reservation_state, found.reason) == ("OUTCOME_UNKNOWN", "RECONCILE", reason)
    assert (found.actual, found.retrievable) == (None, True)
    assert w.balance() == (Amounts(), Amounts(), found.reserved)
    (exchange,) = w.exchanges
    assert exchange.parts
    end = time.monotonic() + 20
    while _is_busy(llama):
        assert time.monotonic() < end, "The server goes on, so the connection was not closed."
        time.sleep(0.05)


def _is_busy(llama: Llama) -> bool:
    with urllib.request.urlopen(f"{llama.url}/slots", timeout=10) as answer:
        return any(slot["is_processing"] for slot in json.load(answer))


def test_a_stream_that_is_left(real: RealWorld, llama: Llama) -> None:
    """Leaving the block early is leaving the provider to it."""
    real.ask(story(real, after_some(lambda: LEAVE)))
    check_unknown(real, llama, "ABANDONED")


def test_a_signal_in_a_stream(real: RealWorld, llama: Llama) -> None:
    """A cancel signal ends the call, which says that it was under way."""
    signal = CancelSignal()
    assert real.ask(story(real, after_some(signal.cancel), signal=signal)).raised(CallCancelled).dispatched
    check_unknown(real, llama, "CANCELLED")


def test_a_deadline_in_a_stream(real: RealWorld, llama: Llama) -> None:
    """A reply that takes longer than it may is not waited for."""
    error = real.ask(story(real, timeout=1.0)).raised(OutcomeUnknown)
    assert error.reason == "DEADLINE"
    check_unknown(real, llama, "DEADLINE")


@pytest.mark.parametrize("mode", ["async"], indirect=True)
def test_a_task_that_is_cancelled(real: RealWorld, llama: Llama) -> None:
    """The record is written first, then the cancellation goes on."""

    def cancel() -> None:
        assert real.task is not None
        real.task.cancel()

    error = real.ask(story(real, after_some(cancel))).error
    assert type(error).__name__ == "CancelledError"
    check_unknown(real, llama, "CANCELLED")


def test_what_was_left_is_paid_beside_the_next(real: RealWorld) -> None:
    """A retry asks anew: its own counts are settled, and the old hold stays beside them."""
    real.ask(story(real, after_some(lambda: LEAVE), cap=40))
    got = real.ask(story(real, cap=40)).result
    assert real.api.said(got.response)
    first, second = real.invocations()
    assert (first.reservation_state, second.reservation_state) == ("RECONCILE", "SETTLED")
    given, made = real.exchanges[1].reported(real.api)
    assert real.balance() == (Amounts(given + made, given, made, 1), Amounts(), first.reserved)
