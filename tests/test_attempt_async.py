"""What an attempt asks of the ledger from an event loop, which goes on meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from memoflow import Budget, LeaseLost
from memoflow.context import Current
from tests.turn import _worlds
from tests.turn._stopping import at_commit
from tests.turn._worlds import MakeWorld, World

ledger, make_world = _worlds.ledger, _worlds.make_world


def ask(w: World, question: Callable[[Current], Awaitable[Any]]) -> Any:
    """Ask something in an async activity."""

    async def body(llm: Any) -> Any:
        return await question(w.rt.current())

    return w.within(body)


def test_a_heartbeat_does_not_block_the_event_loop(make_world: MakeWorld) -> None:
    """The loop runs while the lease is being extended."""
    w, ran = make_world("async"), threading.Event()

    async def question(attempt: Current) -> bool:
        with at_commit(1, lambda: ran.wait(10)):
            asyncio.get_running_loop().call_soon(ran.set)
            await attempt.aheartbeat()
        return ran.is_set()

    assert ask(w, question) is True


def test_the_remaining_budget_is_read_elsewhere(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same figures as for a blocking activity, from another thread than the loop's."""
    w = make_world("async", limits=Budget(total_tokens=900, model_calls=3))
    read, threads = w.rt.ledger.database.read, []

    def noting(query: Any) -> Any:
        threads.append(threading.get_ident())
        return read(query)

    async def question(attempt: Current) -> Budget:
        with monkeypatch.context() as patched:
            patched.setattr(w.rt.ledger.database, "read", noting)
            left = await attempt.aremaining_budget()
        assert left == attempt.remaining_budget()
        return left

    assert ask(w, question) == Budget(total_tokens=900, model_calls=3)
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("question", [Current.aheartbeat, Current.aremaining_budget])
def test_an_attempt_that_was_lost_is_told_so(make_world: MakeWorld, question: Any) -> None:
    """Before the ledger is asked."""
    w = make_world("async")

    async def lost(attempt: Current) -> None:
        attempt.lost = LeaseLost(activity="a", attempt=1)
        try:
            await question(attempt)
        finally:
            attempt.lost = None

    with pytest.raises(LeaseLost):
        ask(w, lost)
