"""Bounds of a tool loop, and the keys that tell one effect from another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memoflow import (
    Budget,
    ConfigurationError,
    InvalidBudget,
    InvalidRequest,
    InvalidTool,
    ToolCallBudgetExceeded,
    ToolRoundLimit,
)
from memoflow.budget import Amounts
from memoflow.testing import (
    call,
    calls,
    status,
    text,
    usage,
)
from tests.turn._asks import Ask, loop, stream
from tests.turn._tools import Bench
from tests.turn._worlds import MakeWorld

LOOPS = {"whole": loop, "streamed": stream}


# Limits


@pytest.mark.parametrize("kind", LOOPS)
def test_a_batch_above_its_budget_is_refused_as_a_whole(world: MakeWorld, kind: str) -> None:
    """The reply is settled; none of its calls ran, nor do they on a retry that would allow more."""
    bench = Bench()
    w = world(calls(*[call("f", {"n": n}) for n in range(3)], usage=usage(10, 5)), text("Done."))
    tight = Budget(total_tokens=20_000, tool_calls=2)
    error = w.ask(LOOPS[kind](bench.make("f"), budget=tight)).raised(ToolCallBudgetExceeded)
    assert (error.asked, error.reserved, error.round) == (3, 2, 0)
    assert (bench.ran, w.effects()) == ([], [])
    assert w.balance()[0] == Amounts(15, 10, 5, 1)
    again = w.ask(LOOPS[kind](bench.make("f"))).raised(ToolCallBudgetExceeded)
    assert (again.asked, again.reserved) == (3, 2)
    assert (bench.ran, w.sent) == ([], 1)


def test_a_budget_without_tool_calls_allows_none(world: MakeWorld) -> None:
    """Left out is not unlimited: it is refused before anything is paid, and 0 means none."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1})))
    w.ask(loop(bench.make("f"), budget=Budget(total_tokens=20_000))).raised(InvalidBudget)
    assert w.sent == 0
    none = Budget(total_tokens=20_000, tool_calls=0)
    error = w.ask(loop(bench.make("f"), budget=none)).raised(ToolCallBudgetExceeded)
    assert (error.asked, error.reserved, w.sent, bench.ran) == (1, 0, 1, [])


@pytest.mark.parametrize("kind", LOOPS)
def test_a_loop_ends_when_its_rounds_are_used_up(world: MakeWorld, kind: str) -> None:
    """The last reply is settled and none of its calls runs, nor later: nothing was admitted for them."""
    bench = Bench()
    w = world(*[calls(call("f", {"n": n}), usage=usage(10, 5)) for n in range(3)], text("Done."))
    error = w.ask(LOOPS[kind](bench.make("f"), rounds=3)).raised(ToolRoundLimit)
    assert error.rounds == 3
    assert (len(bench.ran), w.balance()[0].model_calls, w.balance()[0].tool_calls) == (2, 3, 2)
    assert w.ask(LOOPS[kind](bench.make("f"), rounds=4)).raised(ToolRoundLimit).rounds == 3
    assert (len(bench.ran), w.sent, w.balance()[0].tool_calls) == (2, 3, 2)


def test_the_last_round_needs_no_tool_calls(world: MakeWorld) -> None:
    """Its calls would not run anyway, so it is the rounds that are used up."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1})), calls(call("f", {"n": 2})))
    ask = loop(bench.make("f"), continuation=[Budget(total_tokens=20_000)])
    assert w.ask(ask).raised(ToolRoundLimit).rounds == 2


def test_a_loop_has_32_rounds_at_most(make_world: MakeWorld) -> None:
    """32 go, each with its own reservation; a 33rd is refused before anything."""
    bench = Bench()
    w = make_world("sync", *[calls(call("f", {"n": n})) for n in range(31)], text("Done."))
    w.ask(loop(bench.make("f"), rounds=33)).raised(InvalidRequest)
    assert (w.sent, w.invocations()) == (0, [])
    assert w.ask(loop(bench.make("f"), rounds=32)).result.response.output_text == "Done."
    assert (len(bench.ran), len(w.invocations()), w.balance()[0].model_calls) == (31, 32, 32)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"replay_key": None}, ConfigurationError),
        ({"budget": None}, InvalidBudget),
    ],
)
def test_tools_need_a_key_and_a_budget(
    world: MakeWorld, change: dict[str, Any], kind: type[Exception]
) -> None:
    """Without a key a retry could not tell what ran; without a budget nothing bounds what may run."""
    w = world(text("never"))
    w.ask(loop(Bench().make("f"), **change)).raised(kind)
    assert w.provider.requests == []


def test_one_in_the_place_of_a_list_is_refused_in_words(world: MakeWorld) -> None:
    """A tool or a budget alone is a slip, and the refusal says that a list is wanted."""
    w, made = world(text("never")), Bench().make("f")
    alone: Any = Budget(total_tokens=500)
    assert "in a list" in str(w.ask(loop(made, continuation=alone)).raised(InvalidBudget))
    alone = made
    assert "in a list" in str(w.ask(replace(loop(), tools=alone)).raised(InvalidTool))
    assert w.provider.requests == []


def test_tools_of_one_name_are_refused(world: MakeWorld) -> None:
    """Nobody could tell which of them the model means."""
    w, bench = world(text("never")), Bench()
    w.ask(loop(bench.make("f"), bench.make("f", version="v2"))).raised(InvalidTool)
    assert w.provider.requests == []


# Idempotency keys


def test_keys_are_stable_across_attempts_and_different_for_everything_else(world: MakeWorld) -> None:
    """Run, activity, replay key, round, position, tool, version and arguments each make another key."""

    def keys(*asks: Ask, bench: Bench, **identity: Any) -> list[str]:
        w.provider.reset(
            [calls(call("f", {"n": 1}), call("f", {"n": 1})), calls(call("f", {"n": 1})), status(500)]
        )
        w.ask(*asks, **identity)
        return bench.keys

    w = world()

    def ask(bench: Bench, *, n: int = 1, **options: Any) -> Ask:
        return loop(bench.make("f", effect="idempotent", **options), replay_key=f"k{n}")

    first = keys(ask(b := Bench()), bench=b)
    assert len(set(first)) == 3
    assert all(key.startswith("mf1_") and len(key) == 68 for key in first)
    others = [
        keys(ask(b := Bench()), bench=b, run="other"),
        keys(ask(b := Bench()), bench=b, activity="other"),
        keys(ask(b := Bench(), n=2), bench=b),
        keys(ask(b := Bench(), n=3, version="v2"), bench=b),
    ]
    every = [*first, *[key for some in others for key in some]]
    assert len(set(every)) == 15


def test_a_key_is_the_same_on_every_attempt(world: MakeWorld) -> None:
    """The tool forwards it, so that the other side can tell a repetition."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1})), text("Done."))
    tries = iter([ValueError(), ConnectionError()])

    def fail_twice(n: int) -> int:
        if (error := next(tries, None)) is not None:
            raise error
        return n

    pay = bench.make("f", fail_twice, effect="idempotent")
    w.ask(loop(pay)).raised(ValueError)
    w.ask(loop(pay)).raised(ConnectionError)
    assert w.ask(loop(pay)).result.tool_results[0].idempotency_key == bench.keys[0]
    assert len(bench.keys) == 3
    assert len(set(bench.keys)) == 1
    assert [attempt for *_, attempt in bench.log] == [1, 2, 3]
    assert w.sent == 2
