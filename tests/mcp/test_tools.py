"""Tools of an MCP server in activities: recorded, restored and refused like any other tool."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the MCP SDK is not installed: memoflow-runtime[mcp]")

from mcp import ClientSession, MCPError, types

from memoflow import (
    ApprovalRequired,
    OutcomeUnknown,
    ToolNotAnswered,
    ToolNotStarted,
    ToolTimedOut,
    ToolVersionMismatch,
)
from memoflow.mcp import mcp_tool, mcp_tools
from tests.mcp._desk import Site, said

DONE = ("DONE", None)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_call_is_budgeted_and_recorded(site: Site, mode: str) -> None:
    """Like that of any other tool, over both ways to talk to a server."""
    site.desk.add("add", lambda given: said(str(given["n"] + 1)))

    async def body(session: ClientSession) -> Any:
        tools = await mcp_tools(session, version="v1", effects={"add": "at_most_once"})
        return await site.play(site.asking(("add", {"n": 4})), tools)

    assert site.within(body, mode=mode).outputs == ["5"]
    assert site.desk.ran == [("add", {"n": 4})]
    assert site.states == [DONE]
    assert site.rt.budgets.show("acme").settled.tool_calls == 1


def test_a_person_is_asked_before_the_server_is(site: Site) -> None:
    """A tool of a server waits like any other; its server hears of nothing that nobody allowed."""
    site.desk.add("pay", lambda given: said("paid"))

    async def body(session: ClientSession) -> Any:
        effects: Any = {"pay": "at_most_once"}
        tools = await mcp_tools(session, version="v1", effects=effects, approvals={"pay": "human"})
        provider = site.asking(("pay", {"n": 82}))
        first = await site.play(provider, tools)
        assert type(first.error) is ApprovalRequired
        assert site.desk.ran == []
        (request,) = first.error.requests
        case = await asyncio.to_thread(site.rt.approvals.show, request.id)
        assert case.arguments == '{"n":82}'
        await asyncio.to_thread(site.rt.approvals.approve, request.id, approver="ann", reason="fine")
        return await site.play(provider, tools)

    assert site.within(body).outputs == ["paid"]
    assert site.desk.ran == [("pay", {"n": 82})]


def test_a_later_attempt_restores_without_a_call(site: Site) -> None:
    """What one tool did stands, when another of the same round fails."""
    failing = [MCPError(-32603, "broken")]

    def answer(given: dict[str, Any]) -> types.CallToolResult:
        if failing:
            raise failing.pop()
        return said("late")

    site.desk.add("good", lambda given: said("early"))
    site.desk.add("bad", answer)

    async def body(session: ClientSession) -> Any:
        effects: Any = {"good": "at_most_once", "bad": "idempotent"}
        tools = await mcp_tools(session, version="v1", effects=effects)
        provider = site.asking(("good", {"n": 1}), ("bad", {"n": 2}))
        return [await site.play(provider, tools), await site.play(provider, tools)]

    first, second = site.within(body)
    assert type(first.error) is ToolNotAnswered
    assert second.outputs == ["early", "late"]
    assert [one.restored for one in second.result.tool_results] == [True, False]
    assert [name for name, _ in site.desk.ran] == ["good", "bad", "bad"]


def test_the_key_is_the_same_in_every_attempt(site: Site) -> None:
    """The server sees one key twice, and which attempt it is."""
    failing = [MCPError(-32603, "broken")]

    def answer(given: dict[str, Any]) -> types.CallToolResult:
        if failing:
            raise failing.pop()
        return said("ok")

    site.desk.add("pay", answer)

    async def body(session: ClientSession) -> Any:
        tool = mcp_tool(
            session, site.desk.tools["pay"], version="v1", effect="idempotent", key_name="com.example/key"
        )
        provider = site.asking(("pay", {"n": 1}))
        return [await site.play(provider, [tool]), await site.play(provider, [tool])]

    _, second = site.within(body)
    assert second.outputs == ["ok"]
    metas = [meta for _, _, meta in site.desk.log]
    (key,) = set(site.desk.keys)
    assert key == second.result.tool_results[0].idempotency_key
    assert key.startswith("mf1_")
    assert [meta["memoflow/attempt"] for meta in metas] == [1, 2]
    assert {meta["com.example/key"] for meta in metas} == {key}


@pytest.mark.parametrize(
    ("effect", "after", "calls"),
    [("at_most_once", OutcomeUnknown, 1), ("idempotent", None, 2), ("read_only", None, 2)],
)
@pytest.mark.parametrize("code", [-32602, -32000])
def test_an_error_of_the_protocol_proves_nothing(
    site: Site, effect: Any, after: type[BaseException] | None, calls: int, code: int
) -> None:
    """Whatever the code says, the tool may have sent it after it ran; the effect class decides."""
    failing = [MCPError(code, "the payload")]

    def answer(given: dict[str, Any]) -> types.CallToolResult:
        if failing:
            raise failing.pop()
        return said("ok")

    site.desk.add("pay", answer)

    async def body(session: ClientSession) -> Any:
        tools = await mcp_tools(session, version="v1", effects={"pay": effect})
        provider = site.asking(("pay", {"n": 1}))
        first = await site.play(provider, tools)
        return first, site.states, await site.play(provider, tools)

    first, states, second = site.within(body)
    assert type(first.error) is ToolNotAnswered
    assert first.error.code == code
    assert "payload" not in str(first.error)
    assert first.error.__suppress_context__
    state = "FAILED" if effect == "read_only" else "OUTCOME_UNKNOWN"
    assert states == [(state, "TOOL_ERROR")]
    assert type(second.error) is (after or type(None))
    assert len(site.desk.log) == calls


def test_a_reported_error_is_a_call_that_was_done(site: Site) -> None:
    """The model reads it as an error; it is never run again, for it does not say that nothing happened."""
    site.desk.add("pay", lambda given: said("Card declined.", is_error=True))

    async def body(session: ClientSession) -> Any:
        tools = await mcp_tools(session, version="v1", effects={"pay": "idempotent"})
        return await site.play(site.asking(("pay", {"n": 1})), tools)

    assert site.within(body).outputs == ['{"error":{"code":"TOOL_REPORTED_ERROR","detail":"Card declined."}}']
    assert site.states == [DONE]


@pytest.mark.parametrize(
    ("arguments", "detail"),
    [
        ('{"n":"secret"}', "n: integer_type"),
        ('{"n":true}', "n: integer_type"),
        ("{}", "n: missing"),
        ("", "n: missing"),
        ('{"n":1,"secret":2}', "(unknown key): extra_forbidden"),
        ('{"n":1,"n":2}', "DUPLICATE_KEY"),
        ('{"n":NaN}', "NOT_FINITE"),
        ("[1]", "NOT_AN_OBJECT"),
        ('{"n":' + "[" * 70 + "]" * 70 + "}", "TOO_DEEP"),
        ('{"n":1', "MALFORMED"),
    ],
)
def test_bad_arguments_never_reach_the_server(site: Site, arguments: str, detail: str) -> None:
    """The model is told places and kinds, and none of what it wrote."""
    site.desk.add("pay")

    async def body(session: ClientSession) -> Any:
        tools = await mcp_tools(session, version="v1", effects={"pay": "at_most_once"})
        return await site.play(site.asking(("pay", arguments)), tools)

    (output,) = site.within(body).outputs
    assert "INVALID_ARGUMENTS" in output
    assert detail in output
    assert "secret" not in output
    assert (site.desk.log, site.states) == ([], [("REFUSED", "INVALID_ARGUMENTS")])


def test_arguments_arrive_as_they_were_digested(site: Site) -> None:
    """Nulls, large integers and nesting are kept; 5.0 is the integer 5."""
    site.desk.add("any", schema={"type": "object"})
    given = '{"a":null,"b":123456789012345678901234567890,"c":[{"d":null},"é"],"e":5.0,"f":0.1}'

    async def body(session: ClientSession) -> Any:
        tools = await mcp_tools(session, version="v1", effects={"any": "read_only"})
        return await site.play(site.asking(("any", given)), tools)

    assert site.within(body).outputs == ["ok"]
    ((_, arguments),) = site.desk.ran
    assert arguments == {
        "a": None,
        "b": 123456789012345678901234567890,
        "c": [{"d": None}, "é"],
        "e": 5,
        "f": 0.1,
    }
    assert type(arguments["e"]) is int


def test_a_changed_schema_is_another_version(site: Site) -> None:
    """An unfinished recorded call is not finished by a tool that takes something else."""
    failing = [MCPError(-32603, "broken")]

    def answer(given: dict[str, Any]) -> types.CallToolResult:
        raise failing[0]

    before = site.desk.add("pay", answer)
    after = before.model_copy(update={"input_schema": {"type": "object"}})
    renamed = before.model_copy(update={"name": "refund"})

    async def body(session: ClientSession) -> Any:
        played = []
        provider = site.asking(("pay", {"n": 1}))
        for tool in (before, after, renamed):
            made = mcp_tool(session, tool, version="v1", effect="idempotent", name="pay")
            played.append(await site.play(provider, [made]))
        return played

    first, *others = site.within(body)
    assert type(first.error) is ToolNotAnswered
    assert [type(one.error) for one in others] == [ToolVersionMismatch] * 2
    assert len(site.desk.log) == 1


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_closed_session_proves_nothing(site: Site, mode: str) -> None:
    """Nobody can tell whether the request had left."""
    site.desk.add("pay")

    async def body(session: ClientSession) -> Any:
        return await mcp_tools(session, version="v1", effects={"pay": "at_most_once"})

    async def late() -> Any:
        return await site.play(site.asking(("pay", {"n": 1})), tools)

    loop = asyncio.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        from mcp import Client

        async def opened() -> Any:
            async with Client(site.desk.server, mode=mode) as client:
                return await body(client.session)

        tools = loop.run_until_complete(opened())
        played = loop.run_until_complete(late())
    finally:
        loop.close()
        asyncio.set_event_loop(None)
    assert type(played.error) is ToolNotAnswered
    assert site.states == [("OUTCOME_UNKNOWN", "TOOL_ERROR")]
    assert site.desk.log == []


def test_a_session_that_was_never_initialised_sends_nothing(site: Site) -> None:
    """Known not to have happened: the next attempt runs it, also at most once."""
    tool = site.desk.add("pay")

    async def body(session: ClientSession) -> Any:
        made = mcp_tool(session, tool, version="v1", effect="at_most_once")
        provider = site.asking(("pay", {"n": 1}))
        from mcp.shared.memory import create_client_server_memory_streams

        async with create_client_server_memory_streams() as (streams, _), ClientSession(*streams) as raw:
            early = mcp_tool(raw, tool, version="v1", effect="at_most_once")
            first = await site.play(provider, [early])
        return first, await site.play(provider, [made])

    first, second = site.within(body)
    assert type(first.error) is ToolNotStarted
    assert second.outputs == ["ok"]
    assert site.states == [("FAILED", "NOT_STARTED"), DONE]


def test_a_tool_that_takes_too_long(site: Site) -> None:
    """Its time limit is memoflow's: unknown, and the server is told to stop."""
    stopped = asyncio.Event()

    async def wait(given: dict[str, Any]) -> types.CallToolResult:
        try:
            await asyncio.sleep(30)
        finally:
            stopped.set()
        return said("never")

    site.desk.add("slow", wait)

    async def body(session: ClientSession) -> Any:
        tools = await mcp_tools(session, version="v1", effects={"slow": "at_most_once"}, timeout=0.2)
        played = await site.play(site.asking(("slow", {"n": 1})), tools)
        await asyncio.wait_for(stopped.wait(), 5)
        return played

    assert type(site.within(body).error) is ToolTimedOut
    assert site.states == [("OUTCOME_UNKNOWN", "TOOL_TIMEOUT")]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_an_answer_that_is_no_result(site: Site, mode: str) -> None:
    """A request for input, or anything else that is not the result of a tool, proves nothing."""
    site.desk.add("pay", lambda given: types.InputRequiredResult(request_state="s"))

    async def body(session: ClientSession) -> Any:
        tools = await mcp_tools(session, version="v1", effects={"pay": "at_most_once"})
        return await site.play(site.asking(("pay", {"n": 1})), tools)

    assert type(site.within(body, mode=mode).error) is ToolNotAnswered
    assert site.states == [("OUTCOME_UNKNOWN", "TOOL_ERROR")]
