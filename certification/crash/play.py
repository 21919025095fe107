"""The activity that workers run: the calls of a job, with everything that may end them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import httpx2
import tenacity
from openai import AsyncOpenAI, OpenAI

from certification.crash.lines import Lines
from certification.crash.plan import RESERVED, Call, Job, Plan
from certification.crash.provider import TOLD
from certification.crash.tools import make_tools
from memoflow import Budget, CancelSignal, Retry, Runtime
from memoflow.errors import (
    CallCancelled,
    OutcomeUnknown,
    ProviderError,
)
from memoflow.openai import AsyncOpenAIResponses, OpenAIResponses

__all__ = ["Player"]

WORKFLOW = "crash"
PATIENCE_S = 3.0
_TOLERATED = (CallCancelled, ProviderError)


class Player:
    """Runs jobs on one runtime.

    Args:
        plan: what is asked.
        runtime: where it is recorded.
        base_url: the provider.
        tools: where tools write what they did.
        heard: where acknowledged replies are written.
    """

    def __init__(self, plan: Plan, runtime: Runtime, base_url: str, tools: Lines, heard: Lines) -> None:
        self._runtime, self._heard = runtime, heard
        self._tools = make_tools(plan, tools, is_async=False)
        self._async_tools = make_tools(plan, tools, is_async=True)
        # Loading certificates takes long, and loopback needs none.
        self._client = OpenAI(api_key="any", base_url=base_url, http_client=httpx2.Client(verify=False))
        self._async_client = AsyncOpenAI(
            api_key="any", base_url=base_url, http_client=httpx2.AsyncClient(verify=False)
        )

    def close(self) -> None:
        """Close the connections to the provider that threads used."""
        self._client.close()

    async def aclose(self) -> None:
        """Close those that tasks used, in their event loop."""
        await self._async_client.close()

    # Activities

    def run(self, job: Job) -> str:
        """Run an activity; what it returned."""

        def work(name: str) -> str:
            return json.dumps([self._tolerantly(job, call) for call in job.calls])

        with self._run_of(job):
            output: str = self._activity(job, work).run(job.name, **_identity(job))
            return output

    async def run_async(self, job: Job) -> str:
        """The same with coroutines."""

        async def work(name: str) -> str:
            if not job.together:
                return json.dumps([await self._tolerantly_async(job, call) for call in job.calls])
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._tolerantly_async(job, call)) for call in job.calls]
            return json.dumps([task.result() for task in tasks])

        async with self._run_of(job):
            output: str = await self._activity(job, work).run(job.name, **_identity(job))
            return output

    def _activity(self, job: Job, work: Any) -> Any:
        retry = Retry(attempts=job.tries, wait=tenacity.wait_fixed(0.05))
        account = None if job.run_budget is not None else job.account
        return self._runtime.activity(version="v1", name="work", budget=account, retry=retry)(work)

    def _run_of(self, job: Job) -> Any:
        if job.run_budget is None:
            return nullcontext()
        budget = Budget(total_tokens=job.run_budget)
        return self._runtime.run(workflow_id=WORKFLOW, run_id=job.name, budget=budget, under=job.account)

    # Calls

    def _tolerantly(self, job: Job, call: Call) -> str:
        try:
            return self._call(job, call)
        except (*_TOLERATED, OutcomeUnknown) as error:
            return _excused(job, error)

    async def _tolerantly_async(self, job: Job, call: Call) -> str:
        try:
            return await self._call_async(job, call)
        except (*_TOLERATED, OutcomeUnknown) as error:
            return _excused(job, error)

    def _call(self, job: Job, call: Call) -> str:
        attempt = self._runtime.current().attempt
        llm = OpenAIResponses(self._client.with_options(default_headers=_told(job, call, attempt)))
        signal = CancelSignal()
        with _cancelling(call, attempt, signal):
            options = _options(job, call) | {"signal": signal}
            if call.streamed:
                with llm.stream(_request(call), self._tools if call.rounds else None, **options) as stream:
                    for _ in stream:
                        pass
                return self._note(job, stream.result)
            if call.rounds:
                return self._note(job, llm.run_with_tools(_request(call), self._tools, **options))
            return self._note(job, llm.run(_request(call), **options))

    async def _call_async(self, job: Job, call: Call) -> str:
        attempt = self._runtime.current().attempt
        llm = AsyncOpenAIResponses(self._async_client.with_options(default_headers=_told(job, call, attempt)))
        tools, options = self._async_tools, _options(job, call)
        with _cancelling_task(call, attempt):
            if call.streamed:
                async with llm.stream(_request(call), tools if call.rounds else None, **options) as stream:
                    async for _ in stream:
                        pass
                return self._note(job, stream.result)
            if call.rounds:
                return self._note(job, await llm.run_with_tools(_request(call), tools, **options))
            return self._note(job, await llm.run(_request(call), **options))

    def _note(self, job: Job, result: Any) -> str:
        """Write down what was acknowledged, before anything is made of it."""
        told = [(one.id, one.state, one.input_tokens, one.output_tokens) for one in result.invocations]
        self._heard.append(event="replied", job=job.name, invocations=told)
        text: str = result.response.output_text
        return text


def _identity(job: Job) -> dict[str, str]:
    return {"workflow_id": WORKFLOW, "run_id": job.name}


def _told(job: Job, call: Call, attempt: int) -> dict[str, str]:
    return {TOLD: f"{job.name} {call.key} {attempt}"}


def _request(call: Call) -> dict[str, Any]:
    return {"model": "gpt-5-mini", "input": f"Please do {call.key}."}


def _options(job: Job, call: Call) -> dict[str, Any]:
    budgets = [
        Budget(total_tokens=RESERVED, model_calls=1, tool_calls=len(names)) for names in (*call.rounds, ())
    ]
    options: dict[str, Any] = {
        "budget": budgets[0],
        "account": job.other,
        "replay_key": None if call.forgotten else call.key,
        "count_input": call.counted,
        "output_cap": "caller" if call.overruns else "reserve",
        "timeout": PATIENCE_S,
        "metadata": {"call": call.key},
    }
    if call.rounds:
        options["continuation_budgets"] = budgets[1:]
    return options


def _excused(job: Job, error: Exception) -> str:
    """What stands for a call that failed, where its activity goes on all the same."""
    blocked = isinstance(error, OutcomeUnknown) and error.kind == "effect"
    if blocked or not job.tolerant:
        raise error
    return type(error).__name__


@contextmanager
def _cancelling(call: Call, attempt: int, signal: CancelSignal) -> Iterator[None]:
    """Cancel the first attempt at a call when the plan says so."""
    if call.cancel_ms is None or attempt > 1:
        yield
        return
    timer = threading.Timer(call.cancel_ms / 1000, signal.cancel)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def _cancelling_task(call: Call, attempt: int) -> Iterator[None]:
    task = asyncio.current_task()
    if call.cancel_ms is None or attempt > 1 or task is None:
        yield
        return
    timer = asyncio.get_running_loop().call_later(call.cancel_ms / 1000, task.cancel)
    try:
        yield
    finally:
        timer.cancel()
