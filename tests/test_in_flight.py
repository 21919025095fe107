"""An activity that ends while one of its calls is still being made."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import pytest

from memoflow import Budget, LeaseLost
from memoflow.ledger.verify import verify
from memoflow.openai import AsyncOpenAIResponses
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
