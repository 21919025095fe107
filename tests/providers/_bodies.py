"""Bodies of the Responses API for tests, in the shape the SDK documents."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from memoflow.providers.base import Reply
from memoflow.providers.openai_responses import OpenAIResponsesCodec

CODEC = OpenAIResponsesCodec()

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["response", "completed", "function_call", "call_1", "", "message"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def function_call(
    call_id: Any = "call_1", name: Any = "inc", arguments: Any = '{"n": 1}', **more: Any
) -> dict[str, Any]:
    """A finished function call."""
    item = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name}
    return {**item, "arguments": arguments, "status": "completed", **more}


def custom_call(
    call_id: str = "call_9", name: str = "patch", text: Any = "*** begin", **more: Any
) -> dict[str, Any]:
    """A freeform call; the API gives it no status."""
    return {
        "type": "custom_tool_call",
        "id": "ctc_1",
        "call_id": call_id,
        "name": name,
        "input": text,
        **more,
    }


def message(text: str = "hello", *, kind: str = "output_text", **more: Any) -> dict[str, Any]:
    """An assistant message with one part."""
    part = {"type": "refusal", "refusal": text} if kind == "refusal" else {"type": kind, "text": text}
    content = [{**part, "annotations": []} if kind == "output_text" else part]
    item = {"type": "message", "id": "msg_1", "role": "assistant", "content": content}
    return {**item, "status": "completed", **more}


def reasoning(**more: Any) -> dict[str, Any]:
    """A reasoning item that the provider keeps."""
    return {"type": "reasoning", "id": "rs_1", "summary": [], **more}


def usage(given: Any = 10, made: Any = 5, **more: Any) -> dict[str, Any]:
    """A usage that adds up when both figures are numbers."""
    total = given + made if isinstance(given, int) and isinstance(made, int) else None
    body = {"input_tokens": given, "output_tokens": made, "total_tokens": total}
    details = {"cached_tokens": 0, "cache_write_tokens": 0}
    return {**body, "input_tokens_details": details, "output_tokens_details": {"reasoning_tokens": 0}, **more}


def response(*output: Any, **more: Any) -> dict[str, Any]:
    """A terminal response with these output items."""
    body = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1790000000,
        "status": "completed",
        "model": "gpt-5",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage(),
    }
    return {**body, **more}


def read(*output: Any, **more: Any) -> Reply:
    """Read such a response from its bytes."""
    return CODEC.read(encode(response(*output, **more)))


def encode(value: Any) -> bytes:
    """Bytes of a body."""
    return json.dumps(value).encode()
