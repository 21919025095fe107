"""Events of a stream that ends in a recorded message, for what reads streams and was given a record.

Texts come in one delta each. A block of which the form is not the documented one comes whole at its start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from memoflow.providers._measuring import compact
from memoflow.providers._messages_blocks import RAW_INPUT
from memoflow.providers._reading import STREAM_PROBLEM
from memoflow.providers._request import has_type

__all__ = ["events_of"]

_AT_THE_END: Final = ("stop_reason", "stop_sequence", "stop_details", "container")
_CUMULATIVE: Final = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
    "output_tokens_details",
    "server_tool_use",
)
_TEXTS: Final = {
    "text": (("text", "text_delta"),),
    "thinking": (("thinking", "thinking_delta"), ("signature", "signature_delta")),
}
# The SDK puts the input of no other block together.
_INPUTS: Final = frozenset({"tool_use", "server_tool_use"})


def events_of(body: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """The events of a stream from which this message is put together."""
    late = {key: body[key] for key in _AT_THE_END if key in body}
    usage = body.get("usage")
    figures = usage if isinstance(usage, dict) else {}
    nothing: dict[str, Any] = dict.fromkeys(late)
    # The SDK writes the last figures into the first usage, so there is one, if an empty one.
    began = {**body, **nothing, "content": [], "usage": figures}
    # A note of memoflow's own, about a stream that contradicted itself.
    began.pop(STREAM_PROBLEM, None)
    content = body.get("content") or []
    return (
        {"type": "message_start", "message": began},
        *(event for index, block in enumerate(content) for event in _block_events(index, block)),
        {
            "type": "message_delta",
            "delta": late,
            "usage": {key: figures[key] for key in _CUMULATIVE if key in figures},
        },
        {"type": "message_stop"},
    )


def _block_events(index: int, block: Any) -> Iterator[dict[str, Any]]:
    start, deltas = _split(block) if has_type(block) else (block, [])
    yield {"type": "content_block_start", "index": index, "content_block": start}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _split(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it starts, and the deltas that make it whole."""
    kind, start = block["type"], dict(block)
    deltas: list[dict[str, Any]] = []
    for field, delta in _TEXTS.get(kind, ()):
        value = block.get(field)
        if isinstance(value, str) and value:
            start[field] = ""
            deltas.append({"type": delta, field: value})
    citations = block.get("citations")
    if kind == "text" and isinstance(citations, list) and all(isinstance(one, dict) for one in citations):
        start["citations"] = []
        deltas += [{"type": "citations_delta", "citation": citation} for citation in citations]
    given = block.get("input")
    if kind in _INPUTS and isinstance(given, dict) and given and RAW_INPUT not in block:
        start["input"] = {}
        deltas.append({"type": "input_json_delta", RAW_INPUT: compact(given)})
    return start, deltas
