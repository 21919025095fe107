"""A worker that a test starts as a process of its own, and that may kill itself at a named point.

It runs one activity: a tool loop whose replies come from a provider in another process, with tools that write
to a file what they did. Nothing here outlives the process but the ledger, the provider and that file.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from dataclasses import dataclass
from typing import Any

import openai

from memoflow import Budget, KeyRing, OutcomeUnknown, Runtime, Tool, ToolCall, faults, tool
from memoflow.ledger.dialect import database_now
from memoflow.openai import AsyncOpenAIResponses, OpenAIResponses
from memoflow.testing import crash_points
from tests.crash._scenarios import EFFECTS

__all__ = ["ACCOUNT", "RESERVED", "Job", "open_runtime", "record", "work"]

ACCOUNT = "acme"
RESERVED = 4_000
LEASE_S = 60


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker does.

    Attributes:
        url, key: the database, and the key of its outputs.
        base_url: the provider.
        log: the file that tools write to.
        kill_at: the point at which it kills itself, and which one of that name; None to live.
        later: how many workers went before, whose leases have run out.
        measure: how the input is measured, which takes a step of its own.
    """

    url: str
    key: str
    base_url: str
    log: str
    driver: str = "sync"
    kill_at: tuple[str, int] | None = None
    later: int = 0
    measure: str = "bound"
    streamed: bool = False


def work(job: Job) -> str:
    """Run the activity, deciding about what an operator has to decide. In a process that may be killed."""
    if job.kill_at is not None:
        _kill_at(*job.kill_at)
    with open_runtime(job) as runtime:
        run = _run if job.driver == "sync" else _run_async
        for _ in range(4):
            try:
                return run(runtime, job)
            except OutcomeUnknown as unknown:
                _decide(runtime, job, unknown.id)
    raise AssertionError("No output after 4 attempts.")


def record(job: Job) -> list[tuple[str, int]]:
    """Run it and return the points it passes."""
    return [(point.name, point.occurrence) for point in crash_points(lambda: work(job))]


def _kill_at(name: str, occurrence: int) -> None:
    seen: Counter[str] = Counter()

    def hook(point: str) -> None:
        seen[point] += 1
        if (point, seen[point]) == (name, occurrence):
            os.kill(os.getpid(), signal.SIGKILL)

    faults.install(hook)


def open_runtime(job: Job) -> Runtime:
    """The ledger, perhaps some time later than it is."""
    ahead = job.later * (LEASE_S + 1) * 1_000_000
    return Runtime.open(
        job.url,
        keys=KeyRing.parse(job.key),
        lease_seconds=LEASE_S,
        clock=lambda connection: database_now(connection) + ahead,
    )


def _request(job: Job) -> dict[str, Any]:
    # A long question cannot be measured by its bound alone.
    question = "Where is my order? " * (60 if job.measure == "estimate" else 1)
    return {"model": "gpt-5-mini", "input": question}


def _options(job: Job) -> dict[str, Any]:
    budget = Budget(total_tokens=RESERVED, model_calls=1, tool_calls=1)
    return {
        "budget": budget,
        "continuation_budgets": [budget, budget],
        "replay_key": "turn",
        "count_input": job.measure == "counted",
    }


def _run(runtime: Runtime, job: Job) -> str:
    llm = OpenAIResponses(openai.OpenAI(api_key="any", base_url=job.base_url))

    @runtime.activity(version="v1", budget=ACCOUNT, name="answer")
    def answer() -> str:
        if not job.streamed:
            return llm.run_with_tools(_request(job), _tools(job), **_options(job)).response.output_text
        with llm.stream(_request(job), _tools(job), **_options(job)) as stream:
            for _ in stream:
                pass
        return stream.result.response.output_text

    return answer.run(workflow_id="crash", run_id="1")


def _run_async(runtime: Runtime, job: Job) -> str:
    @runtime.activity(version="v1", budget=ACCOUNT, name="answer")
    async def answer() -> str:
        async with openai.AsyncOpenAI(api_key="any", base_url=job.base_url) as client:
            llm = AsyncOpenAIResponses(client)
            result = await llm.run_with_tools(_request(job), _tools(job), **_options(job))
            return result.response.output_text

    return asyncio.run(answer.run(workflow_id="crash", run_id="1"))  # type: ignore[arg-type]


def _tools(job: Job) -> list[Tool[..., Any]]:
    return [_tool(job, name) for name in EFFECTS]


def _tool(job: Job, name: str) -> Tool[..., Any]:
    def act(item: str, *, call: ToolCall) -> str:
        faults.point(f"tool:entered:{name}")
        _append(job.log, {"tool": name, "item": item, "key": call.idempotency_key})
        faults.point(f"tool:done:{name}")
        return f"{name} {item}"

    return tool(act, name=name, version="v1", effect=EFFECTS[name])  # type: ignore[arg-type]


def _append(path: str, entry: dict[str, str]) -> None:
    # One write to a file opened for appending: whole or not there, whenever the process dies.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, json.dumps(entry).encode() + b"\n")
    os.close(descriptor)


def read_log(path: str) -> list[dict[str, str]]:
    """What tools did."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _decide(runtime: Runtime, job: Job, effect_id: str) -> None:
    effect = runtime.reconcile.show(effect_id).effect
    assert effect is not None
    done = [entry for entry in read_log(job.log) if entry["key"] == effect.idempotency_key]
    known = {"actor": "operator", "reason": "the receiver was asked"}
    if done:
        runtime.reconcile.happened(effect_id, result=f"{done[0]['tool']} {done[0]['item']}", **known)
    else:
        runtime.reconcile.did_not_happen(effect_id, evidence="the receiver has nothing", **known)
