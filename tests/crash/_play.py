"""Playing a scenario: the activity, and whoever starts it again until it has an output."""

from __future__ import annotations

import asyncio
from typing import Any

from memoflow import ApprovalRequired, Budget, CallCancelled, OutcomeUnknown, ProviderRejected, Runtime
from memoflow.openai import AsyncOpenAIResponses, OpenAIResponses
from tests.crash._world import ASYNC_TOOLS, SYNC_TOOLS, Broken, World

__all__ = ["RESERVED", "finish", "finish_async"]

RESERVED = 2_000
ATTEMPTS = 8
_AGAIN = (ApprovalRequired, Broken, CallCancelled, OutcomeUnknown, ProviderRejected)
REQUEST = {"model": "gpt-5-mini", "input": "Where is my order?"}


def _options(world: World) -> dict[str, Any]:
    rounds = world.scenario.rounds
    budgets = [Budget(total_tokens=RESERVED, model_calls=1, tool_calls=len(names)) for names in (*rounds, ())]
    options = {
        "budget": budgets[0],
        "replay_key": "turn",
        "count_input": world.scenario.counted,
        "tool_concurrency": 8 if world.scenario.together else 1,
        "signal": world.new_signal(),
    }
    if rounds:
        options["continuation_budgets"] = budgets[1:]
    return options


def finish(runtime: Runtime, world: World, account: str) -> str:
    """Run the activity again and again until it has an output."""
    llm = OpenAIResponses(world.provider.client())

    @runtime.activity(version="v1", budget=account)
    def answer() -> str:
        return _ask(llm, world) if world.scenario.asks else "Hello."

    for _ in range(ATTEMPTS):
        try:
            return answer.run(workflow_id="crash", run_id=world.name)
        except _AGAIN as error:
            _look_into(error, runtime, world)
    raise AssertionError(f"No output after {ATTEMPTS} attempts.")


def _ask(llm: OpenAIResponses, world: World) -> str:
    options, scenario = _options(world), world.scenario
    if scenario.streamed:
        with llm.stream(REQUEST, SYNC_TOOLS if scenario.rounds else None, **options) as stream:
            for event in stream:
                if event.type == "response.created":
                    world.wait_until_kept()
        return stream.result.response.output_text
    if scenario.rounds:
        return llm.run_with_tools(REQUEST, SYNC_TOOLS, **options).response.output_text
    return llm.run(REQUEST, **options).response.output_text


def finish_async(runtime: Runtime, world: World, account: str) -> str:
    """The same with coroutines all the way."""
    return asyncio.run(_finish_async(runtime, world, account))


async def _finish_async(runtime: Runtime, world: World, account: str) -> str:
    llm = AsyncOpenAIResponses(world.provider.async_client())
    task = asyncio.current_task()
    assert task is not None
    if world.scenario.first == "cancelled":
        world.cancel_task(task)

    @runtime.activity(version="v1", budget=account)
    async def answer() -> str:
        return await _ask_async(llm, world) if world.scenario.asks else "Hello."

    for _ in range(ATTEMPTS):
        try:
            return await answer.run(workflow_id="crash", run_id=world.name)
        except _AGAIN as error:
            await asyncio.to_thread(_look_into, error, runtime, world)
        except asyncio.CancelledError:
            task.uncancel()
    raise AssertionError(f"No output after {ATTEMPTS} attempts.")


async def _ask_async(llm: AsyncOpenAIResponses, world: World) -> str:
    options, scenario = _options(world), world.scenario
    if scenario.streamed:
        tools = ASYNC_TOOLS if scenario.rounds else None
        async with llm.stream(REQUEST, tools, **options) as stream:
            async for event in stream:
                if event.type == "response.created":
                    await asyncio.to_thread(world.wait_until_kept)
        return stream.result.response.output_text
    if scenario.rounds:
        return (await llm.run_with_tools(REQUEST, ASYNC_TOOLS, **options)).response.output_text
    return (await llm.run(REQUEST, **options)).response.output_text


def _look_into(error: Exception, runtime: Runtime, world: World) -> None:
    """What an operator does about an error before the activity is started again."""
    world.failed()
    if isinstance(error, OutcomeUnknown) and error.kind == "effect":
        world.decide(runtime, error.id)
    if isinstance(error, ApprovalRequired):
        for request in error.requests:
            world.allow(runtime, request.id)
