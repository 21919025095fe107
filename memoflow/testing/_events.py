"""The events of a streamed response, in the order and shape of the Responses API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from memoflow.testing._dialect import Event
from memoflow.testing._items import Item
from memoflow.testing._tokens import pieces

__all__ = ["response_events"]

_TERMINAL = {"incomplete": "response.incomplete", "failed": "response.failed"}

# What a hosted item goes through, between output_item.added and output_item.done.
_HOSTED = {
    "web_search_call": ("in_progress", "searching", "completed"),
    "file_search_call": ("in_progress", "searching", "completed"),
    "image_generation_call": ("in_progress", "generating", "completed"),
    "mcp_list_tools": ("in_progress", "completed"),
}


def response_events(response: Mapping[str, Any]) -> tuple[Event, ...]:
    """All events of a response, given its terminal object. Every event has its sequence number."""
    return tuple({**event, "sequence_number": number} for number, event in enumerate(_events(response)))


def _events(response: Mapping[str, Any]) -> Iterator[Event]:
    begun = {**response, "output": [], "usage": None, "error": None, "incomplete_details": None}
    begun |= {"status": "in_progress", "completed_at": None}
    if response.get("background"):
        queued = {**begun, "status": "queued"}
        yield {"type": "response.created", "response": queued}
        yield {"type": "response.queued", "response": queued}
    else:
        yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(response["output"]):
        yield from _item_events(item, index)
    yield {"type": _TERMINAL.get(response["status"], "response.completed"), "response": dict(response)}


def _item_events(item: Item, index: int) -> Iterator[Event]:
    where = {"output_index": index}
    yield {"type": "response.output_item.added", **where, "item": _begun(item)}
    yield from _inner_events(item, {"item_id": item.get("id"), **where})
    yield {"type": "response.output_item.done", **where, "item": item}


def _begun(item: Item) -> Item:
    begun = dict(item)
    if begun.get("status") in ("completed", "incomplete"):
        begun["status"] = "in_progress"
    for key in ("arguments", "input", "code"):
        if isinstance(begun.get(key), str):
            begun[key] = ""
    for key in ("content", "summary"):
        if isinstance(begun.get(key), list):
            begun[key] = []
    return begun


def _inner_events(item: Item, where: Event) -> Iterator[Event]:
    kind = item.get("type")
    if kind == "message":
        yield from _message_events(item, where)
    elif kind == "function_call":
        yield from _spelled("function_call_arguments", "arguments", str(item.get("arguments", "")), where)
    elif kind == "custom_tool_call":
        yield from _spelled("custom_tool_call_input", "input", str(item.get("input", "")), where)
    elif kind == "reasoning":
        yield from _reasoning_events(item, where)
    elif kind == "code_interpreter_call":
        yield from _code_events(item, where)
    elif kind == "mcp_call":
        yield from _mcp_events(item, where)
    for state in _HOSTED.get(str(kind), ()):
        yield {"type": f"response.{kind}.{state}", **where}


def _spelled(name: str, key: str, text: str, where: Event, **extra: Any) -> Iterator[Event]:
    for piece in pieces(text):
        yield {"type": f"response.{name}.delta", **where, "delta": piece, **extra}
    yield {"type": f"response.{name}.done", **where, key: text, **extra}


def _message_events(item: Item, where: Event) -> Iterator[Event]:
    for index, part in enumerate(item.get("content", ())):
        at = {**where, "content_index": index}
        refused = part.get("type") == "refusal"
        key, name = ("refusal", "refusal") if refused else ("text", "output_text")
        empty = {**part, key: ""} if refused else {**part, key: "", "annotations": []}
        extra: Event = {} if refused else {"logprobs": []}
        yield {"type": "response.content_part.added", **at, "part": empty}
        yield from _spelled(name, key, str(part.get(key, "")), at, **extra)
        for number, annotation in enumerate(part.get("annotations", ())):
            added = {"annotation_index": number, "annotation": annotation}
            yield {"type": "response.output_text.annotation.added", **at, **added}
        yield {"type": "response.content_part.done", **at, "part": part}


def _reasoning_events(item: Item, where: Event) -> Iterator[Event]:
    for index, part in enumerate(item.get("summary") or ()):
        at = {**where, "summary_index": index}
        yield {"type": "response.reasoning_summary_part.added", **at, "part": {**part, "text": ""}}
        yield from _spelled("reasoning_summary_text", "text", part["text"], at)
        yield {"type": "response.reasoning_summary_part.done", **at, "part": part}
    for index, part in enumerate(item.get("content") or ()):
        yield from _spelled("reasoning_text", "text", part["text"], {**where, "content_index": index})


def _code_events(item: Item, where: Event) -> Iterator[Event]:
    yield {"type": "response.code_interpreter_call.in_progress", **where}
    yield from _spelled("code_interpreter_call_code", "code", item.get("code") or "", where)
    yield {"type": "response.code_interpreter_call.interpreting", **where}
    yield {"type": "response.code_interpreter_call.completed", **where}


def _mcp_events(item: Item, where: Event) -> Iterator[Event]:
    yield {"type": "response.mcp_call.in_progress", **where}
    yield from _spelled("mcp_call_arguments", "arguments", str(item.get("arguments", "")), where)
    outcome = "failed" if item.get("error") else "completed"
    yield {"type": f"response.mcp_call.{outcome}", **where}
