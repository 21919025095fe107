"""Builders of output items: what a simulated model says and asks for.

An item is plain JSON, as it stands on the wire of the Responses API; the other APIs put it into their own
form. Ids and statuses that are not given are filled in by the provider; a key that is given stays as it is,
so a test can also send what no provider should.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = [
    "Item",
    "call",
    "code_interpreter",
    "computer_call",
    "custom_call",
    "embedding",
    "mcp_call",
    "message",
    "reasoning",
    "redacted_thinking",
    "refusal_message",
    "thinking",
    "unknown_item",
    "web_search",
]

Item = dict[str, Any]


def _given(**fields: Any) -> Item:
    return {name: value for name, value in fields.items() if value is not None}


def message(text: str, **fields: Any) -> Item:
    """An assistant message. ``fields`` are put into it as they are, for example ``phase``.

    Chat Completions has them in its message too, so ``reasoning_content`` says what only some servers send.
    """
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "role": "assistant", "content": [part], **fields}


def refusal_message(text: str) -> Item:
    """An assistant message that refuses."""
    return {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": text}]}


def call(
    name: str,
    arguments: Mapping[str, Any] | str = "{}",
    *,
    call_id: str | None = None,
    namespace: str | None = None,
    status: str | None = None,
    id: str | None = None,
) -> Item:
    """A function call. ``arguments`` as a string are sent as they are, valid JSON or not."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    rest = _given(call_id=call_id, namespace=namespace, status=status, id=id)
    return {"type": "function_call", "name": name, "arguments": text, **rest}


def custom_call(
    name: str,
    input: str,
    *,
    call_id: str | None = None,
    namespace: str | None = None,
    status: str | None = None,
    id: str | None = None,
) -> Item:
    """A freeform custom tool call: ``input`` is any text."""
    rest = _given(call_id=call_id, namespace=namespace, status=status, id=id)
    return {"type": "custom_tool_call", "name": name, "input": input, **rest}


def reasoning(summary: str | None = None, *, encrypted: bool | None = None, id: str | None = None) -> Item:
    """A reasoning item; the calls and messages after it may only be handed back together with it.

    Args:
        summary: text of its summary, or none.
        encrypted: whether it carries ``encrypted_content``; by default when the request includes it.
        id: its id.
    """
    parts = [] if summary is None else [{"type": "summary_text", "text": summary}]
    return {"type": "reasoning", "summary": parts, **_given(encrypted_content=encrypted, id=id)}


def thinking(text: str, *, signature: str | None = None) -> Item:
    """A thinking block of Anthropic's, with a signature of the provider's unless one is given.

    In a script for several APIs, `reasoning` is what each of them shows in its own way.
    """
    return {"type": "thinking", "thinking": text, **_given(signature=signature)}


def redacted_thinking(data: str = "simulated") -> Item:
    """A thinking block of Anthropic's that cannot be read."""
    return {"type": "redacted_thinking", "data": data}


def embedding(*vector: float, index: int | None = None) -> Item:
    """One vector of an embeddings reply. A reply with any has these, however many inputs there are."""
    return {"type": "embedding", "embedding": list(vector), **_given(index=index)}


def web_search(query: str = "memoflow", *, status: str | None = None) -> Item:
    """A web search that the provider ran."""
    action = {"type": "search", "query": query, "queries": [query], "sources": []}
    return {"type": "web_search_call", "action": action, **_given(status=status)}


def code_interpreter(code: str = "1 + 1", *, logs: str = "2", status: str | None = None) -> Item:
    """A piece of code that the provider ran."""
    outputs = [{"type": "logs", "logs": logs}]
    rest = _given(status=status)
    return {
        "type": "code_interpreter_call",
        "code": code,
        "container_id": "cntr_simulated",
        "outputs": outputs,
        **rest,
    }


def mcp_call(
    name: str = "lookup",
    arguments: Mapping[str, Any] | str = "{}",
    *,
    server_label: str = "simulated",
    output: str | None = "ok",
    error: Mapping[str, Any] | None = None,
) -> Item:
    """A call of a remote MCP server that the provider made."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {
        "type": "mcp_call",
        "name": name,
        "arguments": text,
        "server_label": server_label,
        "approval_request_id": None,
        "output": output,
        "error": error if error is None else dict(error),
        "status": "completed" if error is None else "failed",
    }


def computer_call(action: Mapping[str, Any] | None = None, *, call_id: str | None = None) -> Item:
    """A computer action, which the client is expected to carry out and answer."""
    wanted = dict(action or {"type": "screenshot"})
    return {"type": "computer_call", "action": wanted, "pending_safety_checks": [], **_given(call_id=call_id)}


def unknown_item(type: str = "brand_new_call", **fields: Any) -> Item:
    """An item of a type no SDK knows yet."""
    return {"type": type, **fields}
