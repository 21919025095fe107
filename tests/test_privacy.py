"""No prompt, reply, argument, result or error text is anywhere but in the encrypted store."""

from __future__ import annotations

import asyncio
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, inspect
from sqlalchemy import text as sql
from typer.testing import CliRunner

from memoflow import Budget, CancelSignal, KeyRing, Permit, ProposedCall, Runtime, ToolKnownFailure, tool
from memoflow.cli._app import app
from memoflow.openai import AsyncOpenAIResponses, OpenAIResponses
from memoflow.testing import (
    ScriptEntry,
    SimulatedProvider,
    call,
    calls,
    corrupt_chunk,
    custom_call,
    error_event,
    failed,
    html_200,
    incomplete,
    missing_usage,
    not_json,
    refusal,
    reset_mid_body,
    status,
    text,
)

PROMPT, REPLY, ARGUMENT, RESULT, ERROR, THOUGHT = (
    f"marker-{name}-5f3a9c" for name in ("prompt", "reply", "argument", "result", "error", "thought")
)
MARKERS = (PROMPT, REPLY, ARGUMENT, RESULT, ERROR, THOUGHT)
BUDGET = Budget(total_tokens=4_000, tool_calls=8)

SCRIPTS: list[list[ScriptEntry]] = [
    [text(REPLY)],
    [
        calls(call("echo", {"word": ARGUMENT}), call("known", {"word": ARGUMENT}), thought=THOUGHT),
        text(REPLY),
    ],
    [
        calls(call("echo", {"word": 5, ARGUMENT: 1}), call(ARGUMENT, {}), custom_call(ARGUMENT, ARGUMENT)),
        text(REPLY),
    ],
    [calls(call("fails", {"word": ARGUMENT}))],
    [calls(call("unencodable", {"word": ARGUMENT})), text(REPLY)],
    [calls(call("asks", {"word": ARGUMENT})), text(REPLY)],
    [refusal(REPLY)],
    [incomplete(REPLY)],
    [failed(message=ERROR)],
    [missing_usage(text(REPLY))],
    [status(400, message=ERROR)],
    [status(429, message=ERROR)],
    [status(500, message=ERROR)],
    [reset_mid_body(text(REPLY))],
    [corrupt_chunk(text(REPLY))],
    [error_event(message=ERROR)],
    [html_200()],
    [not_json()],
]


@tool(version="v1", effect="read_only")
def echo(word: str) -> str:
    """Echo."""
    return RESULT + word


@tool(version="v1", effect="read_only")
def known(word: str) -> str:
    """Fail in a known way."""
    raise ToolKnownFailure(ERROR)


@tool(version="v1", effect="at_most_once")
def fails(word: str) -> str:
    """Fail in an unknown way."""
    raise ValueError("an unknown failure of a tool")


@tool(version="v1", effect="idempotent")
def unencodable(word: str) -> Any:
    """Return what cannot be written."""
    return {RESULT: {RESULT}}


@tool(version="v1", effect="at_most_once", approval="human")
def asks(word: str) -> str:
    """Run once a person has allowed it."""
    return RESULT + word


class Nosy:
    """A judge that fails with what it has read."""

    id, policy_digest = "nosy", "sha256:policy"

    def judge(self, call: ProposedCall) -> Permit:
        if call.tool.effect == "read_only":
            raise ValueError(f"{call.arguments} {call.request} {call.reply}")
        return Permit()


COMMANDS = (
    "budget list",
    "budget show acme",
    "runs list",
    "invocations list",
    "effects list",
    "reconcile list",
    "approvals list",
    "verify",
)
TOOLS = [echo, known, fails, unencodable, asks]


@contextmanager
def _collecting(told: list[str]) -> Iterator[None]:
    """Keep the whole traceback of whatever is raised, as a log of it would print it."""
    try:
        yield
    except BaseException as error:
        told.append("".join(traceback.format_exception(error)))
        told.append(repr(error))


def _request() -> dict[str, Any]:
    return {"model": "gpt-5-mini", "input": PROMPT, "instructions": PROMPT}


def _sync(runtime: Runtime, llm: OpenAIResponses, number: int, told: list[str], *, stream: bool) -> None:
    @runtime.activity(version="v1", name=f"sync-{stream}-{number}", budget="acme")
    def work(prompt: str) -> str:
        options: Any = {"budget": BUDGET, "continuation_budgets": [BUDGET], "replay_key": "turn"}
        if stream:
            with llm.stream(_request(), TOOLS, **options) as events:
                for _ in events:
                    pass
            return events.result.response.output_text
        result = llm.run_with_tools(_request(), TOOLS, **options)
        told.append(repr(result))
        return result.response.output_text

    for _ in range(2):
        with _collecting(told):
            work.run(PROMPT, workflow_id="w", run_id="r")


def _async(runtime: Runtime, llm: AsyncOpenAIResponses, number: int, told: list[str]) -> None:
    @runtime.activity(version="v1", name=f"async-{number}", budget="acme")
    async def work(prompt: str) -> str:
        result = await llm.run_with_tools(
            _request(), TOOLS, budget=BUDGET, continuation_budgets=[BUDGET], replay_key="turn"
        )
        return result.response.output_text

    with _collecting(told):
        asyncio.run(work.run(PROMPT, workflow_id="w", run_id="r"))


def _refusals(runtime: Runtime, told: list[str]) -> None:
    """Requests, options and inputs that are refused before anything is sent."""
    llm = OpenAIResponses(SimulatedProvider().client())
    bad: list[Callable[[], Any]] = [
        lambda: llm.run({**_request(), "max_output_tokens": PROMPT}),
        lambda: llm.run({**_request(), PROMPT: float("nan")}),
        lambda: llm.run({**_request(), "input": PROMPT + "\ud83d"}),
        lambda: llm.run({**_request(), "input": {PROMPT}}),
        lambda: llm.run(_request(), budget=Budget(total_tokens=1)),
        lambda: llm.run(_request(), signal=_cancelled()),
        lambda: llm.run({**_request(), "max_output_tokens": 10**6}, budget=BUDGET),
    ]

    @runtime.activity(version="v1", name="refused", budget="acme")
    def work(prompt: str) -> None:
        for attempt in bad:
            with _collecting(told):
                attempt()

    work.run(PROMPT, workflow_id="w", run_id="r")
    with _collecting(told):
        work.run(PROMPT + "other", workflow_id="w", run_id="r")
    with _collecting(told):
        work.run({PROMPT}, workflow_id="w", run_id="other")


def _cancelled() -> CancelSignal:
    signal = CancelSignal()
    signal.cancel()
    return signal


def _everything(url: str, told: list[str]) -> None:
    with Runtime.open(url, keys=KeyRing.generate(), judges=[Nosy()]) as runtime:
        runtime.budgets.put("acme", Budget(total_tokens=10**9))
        for number, script in enumerate(SCRIPTS):
            for stream in (False, True):
                provider = SimulatedProvider([*script, *script])
                _sync(runtime, OpenAIResponses(provider.client()), number, told, stream=stream)
            provider = SimulatedProvider([*script, *script])
            _async(runtime, AsyncOpenAIResponses(provider.async_client()), number, told)
        _refusals(runtime, told)
        _approvals(runtime, told)


def _approvals(runtime: Runtime, told: list[str]) -> None:
    """What waits, as it is printed: only an attribute that is asked for has the arguments."""
    for request in runtime.approvals.list().items:
        case = runtime.approvals.show(request.id)
        assert ARGUMENT in str(case.arguments)
        told.append(repr(case))
    assert told


def _cli(url: str, told: list[str]) -> None:
    for command in COMMANDS:
        for form in ([], ["--json"]):
            result = CliRunner().invoke(app, [*command.split(), "--database", url, *form])
            told.append(result.output)


def _stored(url: str) -> str:
    """Every value of every table, ciphertext and all."""
    engine = create_engine(url)
    with engine.connect() as connection:
        rows = [
            repr(tuple(row))
            for table in inspect(engine).get_table_names()
            for row in connection.execute(sql(f'SELECT * FROM "{table}"'))
        ]
    engine.dispose()
    return "\n".join(rows)


def test_payload_is_nowhere_in_the_clear(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Markers planted in everything a call carries are not in the database, logs, warnings, errors or CLI."""
    caplog.set_level(logging.DEBUG, logger="memoflow")
    told: list[str] = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        _everything(database_url, told)
    _cli(database_url, told)
    found = {
        "database": _stored(database_url),
        "logs": "\n".join(r.getMessage() for r in caplog.records if r.name.startswith("memoflow")),
        "warnings": "\n".join(str(warning.message) for warning in warned),
        "told": "\n".join(told),
    }
    if database_url.startswith("sqlite"):
        file = Path(database_url.removeprefix("sqlite:///"))
        raw = b"".join(path.read_bytes() for path in file.parent.glob(f"{file.name}*"))
        found["files"] = raw.decode("latin-1")
    leaks = [(marker, place) for place, content in found.items() for marker in MARKERS if marker in content]
    assert leaks == []
    assert "SUCCEEDED" in found["database"]
    assert "OUTCOME_UNKNOWN" in found["database"]
    assert "AWAITING_APPROVAL" in found["database"]
    assert "JUDGE_FAILED" in found["database"]
