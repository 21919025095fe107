"""Bodies and streams of the Messages API for tests, in the shape the SDK documents."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from anthropic.lib.streaming._messages import accumulate_event
from hypothesis import strategies as st

from memoflow.providers.anthropic_messages import AnthropicMessagesCodec
from memoflow.providers.base import Reply
from memoflow.providers.sse import SSEDecoder, event_json

CODEC = AnthropicMessagesCodec()

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["message", "tool_use", "toolu_1", "end_turn", "text", "", "text_delta", "input"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def encode(value: Any) -> bytes:
    """Bytes of a body."""
    return json.dumps(value).encode()


def call(id: Any = "toolu_1", name: Any = "inc", given: Any = None, **more: Any) -> dict[str, Any]:
    """A finished call."""
    return {"type": "tool_use", "id": id, "name": name, "input": {"n": 1} if given is None else given, **more}


def text(value: str = "hello", **more: Any) -> dict[str, Any]:
    """A text block."""
    return {"type": "text", "text": value, **more}


def thinking(value: str = "hmm", signature: str = "c2ln") -> dict[str, Any]:
    """A thinking block."""
    return {"type": "thinking", "thinking": value, "signature": signature}


def search(id: str = "srvtoolu_1", **more: Any) -> dict[str, Any]:
    """A tool that the provider ran."""
    return {"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "q"}, **more}


def search_result(id: str = "srvtoolu_1") -> dict[str, Any]:
    """What it found."""
    found = {"type": "web_search_result", "title": "t", "url": "https://example.org", "page_age": None}
    content = [{**found, "encrypted_content": "RQ=="}]
    return {"type": "web_search_tool_result", "tool_use_id": id, "content": content}


def usage(given: Any = 10, made: Any = 5, **more: Any) -> dict[str, Any]:
    """A usage."""
    cache = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    return {"input_tokens": given, "output_tokens": made, **cache, "service_tier": "standard", **more}


def message(*content: Any, **more: Any) -> dict[str, Any]:
    """A whole message with these blocks."""
    calls = any(isinstance(block, dict) and block.get("type") == "tool_use" for block in content)
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": list(content),
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": usage(),
        **more,
    }


def read(*content: Any, **more: Any) -> Reply:
    """Read such a message from its bytes."""
    return CODEC.read(encode(message(*content, **more)))


def start(**more: Any) -> dict[str, Any]:
    """The first event of a stream."""
    body = message(usage=usage(10, 1), stop_reason=None)
    return {"type": "message_start", "message": {**body, **more}}


def opened(index: Any, block: Any) -> dict[str, Any]:
    """A block begins."""
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: Any, kind: Any, **fields: Any) -> dict[str, Any]:
    """A block goes on."""
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def closed(index: Any) -> dict[str, Any]:
    """A block ends."""
    return {"type": "content_block_stop", "index": index}


def ending(reason: Any = "tool_use", made: Any = 5, **more: Any) -> list[dict[str, Any]]:
    """The last two events."""
    late = {"stop_reason": reason, "stop_sequence": None}
    return [
        {"type": "message_delta", "delta": late, "usage": {"output_tokens": made, **more}},
        {"type": "message_stop"},
    ]


def streamed_call(index: int, *pieces: str, id: Any = "toolu_1", name: Any = "inc") -> list[dict[str, Any]]:
    """A call whose input comes in pieces."""
    block = {"type": "tool_use", "id": id, "name": name, "input": {}}
    deltas = (delta(index, "input_json_delta", partial_json=piece) for piece in pieces)
    return [opened(index, block), *deltas, closed(index)]


def streamed_text(index: int, *pieces: str) -> list[dict[str, Any]]:
    """A text that comes in pieces."""
    deltas = (delta(index, "text_delta", text=piece) for piece in pieces)
    return [opened(index, text("")), *deltas, closed(index)]


def feed(*events: Any) -> Any:
    """Assemble a stream."""
    assembler = CODEC.assembler()
    for event in events:
        assembler.feed(event)
    return assembler


def final(*events: Any) -> Reply:
    """The reply of a stream that has one; restored from its record it is the same."""
    reply = feed(*events).reply()
    assert reply is not None
    assert CODEC.read(json.dumps(reply.body).encode()) == reply
    return reply


def wire(events: Iterable[dict[str, Any]]) -> bytes:
    """The bytes of a stream of events."""
    return b"".join(b"event: %s\ndata: %s\n\n" % (event["type"].encode(), encode(event)) for event in events)


def from_wire(stream: bytes, cuts: Iterable[int]) -> Reply | None:
    """Assemble a stream of bytes that arrives cut at these places."""
    assembler = CODEC.assembler()
    decoder = SSEDecoder(skipped=assembler.skipped)
    for chunk in chunks(stream, cuts):
        for sse in decoder.feed(chunk):
            if (event := event_json(sse)) is not None:
                assembler.feed(event)
    return assembler.reply()


def chunks(stream: bytes, cuts: Iterable[int]) -> Iterator[bytes]:
    """A stream cut at these places."""
    places = [0, *sorted({cut % (len(stream) + 1) for cut in cuts}), len(stream)]
    yield from (stream[a:b] for a, b in pairwise(places))


def by_the_sdk(events: Iterable[dict[str, Any]]) -> Any:
    """The message the SDK makes of these events."""
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for event in events:
        if event["type"] != "ping":
            snapshot = accumulate_event(
                event=json.loads(json.dumps(event)), current_snapshot=snapshot, json_bufs=buffers
            )
    return snapshot


def without_nulls(value: Any) -> Any:
    """A JSON value without the fields that say nothing."""
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return value
