"""What may be done again after a tool failed, timed out or was lost, and what its end is called."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from memoflow import OutcomeUnknown, ToolKnownFailure, ToolNotStarted, ToolTimedOut, faults
from memoflow.canonical import Digester
from memoflow.testing import call, calls, status, text
from tests.turn._asks import loop, stream
from tests.turn._stopping import at_point
from tests.turn._tools import Bench
from tests.turn._worlds import MakeWorld, World

LOOPS = {"whole": loop, "streamed": stream}
CLASSES: tuple[Any, ...] = ("read_only", "idempotent", "at_most_once")
SOON = 0.05  # seconds until a limit is reached that is to be reached


def output(w: World, request: int = -1) -> Any:
    """The last output that a request hands back, decoded."""
    return json.loads(w.provider.requests[request].json["input"][-1]["output"])


def failing_once(error: BaseException) -> Callable[[int], Any]:
    """Raises at first, then returns the number."""
    left = [error]

    def does(n: int) -> int:
        if left:
            raise left.pop()
        return n

    return does


def expect_second_attempt(w: World, bench: Bench, ask: Any, effect: str) -> None:
    """A retry runs the call again, unless it may have run and did not declare that it can be."""
    got = w.ask(ask)
    if effect == "at_most_once":
        error = got.raised(OutcomeUnknown)
        assert (error.kind, error.id) == ("effect", w.effects()[0].id)
        assert (len(bench.ran), w.sent) == (1, 1)
    else:
        assert got.result.response.output_text == "Done."
        assert len(bench.ran) == 2
        assert len(set(bench.keys)) == 1


# Exceptions


@pytest.mark.parametrize("kind", LOOPS)
@pytest.mark.parametrize("effect", CLASSES)
def test_an_exception_leaves_the_outcome_open_unless_the_tool_only_reads(
    world: MakeWorld, effect: Any, kind: str
) -> None:
    """It propagates as it is; its type is on record and its text is not."""
    bench = Bench()
    error = ValueError("the secret text")
    ask = LOOPS[kind](bench.make("f", failing_once(error), effect=effect))
    w = world(calls(call("f", {"n": 1})), text("Done."))
    assert w.ask(ask).raised(ValueError) is error
    state = "FAILED" if effect == "read_only" else "OUTCOME_UNKNOWN"
    assert w.states() == [(state, "TOOL_ERROR", 1)]
    assert w.effects()[0].error_type == "ValueError"
    assert (w.invocation.state, w.invocation.reservation_state) == ("SUCCEEDED", "SETTLED")
    expect_second_attempt(w, bench, ask, effect)
    after = {
        "read_only": [("FAILED", "TOOL_ERROR", 1), ("DONE", None, 2)],
        "idempotent": [("SUPERSEDED", "TOOL_ERROR", 1), ("DONE", None, 2)],
        "at_most_once": [("OUTCOME_UNKNOWN", "TOOL_ERROR", 1)],
    }
    assert w.states() == after[effect]


@pytest.mark.parametrize("kind", ["plain", "async"])
@pytest.mark.parametrize("effect", CLASSES)
def test_a_known_failure_is_told_to_the_model_and_the_loop_goes_on(
    world: MakeWorld, effect: Any, kind: str
) -> None:
    """`ToolKnownFailure`: nothing happened. It is a result like any other, and restored like one."""
    bench = Bench()

    def decline(n: int) -> Any:
        raise ToolKnownFailure("No such order.")

    made = bench.make("f", decline, effect=effect) if kind == "plain" else bench.make_async("f", decline)
    w = world(calls(call("f", {"n": 1})), status(500), text("Done."))
    w.ask(loop(made)).raised(OutcomeUnknown)
    result = w.ask(loop(made)).result
    assert [(r.state, r.restored) for r in result.tool_results] == [("FAILED", True)]
    assert w.states() == [("FAILED", "KNOWN_FAILURE", 1)]
    assert output(w) == output(w, 1) == {"error": {"code": "TOOL_FAILED", "detail": "No such order."}}
    assert len(bench.ran) == 1


def test_siblings_of_a_failure_finish_and_are_recorded_before_it_leaves(world: MakeWorld) -> None:
    """What runs is waited for; what has not begun never does; identical calls are effects of their own."""
    bench, together = Bench(), threading.Barrier(3)

    def meet(n: int) -> int:
        together.wait(10)
        return n

    def boom(n: int) -> Any:
        together.wait(10)
        raise ValueError

    same = [call("inc", {"n": 1})] * 2
    w = world(calls(*same, call("boom", {"n": 0}), call("late", {"n": 2})), text("Done."))
    tools = [bench.make("inc", meet), bench.make("boom", boom, effect="idempotent"), bench.make("late")]
    w.ask(loop(*tools, tool_concurrency=3)).raised(ValueError)
    states = w.states()
    assert states[:3] == [("DONE", None, 1), ("DONE", None, 1), ("OUTCOME_UNKNOWN", "TOOL_ERROR", 1)]
    assert states[3] in [("FAILED", "NOT_STARTED", 1), ("DONE", None, 1)]
    assert len({e.idempotency_key for e in w.effects()}) == 4


@pytest.mark.parametrize("effect", CLASSES)
def test_a_tool_that_could_not_begin_ends_the_call_and_runs_on_a_retry(world: MakeWorld, effect: Any) -> None:
    """The model is not told; nothing happened, so whatever the tool declared, it may run."""
    bench = Bench()
    made = bench.make("f", failing_once(ToolNotStarted("No connection.")), effect=effect)
    w = world(calls(call("f", {"n": 1})), text("Done."))
    w.ask(loop(made)).raised(ToolNotStarted)
    assert w.states() == [("FAILED", "NOT_STARTED", 1)]
    assert [one.error_type for one in w.effects()] == ["ToolNotStarted"]
    assert w.ask(loop(made)).result.response.output_text == "Done."
    assert (w.sent, len(bench.ran), len(set(bench.keys))) == (2, 2, 1)


def test_calls_that_never_began_run_on_a_retry(world: MakeWorld) -> None:
    """NOT_STARTED is proof that nothing happened, whatever the tool declared."""
    bench = Bench()
    w = world(calls(call("g", {"n": 0}), call("f", {"n": 1})), text("Done."))
    tools = [bench.make("f"), bench.make("g", failing_once(ValueError()), effect="idempotent")]
    w.ask(loop(*tools, tool_concurrency=1)).raised(ValueError)
    assert w.states() == [("OUTCOME_UNKNOWN", "TOOL_ERROR", 1), ("FAILED", "NOT_STARTED", 1)]
    assert w.ask(loop(*tools)).result.response.output_text == "Done."
    assert bench.ran == [("g", 0), ("g", 0), ("f", 1)] or bench.ran == [("g", 0), ("f", 1), ("g", 0)]


def test_the_first_call_that_failed_is_the_one_that_is_told(world: MakeWorld) -> None:
    """Several failures: the exception of the lowest position leaves, and each is on record."""
    bench, together = Bench(), threading.Barrier(2)

    def fail(error: type[Exception]) -> Callable[[int], Any]:
        def does(n: int) -> Any:
            together.wait(10)
            raise error

        return does

    w = world(calls(call("f", {"n": 1}), call("g", {"n": 2})))
    w.ask(loop(bench.make("f", fail(KeyError)), bench.make("g", fail(ValueError)))).raised(KeyError)
    assert [e.error_type for e in w.effects()] == ["KeyError", "ValueError"]


# Time


@pytest.mark.parametrize("effect", CLASSES)
def test_a_plain_tool_that_takes_too_long_may_still_be_running(world: MakeWorld, effect: Any) -> None:
    """Its thread cannot be stopped: the outcome is open, and what it returns later changes nothing."""
    bench, go, ended = Bench(), threading.Event(), threading.Event()

    def wait(n: int) -> int:
        if not go.is_set():
            go.wait(10)
            ended.set()
        return n

    ask = loop(bench.make("f", wait, effect=effect, timeout=SOON))
    w = world(calls(call("f", {"n": 1})), text("Done."))
    error = w.ask(ask).raised(ToolTimedOut)
    state = "FAILED" if effect == "read_only" else "OUTCOME_UNKNOWN"
    assert w.states() == [(state, "TOOL_TIMEOUT", 1)]
    assert (error.tool, error.effect_id, error.seconds) == ("f", w.effects()[0].id, SOON)
    go.set()
    assert ended.wait(10)
    assert w.states() == [(state, "TOOL_TIMEOUT", 1)]
    expect_second_attempt(w, bench, ask, effect)


@pytest.mark.parametrize("effect", CLASSES)
def test_an_async_tool_that_takes_too_long_is_cancelled(world: MakeWorld, effect: Any) -> None:
    """Where it waits; what it did until then is not known."""
    bench, slow = Bench(), [True]

    async def wait(n: int) -> int:
        if slow:
            slow.clear()
            await asyncio.Event().wait()
        return n

    ask = loop(bench.make_async("f", wait, effect=effect, timeout=SOON))
    w = world(calls(call("f", {"n": 1})), text("Done."))
    w.ask(ask).raised(ToolTimedOut)
    expect_second_attempt(w, bench, ask, effect)


def test_a_timeout_that_is_not_reached_changes_nothing(world: MakeWorld) -> None:
    """Also when the tool itself raises a TimeoutError: that is its own."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1}), call("g", {"n": 2})), text("Done."))
    quick, own = bench.make("f", timeout=30.0), bench.failing("g", TimeoutError(), effect="read_only")
    w.ask(loop(quick, own, tool_concurrency=1)).raised(TimeoutError)
    assert w.states() == [("DONE", None, 1), ("FAILED", "TOOL_ERROR", 1)]


# Loss


@pytest.mark.parametrize("effect", CLASSES)
def test_a_tool_whose_attempt_died_may_have_run(world: MakeWorld, effect: Any) -> None:
    """The next attempt finds it STARTED: lost, and treated by its class."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1})), text("Done."), lease_seconds=0)
    ask = loop(bench.make("f", effect=effect))

    def die() -> None:
        raise faults.Stop

    with at_point("after:Collect", die):
        w.ask(ask).raised(faults.Stop)
    assert w.states() == [("STARTED", None, 1)]
    w = w.again(lease_seconds=60)
    expect_second_attempt(w, bench, ask, effect)
    states = {"read_only": "FAILED", "idempotent": "SUPERSEDED", "at_most_once": "OUTCOME_UNKNOWN"}
    assert w.states()[0] == (states[effect], "ATTEMPT_LOST", 1)


# Decisions


def unknown_effect(w: World, bench: Bench) -> tuple[str, Any]:
    """An effect that may have happened, and the ask that meets it again."""
    ask = loop(bench.make("pay", failing_once(ConnectionError())))
    w.ask(ask).raised(ConnectionError)
    return w.ask(ask).raised(OutcomeUnknown).id, ask


@pytest.mark.parametrize(
    ("result", "told"),
    [({"paid": 500}, {"paid": 500}), ("paid", "paid"), (None, None)],
)
def test_an_effect_decided_as_happened_is_not_run_again(world: MakeWorld, result: Any, told: Any) -> None:
    """With its result, which the model then gets as if the tool had returned it."""
    bench = Bench()
    w = world(calls(call("pay", {"n": 1})), text("Done."))
    id, ask = unknown_effect(w, bench)
    w.rt.reconcile.happened(id, result=result, actor="ops", reason="it is in the bank's books")
    done = w.ask(ask).result
    assert (done.response.output_text, done.tool_results[0].restored) == ("Done.", True)
    raw = w.provider.requests[1].json["input"][-1]["output"]
    assert (raw if isinstance(told, str) else json.loads(raw)) == told
    assert w.states() == [("DONE", "DECIDED", 1)]
    assert len(bench.ran) == 1


def test_an_effect_decided_as_happened_without_its_result_is_told_so(world: MakeWorld) -> None:
    """The model learns that it ran, and that nobody knows what it returned."""
    bench = Bench()
    w = world(calls(call("pay", {"n": 1})), text("Done."))
    id, ask = unknown_effect(w, bench)
    w.rt.reconcile.happened(id, actor="ops", reason="it is in the bank's books")
    assert w.ask(ask).error is None
    assert output(w)["error"]["code"] == "RESULT_NOT_RETAINED"
    assert len(bench.ran) == 1


def test_an_effect_decided_as_not_happened_may_run(world: MakeWorld) -> None:
    """Under the same key, as a further execution."""
    bench = Bench()
    w = world(calls(call("pay", {"n": 1})), text("Done."))
    id, ask = unknown_effect(w, bench)
    w.rt.reconcile.did_not_happen(id, actor="ops", reason="asked the bank", evidence="it has nothing")
    assert w.ask(ask).result.response.output_text == "Done."
    assert w.states() == [("FAILED", "NOT_PERFORMED", 1), ("DONE", None, 2)]
    assert len(bench.ran) == 2
    assert len(set(bench.keys)) == 1


# Results


@pytest.mark.parametrize(
    "value", [{1, 2}, b"\xff", float("nan"), object(), "\ud83d", {1: "a"}, (n for n in "ab")]
)
def test_a_result_that_cannot_be_written_is_done_and_told(world: MakeWorld, value: Any) -> None:
    """The tool ran, and a retry does not run it again."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1})), status(500), text("Done."))
    ask = loop(bench.make("f", lambda n: value))
    w.ask(ask).raised(OutcomeUnknown)
    assert w.states() == [("DONE", "RESULT_NOT_ENCODABLE", 1)]
    assert w.ask(ask).result.tool_results[0].restored
    assert output(w) == output(w, 1)
    assert output(w)["error"]["code"] == "RESULT_NOT_ENCODABLE"
    assert len(bench.ran) == 1


def test_a_result_that_is_too_large_is_done_and_told(world: MakeWorld) -> None:
    """By digest and size; none of it reaches the model or the ledger."""
    bench, large = Bench(), "x" * 1_001
    w = world(calls(call("f", {"n": 1}), call("f", {"n": 2})), status(500), text("Done."))
    ask = loop(bench.make("f", lambda n: large if n == 1 else large[:1_000]), max_result_bytes=1_000)
    w.ask(ask).raised(OutcomeUnknown)
    assert w.states() == [("DONE", "RESULT_TOO_LARGE", 1), ("DONE", None, 1)]
    first = w.effects()[0]
    assert (first.result_bytes, first.result_digest) == (1_001, Digester().bytes(large.encode()))
    assert w.ask(ask).result.tool_results[0].restored
    told = json.loads(w.provider.requests[2].json["input"][-2]["output"])["error"]
    assert (told["code"], told["digest"], told["bytes"]) == ("RESULT_TOO_LARGE", first.result_digest, 1_001)
    assert w.provider.requests[2].json["input"][-1]["output"] == large[:1_000]
    assert len(bench.ran) == 2


def test_a_result_of_eleven_megabytes_is_done_and_told(make_world: MakeWorld) -> None:
    """More than any provider takes, whatever limit the caller sets."""
    bench = Bench()
    w = make_world("sync", calls(call("f", {"n": 1})), text("Done."))
    ask = loop(bench.make("f", lambda n: "x" * 11_534_336), max_result_bytes=10**9)
    assert w.ask(ask).error is None
    assert w.states() == [("DONE", "RESULT_TOO_LARGE", 1)]
