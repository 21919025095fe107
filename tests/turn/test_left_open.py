"""What a call leaves open when it ends in an unforeseen way: the end of its attempt finds it."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from memoflow import ToolKnownFailure, faults
from memoflow.ledger.transaction import Transaction
from memoflow.testing import call, calls, text
from tests.ledger._notes import Note
from tests.turn._asks import BUDGET, REQUEST, loop
from tests.turn._tools import Bench
from tests.turn._worlds import MakeWorld


class Speechless(ToolKnownFailure):
    """A known failure whose own text cannot be had."""

    def __str__(self) -> str:
        raise ValueError("the text of an order")


def test_a_known_failure_that_cannot_say_what_it_is_still_says_that_nothing_happened(
    world: MakeWorld,
) -> None:
    """It is told to the model without words, and what its sibling did is recorded."""

    def decline(n: int) -> Any:
        raise Speechless

    bench = Bench()
    w = world(calls(call("f", {"n": 1}), call("g", {"n": 2})), text("Done."))
    tools = bench.make("f", decline, effect="at_most_once"), bench.make("g", effect="at_most_once")
    result = w.ask(loop(*tools)).result
    assert [r.state for r in result.tool_results] == ["FAILED", "DONE"]
    assert w.states() == [("FAILED", "KNOWN_FAILURE", 1), ("DONE", None, 1)]
    assert "an order" not in result.tool_results[0].output


def test_a_call_cut_off_between_its_steps_is_unknown_when_the_activity_completes(
    make_world: MakeWorld,
) -> None:
    """An interrupt may strike anywhere. The activity may outlive it; the request is not left STARTED."""
    w = make_world("sync", text("paid"))

    def strike(point: str) -> None:
        if point == "after:Dispatch":
            raise KeyboardInterrupt

    def body(llm: Any) -> str:
        with pytest.raises(KeyboardInterrupt):
            llm.run(REQUEST, budget=BUDGET)
        return "went on"

    faults.install(strike)
    try:
        assert w.within(body) == "went on"
    finally:
        faults.install(None)
    assert (w.invocation.state, w.invocation.reason) == ("OUTCOME_UNKNOWN", "ATTEMPT_LOST")
    assert w.balance()[2].total_tokens == BUDGET.total_tokens


def test_a_stream_that_is_lost_in_a_cycle_is_unknown_when_the_activity_completes(
    make_world: MakeWorld,
) -> None:
    """The collector ends the generators of a cycle in an order of its own, and nothing is settled then."""
    w = make_world("sync", text("one two three"))

    def lose(llm: Any) -> None:
        stream = llm.stream(REQUEST, budget=BUDGET)
        stream.itself = stream
        next(iter(stream))

    def body(llm: Any) -> str:
        lose(llm)
        gc.collect()
        return "went on"

    assert w.within(body) == "went on"
    assert w.invocation.state == "OUTCOME_UNKNOWN"
    assert w.balance()[2].total_tokens == BUDGET.total_tokens


def test_a_stream_that_is_dropped_on_the_thread_that_writes_holds_nobody_up(make_world: MakeWorld) -> None:
    """The collector runs on any thread. Whoever is made to end a stream there waits for no record of it."""
    w = make_world("sync", text("one two three"))
    dropped: list[Any] = []

    class Drop(Note):
        def apply(self, tx: Transaction) -> str:
            dropped.clear()
            return super().apply(tx)

    def body(llm: Any) -> str:
        stream = llm.stream(REQUEST, budget=BUDGET)
        next(iter(stream))
        dropped.append(stream)
        del stream
        return str(w.rt.ledger.writer.submit(Drop("went on"))[0].result(30))

    assert w.within(body) == "went on"
    assert (w.invocation.state, w.invocation.reason) == ("OUTCOME_UNKNOWN", "ATTEMPT_LOST")
    assert w.balance()[2].total_tokens == BUDGET.total_tokens
