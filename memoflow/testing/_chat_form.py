"""The form of Chat Completions: messages as items, items as a message, and a completion as chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from memoflow.providers.base import Usage
from memoflow.testing._dialect import Event
from memoflow.testing._encoding import Ids
from memoflow.testing._items import Item
from memoflow.testing._openai_dialects import DONE
from memoflow.testing._tokens import pieces

__all__ = ["as_items", "as_message", "chunks", "finish_reason", "report_chat_usage"]

# What the model does without a word of it in a completion.
_SILENT = frozenset(
    {
        *("reasoning", "thinking", "redacted_thinking", "web_search_call", "file_search_call"),
        *("code_interpreter_call", "image_generation_call", "mcp_call", "mcp_list_tools"),
        *("server_tool_use", "web_search_tool_result", "code_execution_tool_result"),
    }
)
_OF_THE_ITEM = ("type", "role", "content", "id", "status")
_SPOKEN = {"function": "arguments", "custom": "input"}
_REASONS = {"max_output_tokens": "length", "max_tokens": "length"}


def as_items(messages: Sequence[Mapping[str, Any]]) -> list[Item]:
    """The messages of a request as items of the Responses API."""
    custom: set[str] = set()
    items: list[Item] = []
    for message in messages:
        if message["role"] == "tool":
            call_id = message["tool_call_id"]
            kind = "custom_tool_call_output" if call_id in custom else "function_call_output"
            items.append({"type": kind, "call_id": call_id, "output": message.get("content")})
            continue
        content = message.get("content")
        if content is None and isinstance(message.get("refusal"), str):
            content = [{"type": "refusal", "refusal": message["refusal"]}]
        if content is not None:
            items.append({"type": "message", "role": message["role"], "content": content})
        for call in message.get("tool_calls") or ():
            items.append(_call_item(call))
            custom |= {call["id"]} if call["type"] == "custom" else set()
    return items


def _call_item(call: Mapping[str, Any]) -> Item:
    said, key = call[call["type"]], _SPOKEN[call["type"]]
    kind = "custom_tool_call" if key == "input" else "function_call"
    return {"type": kind, "call_id": call["id"], "name": said["name"], key: said[key]}


def as_message(items: Sequence[Item], ids: Ids) -> dict[str, Any]:
    """What was said as one message of the assistant."""
    texts: list[str] = []
    refusals: list[str] = []
    calls: list[Item] = []
    more: dict[str, Any] = {}
    for item in items:
        kind = item.get("type")
        if kind == "message":
            for part in item.get("content") or ():
                refused = part.get("type") == "refusal"
                (refusals if refused else texts).append(str(part.get("refusal" if refused else "text", "")))
            more |= {key: value for key, value in item.items() if key not in _OF_THE_ITEM}
        elif kind not in _SILENT:
            calls.append(_call(item, ids))
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(texts) if texts else None,
        "refusal": "".join(refusals) if refusals else None,
        "annotations": [],
        **more,
    }
    return {**message, "tool_calls": calls} if calls else message


def _call(item: Item, ids: Ids) -> Item:
    call_id = item["call_id"] if "call_id" in item else ids.new("call")
    kind = item.get("type")
    if kind == "function_call":
        said = {"name": item["name"], "arguments": item["arguments"]}
        return {"id": call_id, "type": "function", "function": said}
    if kind == "custom_tool_call":
        said = {"name": item["name"], "input": item["input"]}
        return {"id": call_id, "type": "custom", "custom": said}
    return {"id": call_id, **item}


def finish_reason(message: Mapping[str, Any], status: str, reason: str | None) -> str:
    """Why a choice ended."""
    if status == "incomplete":
        return _REASONS.get(str(reason), str(reason))
    return "tool_calls" if message.get("tool_calls") else "stop"


def report_chat_usage(usage: Usage) -> dict[str, Any]:
    """Usage as Chat Completions reports it."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_input_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def chunks(completion: Mapping[str, Any], include_usage: bool) -> tuple[tuple[Event, ...], int]:
    """The chunks of a completion, and how many of the last ones belong to its end.

    The end begins with the chunk after which every choice has its finish reason.
    """
    frame = {**completion, "object": "chat.completion.chunk"}
    report = frame.pop("usage", None)
    within = {**frame, "usage": None} if include_usage else frame
    choices = [_choice_deltas(choice) for choice in completion["choices"]]
    # Choices are generated at the same time, so their chunks take turns.
    spoken = [chunk for turn in zip_longest(*choices) for chunk in turn if chunk is not None]
    finished = [
        {"index": choice["index"], "delta": {}, "logprobs": None, "finish_reason": choice["finish_reason"]}
        for choice in completion["choices"]
    ]
    sent = [{**within, "choices": [choice]} for choice in (*spoken, *finished)]
    last = [{**frame, "choices": [], "usage": report}] if include_usage and "usage" in completion else []
    return (*sent, *last, DONE), 2 + len(last)


def _choice_deltas(choice: Mapping[str, Any]) -> list[Event]:
    return [
        {"index": choice["index"], "delta": delta, "logprobs": None, "finish_reason": None}
        for delta in _deltas(choice["message"])
    ]


def _deltas(message: Mapping[str, Any]) -> Iterator[Event]:
    silent = message.get("content") is None
    yield {"role": "assistant", "content": None if silent else "", "refusal": None}
    for key, value in message.items():
        if key in ("role", "tool_calls") or value is None or value == []:
            continue
        if isinstance(value, str):
            yield from ({key: piece} for piece in pieces(value))
        else:
            yield {key: value}
    for index, call in enumerate(message.get("tool_calls") or ()):
        yield from _call_deltas(call, index)


def _call_deltas(call: Item, index: int) -> Iterator[Event]:
    kind = str(call.get("type"))
    key = _SPOKEN.get(kind)
    if key is None:
        yield {"tool_calls": [{"index": index, **call}]}
        return
    begun = {**call, kind: {**call[kind], key: ""}}
    yield {"tool_calls": [{"index": index, **begun}]}
    for piece in pieces(str(call[kind][key])):
        yield {"tool_calls": [{"index": index, kind: {key: piece}}]}
