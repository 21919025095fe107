"""What the readers of calls give: calls as the model made them, and results that came with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from memoflow.canonical import StrictJSONError, parse_strict
from memoflow.inspection.events import MAX_EVENT_BYTES, ManifestSeen, ToolCall, ToolResult

__all__ = ["API", "AssembledCall", "CallReader", "Found", "Step", "as_text", "as_word"]

API = Literal["chat", "messages", "responses"]

Found: TypeAlias = ToolResult | ManifestSeen
"""What comes from outside: what a tool returned, or how a server describes its tools."""


@dataclass(frozen=True, slots=True)
class AssembledCall:
    """One call, put together.

    Attributes:
        name: the tool, with its namespace or server in front where it has one.
        arguments: the text that the model wrote.
        call_id: the provider's id of it, if it has one.
        freeform: whether the text is no JSON by intention.
        ran: whether the provider has run it already, so that nothing can be stopped.
        complete: whether it is whole. What is not is never given to anybody who would run it.
    """

    name: str
    arguments: str = field(repr=False)
    call_id: str | None = None
    freeform: bool = False
    ran: bool = False
    complete: bool = True

    def event(self) -> ToolCall:
        """The call as it is judged; what is no JSON is judged as the text that it is."""
        if self.freeform:
            return ToolCall(self.name, self.arguments)
        text = self.arguments.strip()
        if not text:
            return ToolCall(self.name, {}, self.arguments)
        try:
            return ToolCall(self.name, parse_strict(text, max_bytes=MAX_EVENT_BYTES), self.arguments)
        except StrictJSONError:
            return ToolCall(self.name, _loosely(text), self.arguments)

    @property
    def reads_alike(self) -> tuple[str, str, bool]:
        """What two assemblies of one call agree in."""
        return self.name, self.arguments, self.freeform


def _loosely(text: str) -> Any:
    """The arguments as a lenient parser reads them, since whoever runs them may have one."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


@dataclass(frozen=True, slots=True)
class Step:
    """What one event of a stream came to.

    Attributes:
        carries: whether it holds a part of a call that can still be stopped.
        calls: the calls that are whole now, in all ways they can be put together.
        results: what from outside the provider put into the reply.
        problem: why clients may put the calls together differently, or cannot at all, as a code.
        ended: whether the reply is over.
    """

    carries: bool = False
    calls: tuple[AssembledCall, ...] = ()
    results: tuple[Found, ...] = ()
    problem: str | None = None
    ended: bool = False


class CallReader(Protocol):
    """Reads the calls out of one stream of events."""

    @property
    def is_open(self) -> bool:
        """Whether a call has begun that can still be stopped and is not whole."""

    def feed(self, event: Mapping[str, Any]) -> Step:
        """Take the next event."""


def as_word(value: Any) -> str:
    """A value that is to be one of some words, such as a type; nothing if it is no text."""
    return value if isinstance(value, str) else ""


def as_text(value: Any) -> str:
    """A part of an event as one text: a text itself, the texts in a list of blocks, else JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(filter(None, map(_block_text, value)))
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _block_text(block: Any) -> str:
    if isinstance(block, str):
        return block
    if not isinstance(block, dict):
        return ""
    for name in ("text", "content", "output"):
        inner = block.get(name)
        if isinstance(inner, str | list):
            return as_text(inner)
    # Whatever else it is, what stands in it was read by the model.
    return json.dumps(block, ensure_ascii=False)
