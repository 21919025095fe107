"""Content blocks of a Messages reply: which of them are calls, which ran at the provider, what contradicts.

Blocks are told apart by ``type`` alone. An unknown one is passed through; it is never a call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from memoflow.canonical import StrictJSONError, parse_strict
from memoflow.providers._measuring import compact
from memoflow.providers._reading import repeated_ids, text_or_none
from memoflow.providers._request import has_type
from memoflow.providers.base import MAX_REPLY_BYTES, AnsweredCall, HostedCall, RequestedCall
from memoflow.providers.http import safe_code
from memoflow.providers.sse import MAX_JSON_DEPTH

__all__ = ["RAW_INPUT", "Blocks", "answers", "parsed_input", "read_blocks", "replayable", "unpadded"]

RAW_INPUT: Final = "partial_json"
"""Key that a recorded call has beside an empty ``input`` if its streamed text was no JSON object.

The API itself never sends it in a block and does not take it back.
"""

# The body, its content and the block stand around an input.
_INPUT_DEPTH: Final = MAX_JSON_DEPTH - 3
_JSON_BLANKS: Final = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Blocks:
    """What the content blocks of one reply ask for."""

    calls: tuple[RequestedCall, ...]
    hosted: tuple[HostedCall, ...]
    problem: str | None


def parsed_input(text: str) -> dict[str, Any] | None:
    """The object that the streamed input of a call makes; blank text makes an empty one, other text None."""
    if not text.strip(_JSON_BLANKS):
        return {}
    try:
        value = parse_strict(text, max_bytes=MAX_REPLY_BYTES, max_depth=_INPUT_DEPTH)
    except StrictJSONError:
        return None
    return value if isinstance(value, dict) else None


def read_blocks(content: list[Any], *, runnable: bool) -> Blocks:
    """Sort the blocks of a reply; no call is complete unless ``runnable`` and nothing contradicts itself."""
    blocks = [block for block in content if has_type(block)]
    problem = None if len(blocks) == len(content) else "a content block is not an object with a type"
    calls: list[RequestedCall] = []
    for block in blocks:
        if block["type"] == "tool_use":
            call = _read_call(block, len(calls), runnable)
            problem = problem or (call if isinstance(call, str) else None)
            calls += [call] if isinstance(call, RequestedCall) else []
    problem = problem or repeated_ids(calls)
    if problem:
        calls = [replace(call, complete=False) for call in calls]
    hosted = (_hosted(block, ordinal) for ordinal, block in enumerate(_provider_side(blocks)))
    return Blocks(tuple(calls), tuple(hosted), problem)


def answers(results: Sequence[AnsweredCall]) -> list[dict[str, Any]]:
    """The user message that answers calls, in the given order; the API wants all answers of a turn in one."""
    content = [_answer(one) for one in results]
    return [{"role": "user", "content": content}] if content else []


def replayable(content: list[Any]) -> list[Any]:
    """Blocks of a reply as the API takes them back: verbatim but for what it sends and does not take.

    That are text blocks without text (https://github.com/anthropics/anthropic-sdk-python/issues/461) and
    inputs that are no object, which stand for a call that was refused.
    """
    return [_sendable(block) for block in content if not _is_blank_text(block)]


def unpadded(content: list[Any]) -> list[Any]:
    """Blocks that end a request: the API takes no last text that ends in whitespace, though it sends some."""
    last = content[-1] if content else None
    text = last.get("text") if isinstance(last, dict) and last.get("type") == "text" else None
    return [*content[:-1], {**last, "text": text.rstrip()}] if last and isinstance(text, str) else content


def _is_blank_text(block: Any) -> bool:
    if not isinstance(block, dict) or block.get("type") != "text":
        return False
    text = block.get("text")
    return isinstance(text, str) and not text.strip()


def _sendable(block: Any) -> Any:
    if not isinstance(block, dict) or "input" not in block:
        return block
    kept = {key: value for key, value in block.items() if key != RAW_INPUT}
    return kept if isinstance(kept["input"], dict) else {**kept, "input": {}}


def _answer(answered: AnsweredCall) -> dict[str, Any]:
    call = answered.request
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call.call_id, "content": answered.text}
    if answered.failed:
        block["is_error"] = True
    # A member of a toolset of the API is answered in the name of that toolset.
    return block if call.namespace is None else {**block, "toolset_name": call.namespace}


def _read_call(block: dict[str, Any], ordinal: int, complete: bool) -> RequestedCall | str:
    """The call, or what is wrong with it."""
    call_id, name, toolset = block.get("id"), block.get("name"), block.get("toolset_name") or None
    if not isinstance(call_id, str) or not text_or_none(call_id):
        return f"call {ordinal} has no usable call id"
    if not isinstance(name, str) or not (toolset is None or isinstance(toolset, str)):
        return f"call {ordinal} has a name or toolset that is no text"
    if "\0" in name + (toolset or ""):
        return f"call {ordinal} has a name or toolset that is no name"
    arguments = compact(block.get("input"))
    if RAW_INPUT in block:
        arguments = block[RAW_INPUT]
        if not isinstance(arguments, str) or block.get("input") != {} or parsed_input(arguments) is not None:
            return f"call {ordinal} has two inputs"
    return RequestedCall(ordinal, call_id, name, toolset, "function", arguments, complete)


def _provider_side(blocks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What the provider ran: each use, and results of uses that stood in an earlier reply."""
    uses = [block for block in blocks if _is_hosted_use(block)]
    ids = {block["id"] for block in uses if isinstance(block.get("id"), str)}
    for block in blocks:
        named = block.get("tool_use_id")
        is_result = block["type"].endswith("_tool_result")
        if _is_hosted_use(block) or (is_result and not (isinstance(named, str) and named in ids)):
            yield block


def _is_hosted_use(block: dict[str, Any]) -> bool:
    kind: str = block["type"]
    return kind.endswith("_tool_use")


def _hosted(block: dict[str, Any], ordinal: int) -> HostedCall:
    kind = block["type"]
    # All tools of the API's own share one type; which of them it was is in the name.
    named = safe_code(block.get("name")) if kind == "server_tool_use" else None
    id = block.get("id") or block.get("tool_use_id")
    return HostedCall(ordinal, named or safe_code(kind) or "unknown", text_or_none(id))
