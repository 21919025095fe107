"""Events for tests, and an inspector to judge them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from memoflow.inspection import (
    Decision,
    Event,
    Inspector,
    Session,
    Source,
    ToolCall,
    ToolResult,
)
from memoflow.inspection.events import Kind

__all__ = ["KEY", "MCP", "Told", "bash", "judged", "result"]

KEY = b"k" * 32
MCP = Source("mcp", "pages")


def result(text: str, tool: str = "get_page", source: Source = MCP) -> ToolResult:
    """A result from outside."""
    return ToolResult(tool, text, source)


def bash(command: str) -> ToolCall:
    """A call of a shell."""
    return ToolCall("bash", {"command": command})


class Told:
    """A session that numbers its events itself."""

    def __init__(self, inspector: Inspector | None = None, snapshot: Mapping[str, Any] | None = None) -> None:
        self.inspector = Inspector(key=KEY) if inspector is None else inspector
        self.session: Session = self.inspector.session(snapshot)
        self._numbers = count(1)

    def __call__(self, *kinds: Kind) -> Decision:
        """Tell what happens; returns the decision on the last."""
        decisions = [self.session.judge(Event("s", next(self._numbers), kind)) for kind in kinds]
        return decisions[-1]


def judged(*kinds: Kind, inspector: Inspector | None = None) -> Decision:
    """The decision on the last of the events of a fresh session."""
    return Told(inspector)(*kinds)
