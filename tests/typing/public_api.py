"""What a type checker must see of the public interface. Checked by mypy and pyright, never run."""

from __future__ import annotations

from typing import Any, assert_type

from openai import AsyncOpenAI, OpenAI
from openai.types.responses import Response, ResponseStreamEvent

import memoflow
from memoflow import (
    Activity,
    Budget,
    BudgetDenied,
    CancelSignal,
    Money,
    OutcomeUnknown,
    Price,
    PriceBook,
    ProviderRejected,
    Retry,
    Runtime,
    Tool,
    ToolCall,
    tool,
)
from memoflow.openai import AsyncOpenAIResponses, OpenAIResponses, ResponsesResult, ResponseStream
from memoflow.reconcile import Attempted

assert_type(memoflow.__version__, str)

rt = Runtime.open("sqlite:///memoflow.db", prices=PriceBook({"gpt": Price("1", "2")}))
assert_type(rt, Runtime)
rt.budgets.put("acme", Budget(total_tokens=1_000_000, cost=Money.of("10")), period="month")
rt.budgets.put("acme", 1_000)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@tool(version="v1", effect="read_only")
def look(city: str) -> dict[str, int]:
    return {city: 1}


@tool(version="v1", effect="idempotent")
async def refund(order: str, *, call: ToolCall) -> str:
    return call.idempotency_key


llm = OpenAIResponses(OpenAI())
asynchronous = AsyncOpenAIResponses(AsyncOpenAI())
OpenAIResponses(AsyncOpenAI())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@rt.activity(version="v1", budget="acme", retry=Retry(attempts=3))
def answer(question: str, times: int = 1) -> int:
    result = llm.run_with_tools(
        {"model": "gpt", "input": question},
        tools=[look, refund],
        budget=Budget(total_tokens=2_000, tool_calls=2),
        continuation_budgets=[Budget(total_tokens=2_000)] * times,
        replay_key="answer",
        timeout=30,
        signal=CancelSignal(),
        on_unknown="block",
        metadata={"team": "a", "n": 1},
    )
    assert_type(result, ResponsesResult)
    assert_type(result.response, Response)
    assert_type(result.restored, bool)
    assert_type(result.tool_results[0].output, str)
    assert_type(result.invocations[0].cost, int | None)
    llm.run({"model": "gpt"}, on_unknown="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    llm.run({"model": "gpt"}, budgets=Budget())  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert_type(rt.current().attempt, int)
    assert_type(rt.current().remaining_budget(), Budget)
    return 1


@rt.activity(version="v1", budget="acme")
async def answer_slowly(question: str) -> str:
    result = await asynchronous.run({"model": "gpt", "input": question}, budget=Budget(total_tokens=2_000))
    assert_type(result, ResponsesResult)
    assert_type(await rt.current().aheartbeat(), None)
    assert_type(await rt.current().aremaining_budget(), Budget)
    async with asynchronous.stream({"model": "gpt"}, [look], replay_key="s", budget=Budget()) as stream:
        async for event in stream:
            assert_type(event, ResponseStreamEvent)
    return stream.result.response.output_text


def streams() -> None:
    with llm.stream({"model": "gpt", "input": "x"}) as stream:
        assert_type(stream, ResponseStream)
        for event in stream:
            assert_type(event, ResponseStreamEvent)
    assert_type(stream.result.finish_reason, str)


def activities() -> None:
    runnable: Activity[..., int] = answer
    assert_type(runnable.run(1), int)
    assert_type(answer.run("Where?", workflow_id="w", run_id="r"), int)
    with rt.run(workflow_id="w", budget=Budget(total_tokens=5), under="acme") as run:
        assert_type(run.run_id, str)


async def awaited() -> None:
    decided = await rt.reconcile.aauto(asynchronous.retrieve, asynchronous.codec)
    assert_type(decided, tuple[Attempted, ...])
    assert_type(await answer_slowly.run("Where?"), str)
    async with rt.run(workflow_id="w") as run:
        assert_type(run.account, str | None)


def reconciling() -> None:
    assert_type(rt.reconcile.auto(llm.retrieve), tuple[Attempted, ...])
    assert_type(rt.reconcile.auto(llm.retrieve, llm.codec), tuple[Attempted, ...])


def errors() -> None:
    try:
        answer.run("Where?")
    except BudgetDenied as denied:
        assert_type(denied.fits, int)
        assert_type(denied.output_cap_fits, int | None)
    except ProviderRejected as rejected:
        assert_type(rejected.retry_after, float | None)
        assert_type(rejected.param, str | None)
    except OutcomeUnknown as unknown:
        assert_type(unknown.id, str)


def tools() -> None:
    offered: Tool[..., Any] = look
    assert_type(offered.identity, tuple[str, str, str])
    assert_type(look("Rome"), dict[str, int])
