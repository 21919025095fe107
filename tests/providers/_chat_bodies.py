"""Bodies and chunks of chat completions for tests, in the shape the SDK documents."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from memoflow.providers._chat_stream import ChatAssembler
from memoflow.providers.base import Reply
from memoflow.providers.openai_chat import OpenAIChatCodec
from memoflow.providers.sse import SSEDecoder, event_json

CODEC = OpenAIChatCodec()


def function_call(
    call_id: Any = "call_1", name: Any = "inc", arguments: Any = '{"n": 1}', **more: Any
) -> dict[str, Any]:
    """A call of a function."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def custom_call(
    call_id: Any = "call_9", name: Any = "patch", text: Any = "*** begin", **more: Any
) -> dict[str, Any]:
    """A freeform call."""
    return {"id": call_id, "type": "custom", "custom": {"name": name, "input": text}, **more}


def message(text: Any = "hello", *calls: Any, **more: Any) -> dict[str, Any]:
    """An assistant message."""
    body = {"role": "assistant", "content": text, "refusal": None}
    return {**body, **({"tool_calls": list(calls)} if calls else {}), **more}


def choice(said: Any = None, end: Any = "stop", index: Any = 0, **more: Any) -> dict[str, Any]:
    """A choice with this message, or with a plain one."""
    said = message() if said is None else said
    return {"index": index, "message": said, "logprobs": None, "finish_reason": end, **more}


def calling(*calls: Any, end: Any = "tool_calls", **more: Any) -> dict[str, Any]:
    """A choice that makes these calls."""
    return choice(message(None, *calls), end, **more)


def usage(given: Any = 10, made: Any = 5, **more: Any) -> dict[str, Any]:
    """A usage that adds up when both figures are numbers."""
    total = given + made if isinstance(given, int) and isinstance(made, int) else None
    body = {"prompt_tokens": given, "completion_tokens": made, "total_tokens": total}
    details = {"cached_tokens": 0, "audio_tokens": 0}
    made_of = {"reasoning_tokens": 0, "rejected_prediction_tokens": 0}
    return {**body, "prompt_tokens_details": details, "completion_tokens_details": made_of, **more}


def completion(*choices: Any, **more: Any) -> dict[str, Any]:
    """A completion with these choices, or with a plain one."""
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1790000000,
        "model": "gpt-5",
        "choices": list(choices) or [choice()],
        "usage": usage(),
        "service_tier": "default",
        "system_fingerprint": "fp_1",
    }
    return {**body, **more}


def encode(value: Any) -> bytes:
    """Bytes of a body."""
    return json.dumps(value).encode()


def read(*choices: Any, **more: Any) -> Reply:
    """Read such a completion from its bytes."""
    return CODEC.read(encode(completion(*choices, **more)))


def chunk(*choices: Any, **more: Any) -> dict[str, Any]:
    """One chunk of a stream."""
    frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1790000000, "model": "gpt-5"}
    return {**frame, "choices": list(choices), **more}


def delta(said: Any = None, end: Any = None, index: Any = 0, **more: Any) -> dict[str, Any]:
    """A chunk with one choice."""
    part = {"index": index, "delta": {} if said is None else said, "finish_reason": end, **more}
    return chunk(part)


def fragment(index: Any = 0, **fields: Any) -> dict[str, Any]:
    """A chunk with a fragment of one call; None as the index leaves it out."""
    where = {} if index is None else {"index": index}
    return delta({"tool_calls": [{**where, **fields}]})


def begun(index: Any = 0, call_id: Any = "call_1", name: Any = "inc", arguments: Any = "") -> dict[str, Any]:
    """The chunk that begins a call."""
    return fragment(index, id=call_id, type="function", function={"name": name, "arguments": arguments})


def more_of(text: Any, index: Any = 0) -> dict[str, Any]:
    """A chunk with more arguments of a call."""
    return fragment(index, function={"arguments": text})


def counted(given: Any = None) -> dict[str, Any]:
    """The chunk with the usage."""
    return chunk(usage=usage() if given is None else given)


END = delta(end="tool_calls")
STOP = delta(end="stop")


def feed(*events: Any, choices: int | None = None) -> ChatAssembler:
    """Assemble a stream."""
    assembler = CODEC.assembler(choices)
    for event in events:
        assembler.feed(event)
    return assembler


def final(*events: Any, choices: int | None = None) -> Reply:
    """The reply of a stream that has one; it is the same when it is read from its record."""
    reply = feed(*events, choices=choices).reply()
    assert reply is not None
    assert CODEC.read(json.dumps(reply.body).encode()) == reply
    assert CODEC.read(json.dumps(reply.body, ensure_ascii=False).encode()) == reply
    return reply


def stream_bytes(events: Iterable[dict[str, Any]]) -> bytes:
    """The bytes that carry these chunks."""
    return b"".join(b"data: %s\n\n" % encode(event) for event in events) + b"data: [DONE]\n\n"


def assembled(pieces: Iterable[bytes], choices: int | None = None) -> ChatAssembler:
    """Assemble the bytes of a stream."""
    decoder, assembler = SSEDecoder(), CODEC.assembler(choices)
    for piece in pieces:
        for sse in decoder.feed(piece):
            if (event := event_json(sse)) is not None:
                assembler.feed(event)
    return assembler
