"""Checked by mypy and pyright, never run: MCP tools are tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_type

from mcp import Client, ClientSession, types

from memoflow import Tool
from memoflow.mcp import mcp_tool, mcp_tools
from memoflow.tools import EffectClass


async def make(client: Client, session: ClientSession, served: types.Tool) -> None:
    one = mcp_tool(session, served, version="v1", effect="read_only", name="n", timeout=2.0)
    assert_type(one, Tool[..., Any])
    effects: Mapping[str, EffectClass] = {"refund": "at_most_once"}
    assert_type(await mcp_tools(client.session, version="v1", effects=effects), list[Tool[..., Any]])
    mcp_tool(session, served, version="v1", effect="sometimes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    mcp_tool(session, served, version="v1")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
