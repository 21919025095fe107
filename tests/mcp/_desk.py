"""An MCP server for tests, whose tools are plain functions of their arguments, and a memoflow beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mcp import Client, ClientSession, types
from mcp.server.lowlevel import Server

from memoflow import Budget, Runtime, Tool
from memoflow.ledger.queries import EffectInfo, Filter, list_effects
from memoflow.ledger.verify import verify
from memoflow.openai import AsyncOpenAIResponses, OpenAIResponses
from memoflow.testing import SimulatedProvider, call, calls, text
from memoflow.testing.runtime import ManualClock, temporary_runtime

__all__ = ["NUMBER", "Desk", "Site", "said", "site"]

NUMBER: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
ROUND = Budget(total_tokens=4_000, tool_calls=8)

Answers = Callable[[dict[str, Any]], Any]
AnyTool = Tool[..., Any]


def said(*texts: str, **fields: Any) -> types.CallToolResult:
    """A result of text blocks."""
    content: list[Any] = [types.TextContent(text=one) for one in texts]
    return types.CallToolResult(content=content, **fields)


class Desk:
    """A server and a log of the calls it got: (name, arguments, meta).

    ``page`` tools are listed at a time.
    """

    def __init__(self, *, page: int = 100) -> None:
        self.log: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
        self.tools: dict[str, types.Tool] = {}
        self._does: dict[str, Answers] = {}
        self._page = page
        self.server: Server[Any] = Server("desk", on_list_tools=self._list, on_call_tool=self._call)

    def add(
        self, name: str, does: Answers = lambda given: said("ok"), schema: Any = NUMBER, **fields: Any
    ) -> types.Tool:
        """Have a tool; what it does is given the arguments, and may return an awaitable."""
        self.tools[name] = types.Tool(name=name, input_schema=schema, **fields)
        self._does[name] = does
        return self.tools[name]

    @property
    def ran(self) -> list[tuple[str, dict[str, Any]]]:
        """Names and arguments of all calls."""
        return [(name, arguments) for name, arguments, _ in self.log]

    @property
    def keys(self) -> list[str]:
        """Idempotency keys of all calls."""
        return [meta["memoflow/idempotencyKey"] for _, _, meta in self.log]

    async def _list(self, ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        start = 0 if params is None or params.cursor is None else int(params.cursor)
        shown = list(self.tools.values())
        after = start + self._page
        return types.ListToolsResult(
            tools=shown[start:after], next_cursor=str(after) if after < len(shown) else None
        )

    async def _call(self, ctx: Any, params: types.CallToolRequestParams) -> Any:
        self.log.append((params.name, params.arguments or {}, dict(params.meta or {})))
        answer = self._does[params.name](params.arguments or {})
        return await answer if hasattr(answer, "__await__") else answer


@dataclass
class Played:
    """How one attempt ended."""

    provider: SimulatedProvider
    result: Any = None
    error: BaseException | None = None

    @property
    def outputs(self) -> list[str]:
        """What the model was told about its calls."""
        if self.error is not None:
            raise self.error
        return [one.output for one in self.result.tool_results]


@dataclass
class Site:
    """A runtime on a temporary database, and attempts at one call."""

    rt: Runtime
    clock: ManualClock
    desk: Desk = field(default_factory=Desk)

    def asking(self, *asked: tuple[str, Any]) -> SimulatedProvider:
        """A model that asks for these calls in one reply, and then says that it is done."""

        def reply(request: Any) -> Any:
            return (
                text("Done.")
                if request.answered_rounds
                else calls(*(call(name, given) for name, given in asked))
            )

        return SimulatedProvider(reply)

    async def play(
        self, provider: SimulatedProvider, tools: list[AnyTool], *, run: str = "r", check: bool = True
    ) -> Played:
        """One attempt in an async activity."""
        played = Played(provider)
        llm = AsyncOpenAIResponses(provider.async_client())

        @self.rt.activity(version="v1", name="case", budget="acme")
        async def work() -> None:
            played.result = await llm.run_with_tools(*self._asked(tools), **self._options())

        try:
            await work.run(workflow_id="w", run_id=run)
        except Exception as error:
            played.error = error
        return self._checked(played) if check else played

    def play_blocking(self, provider: SimulatedProvider, tools: list[AnyTool]) -> Played:
        """One attempt in a blocking activity."""
        played = Played(provider)
        llm = OpenAIResponses(provider.client())

        @self.rt.activity(version="v1", name="case", budget="acme")
        def work() -> None:
            played.result = llm.run_with_tools(*self._asked(tools), **self._options())

        try:
            work.run(workflow_id="w", run_id="r")
        except Exception as error:
            played.error = error
        return self._checked(played)

    def within(
        self, body: Callable[[ClientSession], Awaitable[Any]], *, mode: Any = "auto", **options: Any
    ) -> Any:
        """Run a coroutine with a session of the desk. Raises outside of it, where no group is put around."""

        async def run() -> Any:
            async with Client(self.desk.server, mode=mode, **options) as client:
                try:
                    return await body(client.session), None
                except BaseException as error:
                    return None, error

        value, error = asyncio.run(run())
        if error is not None:
            raise error
        return value

    @property
    def effects(self) -> list[EffectInfo]:
        """Every effect, in the order in which they began."""
        page = self.rt.ledger.database.read(lambda c: list_effects(c, self.rt.namespace, Filter()))
        return sorted(page.items, key=lambda one: (one.execution, one.invocation_id, one.ordinal))

    @property
    def states(self) -> list[tuple[str, str | None]]:
        """State and reason of every effect."""
        return [(one.state, one.reason) for one in self.effects]

    def _asked(self, tools: list[AnyTool]) -> tuple[Any, Any]:
        return {"model": "gpt-5-mini", "input": "Do it."}, tools

    def _options(self) -> dict[str, Any]:
        return {"budget": ROUND, "continuation_budgets": [ROUND], "replay_key": "turn"}

    def _checked(self, played: Played) -> Played:
        assert self.rt.ledger.database.read(verify) == []
        return played


@contextmanager
def site() -> Iterator[Site]:
    """A site with an ample budget."""
    clock = ManualClock()
    with temporary_runtime(clock=clock) as runtime:
        runtime.budgets.put("acme", Budget(total_tokens=10_000_000))
        yield Site(runtime, clock)
