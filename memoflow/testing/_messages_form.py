"""The form of Anthropic's Messages API: messages as items, items as content blocks, and its usage."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memoflow.providers.base import Usage
from memoflow.testing._encoding import Ids
from memoflow.testing._items import Item

__all__ = [
    "Block",
    "as_blocks",
    "as_items",
    "blocks_of",
    "report_message_usage",
    "stop_reason",
    "wrong_cache",
]

_REASONS = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


@dataclass(frozen=True, slots=True)
class Block:
    """A content block, and its input as the model spelled it: JSON or not."""

    content: Item
    spelled: str | None = None


def blocks_of(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The content of a message of a request as blocks."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def as_items(body: Mapping[str, Any]) -> list[Item]:
    """The context of a request as items of the Responses API; blocks without a like stay as they are."""
    items: list[Item] = []
    if body.get("system"):
        items.append({"type": "message", "role": "system", "content": body["system"]})
    for message in body["messages"]:
        spoken: Item | None = None
        for block in blocks_of(message):
            item = _item(block)
            if item is not None:
                spoken = None
                items.append(item)
            elif spoken is None:
                spoken = {"type": "message", "role": message["role"], "content": [block]}
                items.append(spoken)
            else:
                spoken["content"].append(block)
    return items


def _item(block: Mapping[str, Any]) -> Item | None:
    """The item a block is on its own, or None if it is a part of what is said."""
    kind = block["type"]
    if kind == "tool_use":
        arguments = json.dumps(block["input"], ensure_ascii=False)
        return {
            "type": "function_call",
            "call_id": block["id"],
            "name": block["name"],
            "arguments": arguments,
        }
    if kind == "tool_result":
        told = {"is_error": block["is_error"]} if "is_error" in block else {}
        output = block.get("content", "")
        return {"type": "function_call_output", "call_id": block["tool_use_id"], "output": output, **told}
    return None if kind in ("text", "image", "document") else dict(block)


def as_blocks(items: Sequence[Item], ids: Ids) -> list[Block]:
    """What was said as content blocks. Blocks of the API's own types stay as they are."""
    return [block for item in items for block in _blocks(item, ids)]


def _blocks(item: Item, ids: Ids) -> Iterator[Block]:
    kind = item.get("type")
    if kind == "message":
        for part in item.get("content") or ():
            spoken = str(part.get("refusal" if part.get("type") == "refusal" else "text", ""))
            yield Block({"type": "text", "text": spoken, "citations": part.get("citations")})
    elif kind == "reasoning":
        thought = "".join(str(part.get("text", "")) for part in item.get("summary") or ())
        yield Block({"type": "thinking", "thinking": thought, "signature": ids.new("sig")})
    elif kind == "thinking":
        yield Block({**item, "signature": item["signature"] if "signature" in item else ids.new("sig")})
    elif kind == "function_call":
        yield _tool_use(item, ids, str(item["arguments"]))
    elif kind == "custom_tool_call":
        yield _tool_use(item, ids, json.dumps({"input": item["input"]}, ensure_ascii=False))
    elif kind == "computer_call":
        yield _tool_use({"name": "computer", **item}, ids, json.dumps(item["action"]))
    elif kind in _HOSTED:
        yield from _HOSTED[str(kind)](item, ids)
    else:
        yield Block(dict(item))


def _tool_use(item: Item, ids: Ids, spelled: str) -> Block:
    call_id = item["call_id"] if "call_id" in item else ids.new("toolu")
    given = _read(spelled, cut=item.get("status") == "incomplete")
    return Block({"type": "tool_use", "id": call_id, "name": item["name"], "input": given}, spelled)


def _read(spelled: str, *, cut: bool = False) -> Any:
    """Input as a whole body has it. What is no JSON is only its text there, and nothing if it was cut."""
    try:
        return json.loads(spelled) if spelled.strip() else {}
    except (ValueError, RecursionError):
        return {} if cut else spelled


def _server_use(name: str, given: Mapping[str, Any], ids: Ids) -> Block:
    use = {"type": "server_tool_use", "id": ids.new("srvtoolu"), "name": name, "input": dict(given)}
    return Block(use, json.dumps(given, ensure_ascii=False))


def _web_search(item: Item, ids: Ids) -> Iterator[Block]:
    query = item.get("action", {}).get("query", "")
    use = _server_use("web_search", {"query": query}, ids)
    found = {
        "type": "web_search_result",
        "title": "Simulated",
        "url": "http://simulated.invalid/",
        "encrypted_content": ids.new("enc"),
        "page_age": None,
    }
    yield use
    yield Block({"type": "web_search_tool_result", "tool_use_id": use.content["id"], "content": [found]})


def _code(item: Item, ids: Ids) -> Iterator[Block]:
    use = _server_use("code_execution", {"code": item.get("code", "")}, ids)
    logs = "".join(str(output.get("logs", "")) for output in item.get("outputs") or ())
    result = {"type": "code_execution_result", "stdout": logs, "stderr": "", "return_code": 0, "content": []}
    yield use
    yield Block({"type": "code_execution_tool_result", "tool_use_id": use.content["id"], "content": result})


def _mcp(item: Item, ids: Ids) -> Iterator[Block]:
    spelled = str(item.get("arguments", ""))
    use = {
        "type": "mcp_tool_use",
        "id": ids.new("mcptoolu"),
        "name": item.get("name"),
        "server_name": item.get("server_label"),
        "input": _read(spelled),
    }
    failed = item.get("error") is not None
    text = str(item.get("output") or "")
    told = {"tool_use_id": use["id"], "is_error": failed, "content": [{"type": "text", "text": text}]}
    yield Block(use, spelled)
    yield Block({"type": "mcp_tool_result", **told})


_HOSTED = {"web_search_call": _web_search, "code_interpreter_call": _code, "mcp_call": _mcp}


def stop_reason(items: Sequence[Item], blocks: Sequence[Block], status: str, reason: str | None) -> str:
    """Why the message ended."""
    if status == "incomplete":
        return _REASONS.get(str(reason), str(reason))
    parts = [part for item in items if item.get("type") == "message" for part in item.get("content") or ()]
    if any(part.get("type") == "refusal" for part in parts):
        return "refusal"
    return "tool_use" if any(block.content["type"] == "tool_use" for block in blocks) else "end_turn"


def report_message_usage(usage: Usage, blocks: Sequence[Block], tier: str) -> dict[str, Any]:
    """Usage as the API reports it: cached input is no part of ``input_tokens``."""
    uses = [block.content for block in blocks if block.content["type"] == "server_tool_use"]
    searches = sum(use.get("name") == "web_search" for use in uses)
    cached, written = usage.cached_input_tokens, usage.cache_write_tokens
    return {
        "input_tokens": max(0, usage.input_tokens - cached - written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
        "server_tool_use": {"web_search_requests": searches, "web_fetch_requests": 0} if uses else None,
        "service_tier": tier,
    }


def wrong_cache(report: dict[str, Any]) -> dict[str, Any]:
    """There is no total in a report, so it is the parts of the written cache that do not add up."""
    parts = report["cache_creation"]
    more = {"ephemeral_1h_input_tokens": parts["ephemeral_1h_input_tokens"] + 1}
    return {**report, "cache_creation": {**parts, **more}}
