"""An activity that ends while one of its calls is still being made."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from contextlib import nullcontext
from typing import Any

import pytest

from memoflow import Budget, LeaseLost, Runtime
from memoflow.ledger.verify import verify
from memoflow.openai import AsyncOpenAIResponses, OpenAIResponses
from memoflow.testing import SimulatedProvider, hold, temporary_runtime, text


@pytest.mark.parametrize("fails", [False, True], ids=["returns", "raises"])
def test_a_call_that_is_left_behind_is_unknown(fails: bool) -> None:
    """Its hold stays as unknown, and its late reply is refused and kept as evidence with its usage."""
    held = hold(text("late"))
    llm = AsyncOpenAIResponses(SimulatedProvider([held]).async_client())
    with temporary_runtime() as runtime:
        runtime.budgets.put("acme", Budget(total_tokens=10_000))

        left: list[asyncio.Task[object]] = []

        @runtime.activity(version="v1", budget="acme")
        async def hasty() -> None:
            request = {"model": "gpt-5-mini", "input": "Hello."}
            left.append(asyncio.create_task(llm.run(request, budget=Budget(total_tokens=4_000))))
            assert await asyncio.to_thread(held.gate.entered.wait, 10)
            if fails:
                raise ValueError("in a hurry")

        async def main() -> None:
            with pytest.raises(ValueError, match="in a hurry") if fails else nullcontext():
                await hasty.run()
            held.gate.released.set()
            with pytest.raises(LeaseLost):
                await left[0]

        asyncio.run(main())
        (invocation,) = runtime.reconcile.list().invocations
        assert (invocation.state, invocation.reason) == ("OUTCOME_UNKNOWN", "ATTEMPT_LOST")
        assert runtime.budgets.show("acme").unknown.total_tokens == 4_000
        (late,) = runtime.reconcile.show(invocation.id).evidence
        assert (late.event, late.state) == ("settle", "SUCCEEDED")
        assert late.output_tokens is not None
        assert runtime.ledger.database.read(verify) == []


@pytest.mark.parametrize("fails", [False, True], ids=["returns", "raises"])
def test_a_call_that_starts_while_its_activity_ends_is_unknown(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """A thread may start one when the function is over and that is not recorded yet."""
    held = hold(text("late"))
    llm = OpenAIResponses(SimulatedProvider([held]).client())
    over = threading.Event()
    threads: list[threading.Thread] = []
    commit = Runtime.commit

    def call_first(runtime: Runtime, operation: Any, undo: Any = None) -> Any:
        if threads and threading.current_thread() is not threads[0] and not over.is_set():
            over.set()
            assert held.gate.entered.wait(10)
        return commit(runtime, operation, undo)

    def call() -> None:
        assert over.wait(10)
        with pytest.raises(LeaseLost):
            llm.run({"model": "gpt-5-mini", "input": "Hello."}, budget=Budget(total_tokens=4_000))

    with temporary_runtime() as runtime:
        runtime.budgets.put("acme", Budget(total_tokens=10_000))

        @runtime.activity(version="v1", budget="acme")
        def hasty() -> None:
            threads.append(threading.Thread(target=contextvars.copy_context().run, args=(call,)))
            threads[0].start()
            if fails:
                raise ValueError("in a hurry")

        monkeypatch.setattr(Runtime, "commit", call_first)
        with pytest.raises(ValueError, match="in a hurry") if fails else nullcontext():
            hasty.run()
        held.gate.released.set()
        threads[0].join(10)
        (invocation,) = runtime.reconcile.list().invocations
        assert (invocation.state, invocation.reason) == ("OUTCOME_UNKNOWN", "ATTEMPT_LOST")
        assert runtime.budgets.show("acme").unknown.total_tokens == 4_000
        assert runtime.ledger.database.read(verify) == []
