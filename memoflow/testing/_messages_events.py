"""The events of a streamed message, in the order and shape of Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memoflow.testing._dialect import Event
from memoflow.testing._items import Item
from memoflow.testing._messages_form import Block
from memoflow.testing._tokens import pieces

__all__ = ["ENDING", "message_events"]

# How many of the last events tell how a message ended: message_delta and message_stop.
ENDING = 2
_IN_DELTA = (
    *("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"),
    *("output_tokens_details", "server_tool_use"),
)
_USES = ("tool_use", "server_tool_use", "mcp_tool_use")
_PLACEHOLDER = 1


def message_events(
    message: Mapping[str, Any], blocks: Sequence[Block], begun: Mapping[str, Any] | None
) -> tuple[Event, ...]:
    """All events of a message.

    Args:
        message: what the reply would be without streaming.
        blocks: its content.
        begun: the usage it has from the start; the output it reports there is a placeholder.
    """
    return tuple(_events(message, blocks, begun))


def _events(
    message: Mapping[str, Any], blocks: Sequence[Block], begun: Mapping[str, Any] | None
) -> Iterator[Event]:
    first = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "stop_details": None}
    first["usage"] = None if begun is None else {**begun, "output_tokens": _PLACEHOLDER}
    yield {"type": "message_start", "message": first}
    for index, block in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": _begun(block.content)}
        if index == 0:
            yield {"type": "ping"}
        for delta in _deltas(block):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
        if begun is not None and str(block.content["type"]).endswith("_tool_result"):
            # After a server tool the counts so far come once in between.
            so_far = min(_PLACEHOLDER + index, begun["output_tokens"])
            yield _message_delta({}, {**begun, "output_tokens": so_far})
    yield _message_delta(message, message.get("usage"), told="usage" in message)
    yield {"type": "message_stop"}


def _message_delta(ended: Mapping[str, Any], usage: Any, *, told: bool = True) -> Event:
    delta = {key: ended.get(key) for key in ("stop_reason", "stop_sequence", "stop_details")}
    counts = {"usage": _cumulative(usage)} if told else {}
    return {"type": "message_delta", "delta": delta, **counts}


def _cumulative(usage: Any) -> Any:
    if not isinstance(usage, Mapping):
        return usage
    return {key: usage[key] for key in _IN_DELTA if key in usage}


def _begun(block: Item) -> Item:
    kind = block["type"]
    if kind == "text":
        begun = {**block, "text": ""}
        return {**begun, "citations": []} if block.get("citations") else begun
    if kind == "thinking":
        return {**block, "thinking": "", "signature": ""}
    return {**block, "input": {}} if kind in _USES else dict(block)


def _deltas(block: Block) -> Iterator[Event]:
    content = block.content
    kind = content["type"]
    if kind == "text":
        for piece in pieces(content["text"]):
            yield {"type": "text_delta", "text": piece}
        for citation in content.get("citations") or ():
            yield {"type": "citations_delta", "citation": citation}
    elif kind == "thinking":
        for piece in pieces(content["thinking"]):
            yield {"type": "thinking_delta", "thinking": piece}
        yield {"type": "signature_delta", "signature": content["signature"]}
    elif kind in _USES:
        yield {"type": "input_json_delta", "partial_json": ""}
        for piece in pieces(block.spelled or ""):
            yield {"type": "input_json_delta", "partial_json": piece}
