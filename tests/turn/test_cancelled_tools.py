"""A call that is stopped while its tools run: what they did is recorded, or stays open."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest

from memoflow import CallCancelled, CancelSignal
from memoflow.testing import call, calls, text
from memoflow.turn import crew
from tests.turn._asks import loop
from tests.turn._stopping import meanwhile, stopped, stopping
from tests.turn._tools import Bench
from tests.turn._worlds import MakeWorld


def test_a_signal_during_tools_waits_for_what_runs_and_starts_nothing_else(world: MakeWorld) -> None:
    """The running tool's real outcome is recorded; the queued one is NOT_STARTED; nothing is sent."""
    signal, bench = CancelSignal(), Bench()
    tool = bench.make("f", lambda n: signal.cancel() or n)
    w = world(calls(call("f", {"n": 1}), call("f", {"n": 2})), text("Done."))
    w.ask(loop(tool, signal=signal, tool_concurrency=1)).raised(CallCancelled)
    assert w.states() == [("DONE", None, 1), ("FAILED", "NOT_STARTED", 1)]
    assert w.sent == 1
    again = w.ask(loop(bench.make("f")))
    assert [r.restored for r in again.result.tool_results] == [True, False]
    assert bench.ran == [("f", 1), ("f", 2)]


def test_a_stop_during_plain_tools_waits_for_their_real_outcome(world: MakeWorld) -> None:
    """A thread cannot be cancelled: what it did is waited for and recorded before the stop leaves."""
    bench, go, running = Bench(), threading.Event(), threading.Barrier(3)

    def does(n: int) -> int:
        running.wait(10)
        assert go.wait(10)
        return n

    w = world(calls(call("f", {"n": 1}), call("f", {"n": 2})), text("Done."))

    def wait_and_stop() -> None:
        stop()
        go.set()

    with stopping(w) as stop, meanwhile(lambda: running.wait(10) is not None, wait_and_stop):
        stopped(w, w.ask(loop(bench.make("f", does))))
    assert w.states() == [("DONE", None, 1)] * 2
    assert w.sent == 1
    assert w.ask(loop(bench.make("f", does))).result.response.output_text == "Done."
    assert len(bench.ran) == 2


@pytest.mark.parametrize(("effect", "state"), [("read_only", "FAILED"), ("at_most_once", "OUTCOME_UNKNOWN")])
@pytest.mark.parametrize("often", [False, True])
def test_a_cancelled_call_does_not_wait_for_ever_for_a_plain_tool(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, effect: Any, state: str, often: bool
) -> None:
    """After a while, or cancelled again, the call leaves a thread that hangs; its effect is open."""
    monkeypatch.setattr(crew, "THREAD_GRACE_S", 60.0 if often else 0.05)
    bench, running, go, left = Bench(), threading.Event(), threading.Event(), threading.Event()

    def hang(n: int) -> None:
        running.set()
        go.wait(60)

    def stop_until_left() -> None:
        stop()
        while often and not left.wait(0.02):
            with suppress(RuntimeError):  # The loop is closed: the call has just been left.
                stop()

    w = make_world("async", calls(call("f", {"n": 1})))
    with stopping(w) as stop, meanwhile(lambda: running.wait(10), stop_until_left):
        stopped(w, w.ask(loop(bench.make("f", hang, effect=effect))))
        left.set()
    go.set()
    assert w.states() == [(state, "TOOL_ERROR", 1)]
    assert w.effects()[0].error_type == "CancelledError"


@pytest.mark.parametrize("effect", ["read_only", "at_most_once"])
def test_a_stop_within_an_async_tool_leaves_its_outcome_open(make_world: MakeWorld, effect: Any) -> None:
    """The tool is cancelled where it waits; what it did until then is not known, unless it only reads."""
    bench, entered = Bench(), threading.Event()

    async def does() -> None:
        import asyncio

        entered.set()
        await asyncio.Event().wait()

    w = make_world("async", calls(call("f", {"n": 1})), text("Done."))
    tool = bench.make_async("f", lambda n: does(), effect=effect)
    with stopping(w) as stop, meanwhile(lambda: entered.wait(10), stop):
        stopped(w, w.ask(loop(tool)))
    state = "FAILED" if effect == "read_only" else "OUTCOME_UNKNOWN"
    assert w.states() == [(state, "TOOL_ERROR", 1)]


def test_an_interrupt_within_a_tool_leaves_its_outcome_open(make_world: MakeWorld) -> None:
    """A single tool of the blocking adapter runs on the caller's own thread, where the interrupt arrives."""
    bench = Bench()
    w = make_world("sync", calls(call("f", {"n": 1})))
    w.ask(loop(bench.failing("f", KeyboardInterrupt()))).raised(KeyboardInterrupt)
    assert w.states() == [("OUTCOME_UNKNOWN", "TOOL_ERROR", 1)]


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_an_exit_within_a_tool_is_recorded_before_it_leaves(world: MakeWorld, kind: str) -> None:
    """`sys.exit` in a tool is no way around the record."""
    bench = Bench()

    def leave(n: int) -> None:
        raise SystemExit(3)

    tool = bench.make("f", leave) if kind == "plain" else bench.make_async("f", leave)
    w = world(calls(call("f", {"n": 1})))
    w.ask(loop(tool)).raised(SystemExit)
    assert w.states() == [("OUTCOME_UNKNOWN", "TOOL_ERROR", 1)]
