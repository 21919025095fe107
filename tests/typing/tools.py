"""Checked by mypy and pyright, never run: a tool keeps the signature of its function."""

from __future__ import annotations

from typing import Any, assert_type

from memoflow.tools import (
    BoundArguments,
    EncodedResult,
    Refusal,
    Tool,
    ToolCall,
    Toolset,
    encode_result,
    tool,
)


@tool(version="v1", effect="read_only")
def weather(city: str, days: int = 1) -> dict[str, int]:
    return {city: days}


@tool(version="v1", effect="idempotent", timeout=5.0, approval="human")
async def refund(order: str, *, call: ToolCall) -> bool:
    return bool(order) and call.attempt == 1


def plain(x: int) -> str:
    return str(x)


async def keeps_signatures(call: ToolCall) -> None:
    assert_type(weather("Rome"), dict[str, int])
    assert_type(weather(city="Rome", days=2), dict[str, int])
    assert_type(await refund("o", call=call), bool)
    assert_type(tool(plain, version="v1", effect="at_most_once")(1), str)
    tool(plain, version="v1", effect="read_only", approval="robot")  # type: ignore[call-overload]  # pyright: ignore
    weather(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await refund("o")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def needs_version_and_effect() -> None:
    tool(plain, version="v1")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    tool(plain, effect="read_only")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    tool(plain, version="v1", effect="safe")  # type: ignore[call-overload]  # pyright: ignore


def of_one_call() -> None:
    tools = Toolset([weather, refund])
    assert_type(tools.lookup(None, "weather"), Tool[..., Any] | None)
    assert_type(weather.bind("{}"), BoundArguments | Refusal)
    assert_type(encode_result(1), EncodedResult)
