"""Tools that write down themselves what they did, and sometimes break before or after it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

from certification.crash.lines import Lines
from certification.crash.plan import EFFECTS, Plan
from memoflow import Tool, ToolCall, ToolKnownFailure, faults, tool

__all__ = ["ToolBroke", "make_tools"]

SLOW_S = 0.3


class ToolBroke(Exception):
    """What a tool raises that does not know what it did."""


def make_tools(plan: Plan, receiver: Lines, *, is_async: bool) -> list[Tool[..., Any]]:
    """One tool of each effect class; what they do is appended to ``receiver``."""
    return [_make(plan, receiver, name, is_async) for name in EFFECTS]


def _make(plan: Plan, receiver: Lines, name: str, is_async: bool) -> Tool[..., Any]:
    def act(item: str, *, call: ToolCall) -> dict[str, str]:
        mishap = plan.mishap(item, call.attempt)
        if mishap == "slow":
            time.sleep(SLOW_S)
        return _act(receiver, name, item, call, mishap)

    async def act_async(item: str, *, call: ToolCall) -> dict[str, str]:
        mishap = plan.mishap(item, call.attempt)
        if mishap == "slow":
            await asyncio.sleep(SLOW_S)
        return _act(receiver, name, item, call, mishap)

    chosen: Callable[..., Any] = act_async if is_async else act
    return tool(chosen, name=name, version="v1", effect=EFFECTS[name])


def _act(receiver: Lines, name: str, item: str, call: ToolCall, mishap: str) -> dict[str, str]:
    faults.point("tool:entered")
    if mishap == "refuses":
        raise ToolKnownFailure("Nothing of this kind is in stock.")
    if mishap == "breaks_before":
        raise ToolBroke
    nonce = os.urandom(6).hex()
    receiver.append(item=item, tool=name, effect=EFFECTS[name], key=call.idempotency_key, nonce=nonce)
    faults.point("tool:done")
    if mishap == "breaks_after":
        raise ToolBroke
    return {"item": item, "nonce": nonce}
