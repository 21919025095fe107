"""Calls in replies of the Messages API, streamed and whole.

The input of a streamed call is text until its block ends, and need not be JSON even then. The official SDK
shows an empty input for a block that was cut; what was written is what is judged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from memoflow.inspection.calls.records import AssembledCall, Step, as_text, as_word
from memoflow.inspection.events import Source, ToolResult

__all__ = ["MessagesCalls", "message_calls", "message_results"]

_CLIENT: Final = frozenset({"tool_use"})
_SERVER: Final = frozenset({"mcp_tool_use", "server_tool_use"})
_DELTA: Final = "input_json_delta"


class _Block:
    """One block of a stream while it grows."""

    __slots__ = ("block", "is_open", "pieces")

    def __init__(self, block: dict[str, Any]) -> None:
        self.block = block
        self.pieces: list[str] = []
        self.is_open = True

    @property
    def kind(self) -> str:
        return as_word(self.block.get("type"))

    def calls(self) -> Iterator[AssembledCall]:
        """The call in all ways it was said: at the start, and in deltas."""
        text, given = "".join(self.pieces), self.block.get("input")
        if given or not text:
            yield _call(self.block)
        if text and not (given and _parsed(text) == given):
            yield _call(self.block, text)


class MessagesCalls:
    """Reads the events of one stream."""

    __slots__ = ("_blocks", "_open")

    def __init__(self) -> None:
        self._blocks: dict[object, _Block] = {}
        self._open: set[object] = set()

    @property
    def is_open(self) -> bool:
        """Whether a call of the client's has no end yet."""
        return bool(self._open)

    def feed(self, event: Mapping[str, Any]) -> Step:
        """Take the next event."""
        kind = event.get("type")
        if kind == "content_block_start":
            return self._start(event)
        if kind == "content_block_delta":
            return self._delta(event)
        if kind == "content_block_stop":
            return self._stop(event)
        if kind == "message_start":
            return _begun(event.get("message"))
        return Step(ended=kind in ("message_stop", "error"))

    def _start(self, event: Mapping[str, Any]) -> Step:
        block, index = event.get("content_block"), event.get("index")
        if not isinstance(block, dict) or type(index) is not int:
            return Step(carries=True, problem="SHAPE")
        problem = "BLOCK_REPEATED" if index in self._blocks else None
        self._blocks[index] = fresh = _Block(dict(block))
        (self._open.add if fresh.kind in _CLIENT else self._open.discard)(index)
        return Step(fresh.kind in _CLIENT, results=tuple(_results(block)), problem=problem)

    def _delta(self, event: Mapping[str, Any]) -> Step:
        delta, block = event.get("delta"), self._block(event)
        kind = as_word(delta.get("type")) if isinstance(delta, dict) else ""
        if block is None or not block.is_open:
            return Step(carries=True, problem="STRAY_DELTA")
        if block.kind not in _CLIENT | _SERVER:
            # Clients put the input of whatever block together.
            return Step(kind == _DELTA, problem="STRAY_DELTA" if kind == _DELTA else None)
        if not isinstance(delta, dict) or kind != _DELTA:
            return Step(carries=True, problem="SHAPE")
        block.pieces.append(as_text(delta.get("partial_json")))
        return Step(block.kind in _CLIENT)

    def _block(self, event: Mapping[str, Any]) -> _Block | None:
        index = event.get("index")
        return self._blocks.get(index) if isinstance(index, int | float) else None

    def _stop(self, event: Mapping[str, Any]) -> Step:
        block = self._block(event)
        if block is None or not block.is_open:
            return Step(problem="STRAY_STOP")
        block.is_open = False
        self._open.discard(event.get("index"))
        if block.kind not in _CLIENT | _SERVER:
            return Step()
        calls = tuple(block.calls())
        return Step(block.kind in _CLIENT, calls, problem="AMBIGUOUS_CALLS" if len(calls) > 1 else None)


def message_calls(body: Mapping[str, Any]) -> Iterator[AssembledCall]:
    """The calls of a whole reply."""
    for block in _blocks(body):
        if as_word(block.get("type")) in _CLIENT | _SERVER:
            yield _call(block)


def message_results(body: Mapping[str, Any]) -> Iterator[ToolResult]:
    """The texts from outside in a whole reply, in order."""
    for block in _blocks(body):
        yield from _results(block)


def _begun(message: Any) -> Step:
    """Some servers begin a message with content."""
    if not isinstance(message, dict):
        return Step()
    calls = tuple(message_calls(message))
    results = tuple(message_results(message))
    return Step(any(not call.ran for call in calls), calls, results, "BEGAN_WITH_CALLS" if calls else None)


def _blocks(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = body.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _call(block: Mapping[str, Any], text: str | None = None) -> AssembledCall:
    name, server, call_id = block.get("name"), block.get("server_name"), block.get("id")
    written = json.dumps(block.get("input") or {}, ensure_ascii=False) if text is None else text
    return AssembledCall(
        ".".join(part for part in (server, name) if isinstance(part, str) and part),
        written,
        call_id if isinstance(call_id, str) else None,
        ran=as_word(block.get("type")) in _SERVER,
        # A text that was cut is no JSON object.
        complete=isinstance(_parsed(written), dict),
    )


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _results(block: Mapping[str, Any]) -> Iterator[ToolResult]:
    kind = as_word(block.get("type"))
    if kind.endswith("_result") and (text := as_text(block.get("content"))):
        yield ToolResult(kind.removesuffix("_tool_result"), text, Source("mcp", kind))
