"""What the Messages API refuses before it generates, in the wording it uses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from memoflow.testing._messages_pairing import check_pairing
from memoflow.testing._rejections import Rejection

__all__ = ["check_message"]

_ROLES = ("user", "assistant", "system")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_LEAST_BUDGET = 1_024
# Keys of the blocks that clients write. Any other one is refused; further types pass as they are.
_KEYS = {
    "text": {"type", "text", "cache_control", "citations"},
    "tool_use": {"type", "id", "name", "input", "cache_control", "caller", "toolset_name"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control", "toolset_name"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
}
_STRINGS = {
    "text": ("text",),
    "tool_use": ("id", "name"),
    "tool_result": ("tool_use_id",),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
}


def check_message(body: Any, *, counting: bool) -> Rejection | None:
    """The first thing the API would object to in the body of a request, or None.

    Args:
        body: the decoded body.
        counting: it is to be counted only, so nothing needs to bound its reply.
    """
    if not isinstance(body, Mapping):
        return Rejection(message="The request body is not valid JSON.")
    return next(_objections(body, counting), None)


def _objections(body: Mapping[str, Any], counting: bool) -> Iterator[Rejection]:
    if not isinstance(body.get("model"), str):
        yield _missing("model")
    if not counting:
        yield from _check_cap(body.get("max_tokens"))
        yield from _check_thinking(body)
    stops = body.get("stop_sequences")
    if stops is not None and not (isinstance(stops, list) and all(isinstance(stop, str) for stop in stops)):
        yield _about("stop_sequences", "Input should be a valid list")
    yield from _check_tools(body)
    yield from _check_messages(body.get("messages"))
    yield from check_pairing(body["messages"])


def _about(where: str, problem: str) -> Rejection:
    return Rejection(message=f"{where}: {problem}")


def _missing(where: str) -> Rejection:
    return _about(where, "Field required")


def _check_cap(cap: Any) -> Iterator[Rejection]:
    if cap is None:
        yield _missing("max_tokens")
    elif isinstance(cap, bool) or not isinstance(cap, int):
        yield _about("max_tokens", "Input should be a valid integer")
    elif cap < 1:
        yield _about("max_tokens", "must be greater than or equal to 1")


def _check_thinking(body: Mapping[str, Any]) -> Iterator[Rejection]:
    thinking = body.get("thinking")
    if not isinstance(thinking, Mapping) or thinking.get("type") != "enabled":
        return
    budget = thinking.get("budget_tokens")
    if not isinstance(budget, int) or budget < _LEAST_BUDGET:
        yield _about(
            "thinking.enabled.budget_tokens", f"Input should be greater than or equal to {_LEAST_BUDGET}"
        )
    elif body["max_tokens"] <= budget:
        yield Rejection(message="`max_tokens` must be greater than `thinking.budget_tokens`.")


def _check_tools(body: Mapping[str, Any]) -> Iterator[Rejection]:
    tools = body.get("tools")
    if tools is not None and not isinstance(tools, list):
        yield _about("tools", "Input should be a valid list")
    names: set[str] = set()
    for index, tool in enumerate(tools or ()):
        where = f"tools.{index}"
        if not isinstance(tool, Mapping):
            yield _about(where, "Input should be a valid dictionary")
            continue
        if tool.get("type", "custom") in ("custom", None):
            yield from _check_tool(tool, f"{where}.custom")
        if isinstance(tool.get("name"), str):
            if tool["name"] in names:
                yield _about("tools", "Tool names must be unique.")
            names.add(tool["name"])
    yield from _check_choice(body.get("tool_choice"), tools, names)


def _check_tool(tool: Mapping[str, Any], where: str) -> Iterator[Rejection]:
    if not isinstance(tool.get("name"), str):
        yield _missing(f"{where}.name")
    elif not _TOOL_NAME.fullmatch(tool["name"]):
        yield _about(f"{where}.name", "String should match pattern '^[a-zA-Z0-9_-]{1,128}$'")
    if not isinstance(tool.get("input_schema"), Mapping):
        yield _missing(f"{where}.input_schema")
    elif tool["input_schema"].get("type") != "object":
        yield _about(f"{where}.input_schema.type", "Input should be 'object'")


def _check_choice(choice: Any, tools: Any, names: set[str]) -> Iterator[Rejection]:
    if choice is None:
        return
    if not isinstance(choice, Mapping) or choice.get("type") not in ("auto", "any", "tool", "none"):
        yield _about("tool_choice", "Input tag does not match any of the expected tags")
    elif not tools and choice["type"] != "none":
        yield Rejection(message="tool_choice may only be specified while providing tools")
    elif choice["type"] == "tool" and choice.get("name") not in list(names):
        yield Rejection(message=f"Tool '{choice.get('name')}' not found in provided tools")


def _check_messages(messages: Any) -> Iterator[Rejection]:
    if messages is None:
        yield _missing("messages")
    elif not isinstance(messages, list):
        yield _about("messages", "Input should be a valid list")
    elif not messages:
        yield _about("messages", "at least one message is required")
    else:
        for index, message in enumerate(messages):
            yield from _check_one(message, f"messages.{index}", last=index == len(messages) - 1)
        if messages[0]["role"] == "assistant":
            yield _about("messages", 'first message must use the "user" role')


def _check_one(message: Any, where: str, *, last: bool) -> Iterator[Rejection]:
    if not isinstance(message, Mapping):
        yield _about(where, "Input should be a valid dictionary")
        return
    if message.get("role") not in _ROLES:
        yield _about(f"{where}.role", "Input should be 'user' or 'assistant'")
    content = message.get("content")
    final = last and message.get("role") == "assistant"
    if content is None:
        yield _missing(f"{where}.content")
    elif not isinstance(content, str | list):
        yield _about(f"{where}.content", "Input should be a valid list")
    elif not content and not final:
        problem = "all messages must have non-empty content except for the optional final assistant message"
        yield _about(where, problem)
    elif isinstance(content, list):
        for index, block in enumerate(content):
            yield from _check_block(block, f"{where}.content.{index}")
    if final and _ends_blank(content):
        yield _about("messages", "final assistant content cannot end with trailing whitespace")


def _ends_blank(content: Any) -> bool:
    text = content
    if isinstance(content, list):
        text = content[-1].get("text") if content and isinstance(content[-1], Mapping) else None
    return isinstance(text, str) and text != text.rstrip()


def _check_block(block: Any, where: str) -> Iterator[Rejection]:
    kind = block.get("type") if isinstance(block, Mapping) else None
    if not isinstance(kind, str):
        yield _missing(f"{where}.type")
        return
    if kind not in _KEYS:
        return
    inside = f"{where}.{kind}"
    for name in block:
        if name not in _KEYS[kind]:
            yield _about(f"{inside}.{name}", "Extra inputs are not permitted")
    for name in _STRINGS[kind]:
        if name not in block:
            yield _missing(f"{inside}.{name}")
        elif not isinstance(block[name], str):
            yield _about(f"{inside}.{name}", "Input should be a valid string")
    yield from _check_meaning(block, kind, where)


def _check_meaning(block: Mapping[str, Any], kind: str, where: str) -> Iterator[Rejection]:
    if kind == "text" and not block["text"].strip():
        yield _about("messages", "text content blocks must be non-empty")
    elif kind == "tool_use":
        if not _ID.fullmatch(block["id"]):
            yield _about(f"{where}.tool_use.id", "String should match pattern '^[a-zA-Z0-9_-]+$'")
        if not isinstance(block.get("input"), Mapping):
            yield _about(f"{where}.tool_use.input", "Input should be a valid dictionary")
    elif kind == "tool_result":
        yield from _check_result(block.get("content", ""), f"{where}.tool_result.content")
    elif kind == "thinking" and not block["signature"]:
        yield _about(where, "Invalid `signature` in `thinking` block")


def _check_result(content: Any, where: str) -> Iterator[Rejection]:
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        yield _about(where, "Input should be a valid list")
        return
    for index, block in enumerate(content):
        if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
            yield _missing(f"{where}.{index}.type")
