"""How many durable commits a call costs, counted from the database, and that no event loop waits for one."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from typing import Any

import psycopg
import pytest

from memoflow import Budget, BudgetTooSmall
from memoflow.testing import call, calls, text
from tests.turn._asks import LOOP, Ask, loop, run, stream
from tests.turn._tools import Bench
from tests.turn._worlds import MakeWorld, World

ACTIVITY = 2  # its claim and its completion


def commits(w: World, *asks: Ask) -> int:
    """Commits of an activity that makes these calls and completes, without its own two."""
    before = w.batches()
    assert w.ask(*asks, complete=True).error is None
    return w.batches() - before - ACTIVITY


def test_an_activity_costs_two_commits(world: MakeWorld) -> None:
    """Claim and complete; and none once it is complete but the look that says so."""
    w = world()
    assert commits(w) == 0
    before = w.batches()
    assert w.ask(complete=True).value == 0
    assert w.batches() == before + 1


def test_a_plain_call_costs_two_commits(world: MakeWorld) -> None:
    """One before it is sent and one after; without a replay key too."""
    assert commits(world(text("a")), run()) == 2
    assert commits(world(text("a"), text("b")), run(replay_key=None), run(replay_key=None)) == 4


@pytest.mark.parametrize("rounds", [2, 3, 5])
def test_a_loop_costs_what_its_model_calls_cost(world: MakeWorld, rounds: int) -> None:
    """Tools add nothing: they begin with their reply, and the end of the last travels with the next call."""
    bench = Bench()
    script = [calls(call("f", {"n": n})) for n in range(rounds - 1)]
    w = world(*script, text("Done."))
    assert commits(w, loop(bench.make("f"), rounds=rounds)) == 2 * rounds
    assert len(bench.ran) == rounds - 1


def test_each_further_tool_of_a_round_may_add_one_commit(world: MakeWorld) -> None:
    """Outcomes are recorded as they come; the last one travels."""
    bench = Bench()
    w = world(calls(*[call("f", {"n": n}) for n in range(4)]), text("Done."))
    assert 4 <= commits(w, loop(bench.make("f"))) <= 4 + 3


def test_refused_calls_cost_no_commit_of_their_own(world: MakeWorld) -> None:
    """They are recorded with the reply that asked for them."""
    bench = Bench()
    w = world(calls(call("f", "bad"), call("nobody"), call("f", {"n": 1})), text("Done."))
    assert commits(w, loop(bench.make("f"))) == 4


def test_a_stream_costs_at_most_one_commit_more(world: MakeWorld) -> None:
    """The one that keeps the reply's id, for which nobody waits."""
    assert 2 <= commits(world(text("a")), stream()) <= 3


def test_restoring_costs_no_commit(world: MakeWorld) -> None:
    """Nothing is written for what is there."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1})), text("Done."), text("b"))
    asks = [loop(bench.make("f")), run(replay_key="b")]
    w.ask(*asks)
    assert commits(w, *asks) == 0


def test_a_refusal_before_the_reservation_costs_no_commit(world: MakeWorld) -> None:
    """What cannot fit is known without the ledger."""
    w = world()
    before = w.batches()
    w.ask(run(budget=Budget(total_tokens=10))).raised(BudgetTooSmall)
    assert w.batches() == before + ACTIVITY


# The event loop


class Lock:
    """Keeps everybody else from writing to a database."""

    def __init__(self, w: World) -> None:
        self._url = w.rt.ledger.database.url
        self._connection: Any = None
        self.taken = threading.Event()

    def take(self) -> None:
        """Take it; from any thread."""
        if self._url.drivername.startswith("sqlite"):
            self._connection = sqlite3.connect(
                self._url.database or "", isolation_level=None, check_same_thread=False
            )
            self._connection.execute("BEGIN IMMEDIATE")
        else:
            url = self._url.set(drivername="postgresql").render_as_string(hide_password=False)
            self._connection = psycopg.connect(url)
            self._connection.execute("LOCK TABLE writers IN ACCESS EXCLUSIVE MODE")
        self.taken.set()

    def release(self) -> None:
        """Let the others on."""
        self._connection.rollback()
        self._connection.close()


async def ticks_while_locked(lock: Lock, work: Any) -> Any:
    """Runs work; the lock is released only after the loop went round many times while it was held."""
    task = asyncio.ensure_future(work)
    while not lock.taken.is_set():
        await asyncio.sleep(0)
        assert not task.done(), task
    for _ in range(100):
        await asyncio.sleep(0.001)
        assert not task.done()
    lock.release()
    return await task


@pytest.mark.parametrize("when", ["claim", "reserve", "settle", "next round", "complete"])
def test_the_event_loop_turns_while_the_database_is_locked(make_world: MakeWorld, when: str) -> None:
    """Were it blocked by a commit, the lock would never be released."""
    bench = Bench()
    lock: Lock

    def take(at: str) -> None:
        if at == when:
            lock.take()

    def answer(request: Any) -> Any:
        first = not request.answered_rounds
        take("settle" if first else "")
        return calls(call("f", {"n": 1})) if first else text("Done.")

    w = make_world("async", answer, answer)
    lock = Lock(w)
    tool = bench.make("f", lambda n: take("next round"))

    async def body(llm: Any) -> str:
        take("reserve")
        result = await llm.run_with_tools(
            {"model": "gpt-test", "input": "Hello"},
            [tool],
            budget=LOOP,
            continuation_budgets=[LOOP],
            replay_key="k",
        )
        take("complete")
        said: str = result.response.output_text
        return said

    take("claim")
    assert w.within_async(body, lambda work: ticks_while_locked(lock, work)) == "Done."
    assert len(bench.ran) == 1
