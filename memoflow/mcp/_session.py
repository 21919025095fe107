"""One call over a client session, from whatever thread and event loop the activity runs in."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from mcp import Client, ClientSession, MCPError, types
from pydantic import TypeAdapter, ValidationError

from memoflow.errors import ConfigurationError, ToolNotAnswered, ToolNotStarted

__all__ = ["Link"]

T = TypeVar("T")

LOOP_GRACE_S: Final = 5.0
"""How long the event loop of a session may take to show that it runs, before a call is given up unsent."""

TIMEOUT_GRACE_S: Final = 1.0

_Answer: Final[TypeAdapter[types.CallToolResult | types.InputRequiredResult]] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)


@dataclass(frozen=True, slots=True)
class Link:
    """A session and the event loop it lives in."""

    session: ClientSession
    loop: asyncio.AbstractEventLoop = field(repr=False)

    @classmethod
    def here(cls, session: object) -> Link:
        """The link of a session of the running event loop.

        Raises:
            ConfigurationError: it is no session, or no event loop runs.
        """
        if not isinstance(session, ClientSession):
            hint = " Pass its .session." if isinstance(session, Client) else ""
            raise ConfigurationError(
                f"MCP tools need a session of type mcp.ClientSession, not {type(session).__name__}.{hint}"
            )
        try:
            return cls(session, asyncio.get_running_loop())
        except RuntimeError:
            raise ConfigurationError(
                "MCP tools are made in the asyncio event loop of their session. Make them where the session "
                "was opened; with anyio's blocking portal that is portal.call(mcp_tools, …)."
            ) from None

    async def call(
        self, tool: str, name: str, arguments: dict[str, Any], meta: dict[str, Any], timeout: float | None
    ) -> types.CallToolResult:
        """Send one call and wait for its result.

        Args:
            tool: how errors call it.
            name: as the server calls it.
            arguments: checked arguments.
            meta: the call's ``_meta``.
            timeout: seconds after which nobody waits for it any more.

        Raises:
            ToolNotStarted: nothing was sent.
            ToolNotAnswered: it was sent, or may have been, and no result came.
        """
        # Not the session's `call_tool`: after the tool ran that asks for the list of tools and checks the
        # result, and where one of them fails, the result is lost and the error's text shows it.
        params = types.CallToolRequestParams(name=name, arguments=arguments, _meta=meta)
        request = types.CallToolRequest(params=params)

        # The execution has ended by then; in a thread, this ends what it waited for.
        limit = None if timeout is None else timeout + TIMEOUT_GRACE_S

        async def send() -> types.CallToolResult:
            if self.session.protocol_version is None:
                raise ToolNotStarted(
                    f"Tool {tool!r} was not run: its MCP session is not initialised. Enter the session and "
                    "await session.initialize() first."
                )
            try:
                answer = await self.session.send_request(request, _Answer, limit)
            except MCPError as error:
                # No code proves that nothing happened: servers send any of them from within their tools.
                raise ToolNotAnswered(
                    tool=tool, problem="its session answered with an error", code=error.code
                ) from None
            except ValidationError:
                raise ToolNotAnswered(tool=tool, problem="its server sent what is no result") from None
            if isinstance(answer, types.InputRequiredResult):
                raise ToolNotAnswered(tool=tool, problem="its server asked for input, which nobody can give")
            return answer

        return await self._in_its_loop(tool, send)

    async def _in_its_loop(self, tool: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if asyncio.get_running_loop() is self.loop:
            return await work()
        await self._check_loop(tool)
        coroutine = work()
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        except RuntimeError:
            coroutine.close()
            raise _not_running(tool) from None
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise ToolNotAnswered(tool=tool, problem="the event loop of its session ended") from None

    async def _check_loop(self, tool: str) -> None:
        """A blocking activity on the session's own loop would wait for itself; see that before sending."""
        alive: concurrent.futures.Future[None] = concurrent.futures.Future()

        def show() -> None:
            if alive.set_running_or_notify_cancel():
                alive.set_result(None)

        waiting: Awaitable[None] = asyncio.wrap_future(alive)
        try:
            self.loop.call_soon_threadsafe(show)
            await asyncio.wait_for(waiting, LOOP_GRACE_S)
        except (RuntimeError, TimeoutError):
            raise _not_running(tool) from None


def _not_running(tool: str) -> ToolNotStarted:
    return ToolNotStarted(
        f"Tool {tool!r} was not run: the event loop of its MCP session is closed, or blocked. Use an async "
        "activity, or run a blocking one in another thread than the session's loop: with asyncio.to_thread, "
        "or with the session in anyio.from_thread.start_blocking_portal()."
    )
