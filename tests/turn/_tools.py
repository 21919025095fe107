"""Tools for scenarios, each a fresh set that notes what it did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from memoflow import Tool, ToolCall, ToolKnownFailure, tool
from memoflow.tools import ApprovalMode, EffectClass

__all__ = ["Bench"]

AnyTool = Tool[..., Any]


@dataclass
class Bench:
    """Tools of one scenario and a log of their executions: (name, argument, idempotency key, attempt)."""

    log: list[tuple[str, Any, str, int]] = field(default_factory=list)

    @property
    def ran(self) -> list[tuple[str, Any]]:
        """Names and arguments of all executions, in order."""
        return [(name, argument) for name, argument, _, _ in self.log]

    @property
    def keys(self) -> list[str]:
        """Idempotency keys of all executions, in order."""
        return [key for _, _, key, _ in self.log]

    def note(self, name: str, argument: Any, call: ToolCall) -> None:
        """Log an execution."""
        self.log.append((name, argument, call.idempotency_key, call.attempt))

    def make(
        self,
        name: str,
        does: Callable[[int], Any] = lambda n: {"n": n},
        *,
        effect: EffectClass = "at_most_once",
        version: str = "v1",
        namespace: str | None = None,
        timeout: float | None = None,
        approval: ApprovalMode | None = None,
    ) -> AnyTool:
        """A plain tool of one integer ``n``."""

        @tool(
            version=version,
            effect=effect,
            name=name,
            namespace=namespace,
            timeout=timeout,
            approval=approval,
        )
        def made(n: int, *, call: ToolCall) -> Any:
            """Do something with a number."""
            self.note(name, n, call)
            return does(n)

        return made

    def make_async(
        self,
        name: str,
        does: Callable[[int], Any] = lambda n: {"n": n},
        *,
        effect: EffectClass = "at_most_once",
        timeout: float | None = None,
    ) -> AnyTool:
        """An ``async def`` tool of one integer ``n``; what it does may be a coroutine function."""

        @tool(version="v1", effect=effect, name=name, timeout=timeout)
        async def made(n: int, *, call: ToolCall) -> Any:
            """Do something with a number, not blocking."""
            self.note(name, n, call)
            value = does(n)
            return await value if hasattr(value, "__await__") else value

        return made

    def asking(self, name: str = "pay", *, effect: EffectClass = "at_most_once", **options: Any) -> AnyTool:
        """A plain tool whose calls a person has to allow."""
        return self.make(name, effect=effect, approval="human", **options)

    def custom(self, name: str = "patch", *, approval: ApprovalMode | None = None) -> AnyTool:
        """A freeform tool."""

        @tool(version="v1", effect="idempotent", name=name, custom=True, approval=approval)
        def made(text: str, *, call: ToolCall) -> str:
            """Apply a patch."""
            self.note(name, text, call)
            return f"applied {len(text)} characters"

        return made

    def failing(self, name: str, error: BaseException, *, effect: EffectClass = "at_most_once") -> AnyTool:
        """A tool that raises."""

        def fail(n: int) -> Any:
            raise error

        return self.make(name, fail, effect=effect)

    def declining(self, name: str = "decline") -> AnyTool:
        """A tool that says that nothing happened."""
        return self.failing(name, ToolKnownFailure("No such order."))
