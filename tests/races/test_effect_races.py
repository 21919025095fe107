"""Many processes and threads on one effect, one replay key, one unknown."""

from __future__ import annotations

import contextvars
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import pytest

from memoflow import Budget, InvalidRequest, OutcomeUnknown, Runtime
from memoflow.budget import Amounts
from memoflow.ledger.verify import verify
from memoflow.openai import OpenAIResponses
from memoflow.testing import SimulatedProvider, read_timeout, text
from tests._processes import start, together
from tests.races.racers import NEED, REQUEST, Place, decide, die_in_tool, finish, notes

RACERS = 8


@pytest.fixture
def later(place: Place) -> Place:
    """A ledger with an account, when every lease of before has run out."""
    with place.open() as runtime:
        runtime.budgets.put("acme", Budget(total_tokens=100_000))
    return replace(place, later=True)


def die(later: Place, name: str) -> None:
    """A worker dies in a tool, which has had its effect."""
    assert start(die_in_tool, replace(later, later=False), name).exit_code() == -signal.SIGKILL
    assert len(notes(later)) == 1


def check(runtime: Runtime) -> None:
    """Nothing is held, and the ledger is in order."""
    assert runtime.budgets.show("acme").held == Amounts()
    assert runtime.ledger.database.read(verify) == []


@pytest.mark.parametrize("name", ["look", "put"])
def test_one_process_runs_a_tool_again(later: Place, name: str) -> None:
    """Of eight that finish what a dead worker began one runs its tool once more, with the same key."""
    die(later, name)
    outcomes = together(finish, RACERS, later, name)
    assert set(outcomes) in ({"Done."}, {"Done.", "busy"})
    first, again = notes(later)
    assert first == again
    with later.open() as runtime:
        check(runtime)


def test_no_process_runs_a_tool_again_that_may_not_be(later: Place) -> None:
    """None of eight runs it; whoever gets the activity is told that its outcome is unknown."""
    die(later, "send")
    outcomes = together(finish, RACERS, later, "send")
    assert set(outcomes) in ({"unknown effect"}, {"unknown effect", "busy"})
    assert len(notes(later)) == 1
    with later.open() as runtime:
        (effect,) = runtime.reconcile.list().effects
        runtime.reconcile.happened(effect.id, result="1", actor="operator", reason="the receiver has it")
    assert together(finish, 1, later, "send") == ["Done."]
    assert len(notes(later)) == 1
    with later.open() as runtime:
        check(runtime)


def test_one_decision_stands(later: Place) -> None:
    """Eight operators decide in two ways about one invocation and one effect: those who say what the first
    said are heard, the others are refused, and the hold moves once."""
    die(later, "send")
    with later.open() as runtime:
        lose_reply(runtime)
        queue = runtime.reconcile.list()
        (invocation,), (effect,) = queue.invocations, queue.effects
        money, deeds = zip(*together(decide, RACERS, later, invocation.id, effect.id), strict=True)
        check_decisions(money, "release", "settle")
        check_decisions(deeds, "did_not_happen", "happened")
        assert runtime.budgets.show("acme").settled.model_calls == 1 + ("settle" in money)
        assert runtime.budgets.show("acme").unknown == Amounts()
        check(runtime)


def check_decisions(heard: tuple[str, ...], *ways: str) -> None:
    """One way stands; processes with an even number said the first, the others the second."""
    (verdict,) = set(heard) - {"conflict"}
    assert list(heard) == [verdict if ways[index % 2] == verdict else "conflict" for index in range(RACERS)]


def lose_reply(runtime: Runtime) -> None:
    """Make one call whose outcome is not known."""
    llm = OpenAIResponses(SimulatedProvider([read_timeout()]).client())

    @runtime.activity(version="v1", budget="acme")
    def activity() -> None:
        llm.run(REQUEST, budget=Budget(total_tokens=NEED))

    with pytest.raises(OutcomeUnknown):
        activity.run()


def test_one_call_has_a_replay_key(place: Place) -> None:
    """Of eight threads of an attempt that make one call under one key one sends it, seven are refused."""
    ready, done = Barrier(RACERS, timeout=60), Barrier(RACERS, timeout=60)

    def reply(request: object) -> Any:
        # It comes when all others have been refused.
        done.wait()
        return text("Yes.")

    provider = SimulatedProvider(reply)
    llm = OpenAIResponses(provider.client())

    def ask() -> str:
        ready.wait()
        try:
            return llm.run(REQUEST, budget=Budget(total_tokens=NEED), replay_key="turn").response.output_text
        except InvalidRequest:
            done.wait()
            return "refused"

    with place.open() as runtime, ThreadPoolExecutor(RACERS) as threads:

        @runtime.activity(version="v1", budget="acme")
        def activity() -> list[str]:
            contexts = [contextvars.copy_context() for _ in range(RACERS)]
            return [future.result() for future in [threads.submit(one.run, ask) for one in contexts]]

        runtime.budgets.put("acme", Budget(total_tokens=100_000))
        assert sorted(activity.run()) == ["Yes.", *["refused"] * (RACERS - 1)]
        assert provider.wire_requests.total() == 1
        check(runtime)
