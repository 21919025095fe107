"""Content blocks of the Anthropic Messages API: of a reply, and of the message that answers it."""

from __future__ import annotations

from collections.abc import Iterable

from memoflow.canonical import JSON
from memoflow.causal._frozen import freeze
from memoflow.causal.adapters.seen import Seen, SeenCall, SeenResult, content, parts
from memoflow.causal.envelopes import CLAUDE_MESSAGES

__all__ = ["read"]


def read(blocks: Iterable[object], *, stop_reason: str | None = None) -> Seen:
    """The calls and results among blocks, in order: objects of the SDK, or plain JSON.

    Tools that the provider executed are calls too (``server_tool_use``, ``mcp_tool_use``); their results
    stand in blocks of their own. Other blocks are passed over.

    Args:
        blocks: of the reply, followed by those of the answer.
        stop_reason: why the model stopped; kept in the envelopes of the calls.

    Raises:
        InvalidRequest: a block has no JSON form.
    """
    calls: list[SeenCall] = []
    results: list[SeenResult] = []
    for block in parts(blocks):
        kind = block.get("type")
        if not isinstance(kind, str):
            continue
        if kind == "tool_use" or kind.endswith("_tool_use"):
            calls.append(_call(block, kind, stop_reason))
        elif kind.endswith("tool_result"):
            results.append(_result(block, kind))
    return Seen(tuple(calls), tuple(results))


def _call(block: dict[str, JSON], kind: str, stop_reason: str | None) -> SeenCall:
    hosted = kind != "tool_use"
    return SeenCall(
        shape=CLAUDE_MESSAGES,
        kind=kind,
        call_id=_text(block.get("id")),
        name=_text(block.get("name")),
        arguments=freeze(block.get("input")),
        # Each server tool has a result type of its own.
        result_kind=None if hosted else "tool_result",
        hosted=hosted,
        stop_reason=stop_reason,
    )


def _result(block: dict[str, JSON], kind: str) -> SeenResult:
    output = block.get("content")
    failed = block.get("is_error") is True or (
        isinstance(output, dict) and str(output.get("type")).endswith("_error")
    )
    return SeenResult(kind, _text(block.get("tool_use_id")), content(output), failed)


def _text(value: JSON) -> str | None:
    return value if isinstance(value, str) and value.strip() else None
