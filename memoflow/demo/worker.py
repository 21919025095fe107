"""The worker process of the demo: one activity with a tool, over the official SDK.

Run as ``python -m memoflow.demo.worker JOB``; JOB is JSON with the fields of `Job`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from openai import OpenAI

from memoflow import Budget, MemoflowError, Runtime, ToolCall, faults, tool
from memoflow.openai import OpenAIResponses

__all__ = ["Job", "Report", "work"]

# Reserve; settle and begin the tool; finish the tool and reserve; settle. Then the model's last reply
# is recorded, and the activity is not completed.
LAST_REPLY_RECORDED = 4


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is told. ``refunds`` is the file in which the tool itself counts what it did."""

    database: str
    model: str
    tickets: tuple[str, ...]
    question: str
    refunds: str
    base_url: str | None = None
    api_key: str | None = None
    die: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker says about a ticket, if it lives to say it."""

    answer: str | None
    error: str | None
    restored: int
    sent: int


def work(job: Job) -> list[Report]:
    """Answer tickets; a refund is due."""
    runtime = Runtime.open(job.database, lease_seconds=1)
    llm = OpenAIResponses(OpenAI(base_url=job.base_url, api_key=job.api_key))
    seen: list[Any] = []

    @tool(version="v1", effect="idempotent")
    def refund(order_id: str, cents: int, *, call: ToolCall) -> dict[str, Any]:
        """Refund an order. Amounts are in cents."""
        with Path(job.refunds).open("a", encoding="utf-8") as done:
            done.write(f"{order_id} {cents} {call.idempotency_key}\n")
        return {"refunded": cents, "order_id": order_id}

    @runtime.activity(version="v1", budget="acme/support")
    def answer(question: str) -> str:
        result = llm.run_with_tools(
            {"model": job.model, "input": question},
            tools=[refund],
            budget=Budget(total_tokens=2_000, tool_calls=1),
            continuation_budgets=[Budget(total_tokens=2_000)],
            replay_key="answer",
        )
        seen.extend(result.invocations)
        return result.response.output_text

    if job.die:
        _die_after(LAST_REPLY_RECORDED)
    reports = []
    for ticket in job.tickets:
        seen.clear()
        try:
            text, error = answer.run(job.question, workflow_id=ticket, run_id="demo"), None
        except MemoflowError as refused:
            text, error = None, f"{type(refused).__name__}: {refused}"
        restored = sum(invocation.restored for invocation in seen)
        reports.append(Report(text, error, restored, len(seen) - restored))
    runtime.close()
    return reports


def _die_after(number: int) -> None:
    """Kill this process, without any warning to itself, right after the turn's n-th durable commit."""
    seen = 0

    def count(point: str) -> None:
        nonlocal seen
        seen += point == "after:Commit"
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)

    faults.install(count)


if __name__ == "__main__":
    reports = work(Job(**json.loads(sys.argv[1])))
    sys.stdout.write(json.dumps([asdict(report) for report in reports]))
