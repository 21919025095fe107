"""Where a session may live: the activity's own loop, another thread's, another process's server."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("mcp", reason="the MCP SDK is not installed: memoflow-runtime[mcp]")

from anyio.from_thread import start_blocking_portal
from mcp import Client, ClientSession, StdioServerParameters, stdio_client

from memoflow import Budget, Runtime, ToolNotAnswered, ToolNotStarted
from memoflow.mcp import _session, mcp_tools
from memoflow.testing import crash_points
from memoflow.testing.runtime import ManualClock
from tests.mcp._desk import Desk, Site

ONCE: Any = {"pay": "at_most_once"}
AGAIN: Any = {"pay": "idempotent"}
LEASE_S = 3_600


def test_a_blocking_activity_with_a_portal(site: Site) -> None:
    """The session lives in a loop of another thread; the call is handed over to it."""
    site.desk.add("pay")
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Client(site.desk.server)) as client,
    ):
        tools = portal.call(partial(mcp_tools, client.session, version="v1", effects=ONCE))
        played = site.play_blocking(site.asking(("pay", {"n": 1}), ("pay", {"n": 2})), tools)
    assert played.outputs == ["ok", "ok"]
    assert sorted(given["n"] for _, given in site.desk.ran) == [1, 2]


def test_a_blocking_activity_beside_the_loop(site: Site) -> None:
    """In a thread, while the loop of the session goes on."""
    site.desk.add("pay")

    async def body(session: ClientSession) -> Any:
        tools = await mcp_tools(session, version="v1", effects=ONCE, timeout=20)
        return await asyncio.to_thread(site.play_blocking, site.asking(("pay", {"n": 1})), tools)

    assert site.within(body).outputs == ["ok"]


def test_a_blocking_activity_on_the_loop_itself(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for itself: refused before anything was sent, and free to run later."""
    monkeypatch.setattr(_session, "LOOP_GRACE_S", 0.2)
    site.desk.add("pay")

    async def body(session: ClientSession) -> Any:
        tools = await mcp_tools(session, version="v1", effects=ONCE)
        provider = site.asking(("pay", {"n": 1}))
        first = site.play_blocking(provider, tools)
        states, ran = site.states, list(site.desk.ran)
        return first, states, ran, await asyncio.to_thread(site.play_blocking, provider, tools)

    first, states, ran, second = site.within(body)
    assert type(first.error) is ToolNotStarted
    assert "another thread" in str(first.error)
    assert (states, ran) == ([("FAILED", "NOT_STARTED")], [])
    assert second.outputs == ["ok"]


def test_a_loop_that_is_gone(site: Site) -> None:
    """Known not to have been sent."""
    site.desk.add("pay")

    async def body(session: ClientSession) -> Any:
        return await mcp_tools(session, version="v1", effects=ONCE)

    tools = site.within(body)
    assert type(site.play_blocking(site.asking(("pay", {"n": 1})), tools).error) is ToolNotStarted
    assert site.states == [("FAILED", "NOT_STARTED")]


def test_a_loop_that_ends_during_a_call() -> None:
    """It was sent, so it may have run."""
    found: Future[asyncio.AbstractEventLoop] = Future()

    async def live() -> None:
        found.set_result(asyncio.get_running_loop())
        while not started:
            await asyncio.sleep(0.01)

    async def work() -> None:
        started.append(True)
        await asyncio.sleep(60)

    started: list[bool] = []
    thread = threading.Thread(target=lambda: asyncio.run(live()))
    thread.start()
    link = _session.Link(cast(Any, None), found.result())
    with pytest.raises(ToolNotAnswered, match="the event loop of its session ended"):
        asyncio.run(link._in_its_loop("pay", work))
    thread.join()


def notes(log: Path) -> list[list[Any]]:
    """What the server in the other process wrote down."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def test_a_server_in_a_process_of_its_own(site: Site, tmp_path: Path) -> None:
    """Over stdio, with the SDK's own server: the key arrives, and errors of the tool are results."""
    log = tmp_path / "log"
    server = Path(__file__).with_name("_stdio_server.py")
    command = StdioServerParameters(command=sys.executable, args=[str(server), str(log)])

    async def run() -> Any:
        async with Client(stdio_client(command)) as client:
            tools = await mcp_tools(client.session, version="v1", effects=ONCE)
            assert tools[0].description.startswith("Pay somebody.")
            provider = site.asking(("pay", {"cents": 5}), ("pay", {"cents": 13}), ("pay", {"cents": "x"}))
            return await site.play(provider, tools)

    played = asyncio.run(run())
    paid, unlucky, refused = played.outputs
    assert paid == '{"paid":5}'
    assert "TOOL_REPORTED_ERROR" in unlucky
    assert "INVALID_ARGUMENTS" in refused
    keys = [one.idempotency_key for one in played.result.tool_results[:2]]
    assert sorted(notes(log)) == sorted(["pay", key, 1] for key in keys)


@pytest.mark.slow
def test_a_death_at_every_point(sqlite_url: str) -> None:
    """Wherever the worker dies, the server sees one key, and no call at all once the result is recorded."""
    desk, clock = Desk(), ManualClock()
    desk.add("pay")

    def attempt(run: str) -> Any:
        async def body(session: ClientSession) -> Any:
            tools = await mcp_tools(session, version="v1", effects=AGAIN)
            return await site.play(provider, tools, run=run)

        with Runtime.open(sqlite_url, clock=clock) as rt:
            rt.budgets.put("acme", Budget(total_tokens=10_000_000))
            site = Site(rt, clock, desk)
            return site.within(body)

    provider = Site.asking(cast(Any, None), ("pay", {"n": 1}))
    points = [point for point in crash_points(lambda: attempt("dry")) if point.name != "commit:before"]
    assert len(points) > 6
    for point in points:
        desk.log.clear()
        with point.crash():
            attempt(str(point))
        clock.advance(LEASE_S)
        played = attempt(str(point))
        completed = played.result is None and played.error is None
        assert completed or played.outputs == ["ok"], point
        assert len(set(desk.keys)) == 1
        assert len(desk.log) <= 2
