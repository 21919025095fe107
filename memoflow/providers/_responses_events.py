"""Events of a stream that ends in a recorded response, for what reads streams and was given a record.

Texts and arguments come in one delta each; everything else of an item comes whole. The terminal event holds
the whole response, as in a real stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, Final

from memoflow.providers._reading import STREAM_PROBLEM

__all__ = ["events_of"]

Event = dict[str, Any]

# What a response has only when it has ended.
_AT_THE_END: Final = frozenset({"completed_at", "error", "incomplete_details", "usage"})
# Of a part and of an item: where its text stands, and the events it comes in.
_PARTS: Final = {
    "output_text": ("text", "response.output_text"),
    "refusal": ("refusal", "response.refusal"),
}
_ITEMS: Final = {
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
    "function_call": ("arguments", "response.function_call_arguments"),
}


def events_of(body: dict[str, Any], status: str) -> tuple[Event, ...]:
    """The events of a stream in which this response is built up and ends."""
    shown = {key: value for key, value in body.items() if key != STREAM_PROBLEM}
    later: dict[str, Any] = dict.fromkeys(shown.keys() & _AT_THE_END)
    begun = {**shown, **later, "status": "in_progress", "output": []}
    numbers = count()
    events: Iterator[Event] = iter(
        (
            {"type": "response.created", "response": begun},
            *_item_events(shown.get("output")),
            {"type": f"response.{status}", "response": shown},
        )
    )
    return tuple({**event, "sequence_number": next(numbers)} for event in events)


def _item_events(output: Any) -> Iterator[Event]:
    items = output if isinstance(output, list) else []
    # The SDK's accumulator takes no items that it cannot tell apart; they are in the terminal event alone.
    if not all(map(_is_shown, items)) or len({_identity(item) for item in items}) < len(items):
        return
    for index, item in enumerate(items):
        where = {"output_index": index, "item_id": item.get("id") or ""}
        started, grown = _grown(item, where)
        yield {"type": "response.output_item.added", "output_index": index, "item": started}
        yield from grown
        yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _is_shown(item: Any) -> bool:
    if not isinstance(item, dict) or not isinstance(item.get("type"), str):
        return False
    return all(isinstance(item.get(name), str | None) for name in ("id", "call_id"))


def _identity(item: dict[str, Any]) -> tuple[Any, ...]:
    """What the SDK's accumulator tells items apart by."""
    call_id = item.get("call_id")
    return item["type"], call_id or item.get("id")


def _grown(item: dict[str, Any], where: dict[str, Any]) -> tuple[dict[str, Any], list[Event]]:
    """An item as it starts, and the events that make it whole."""
    kind, content = item["type"], item.get("content")
    field, name = _ITEMS.get(kind, ("", ""))
    text = item.get(field)
    if isinstance(text, str) and text:
        return {**item, field: "", "status": "in_progress"}, list(_text_events(name, field, text, where))
    if kind == "message" and isinstance(content, list) and all(isinstance(part, dict) for part in content):
        parts = enumerate(content)
        grown = [event for n, part in parts for event in _part_events(part, {**where, "content_index": n})]
        return {**item, "content": [], "status": "in_progress"}, grown
    return item, []


def _part_events(part: dict[str, Any], where: dict[str, Any]) -> Iterator[Event]:
    field, name = _PARTS.get(str(part.get("type")), ("", ""))
    text = part.get(field)
    grows = isinstance(text, str) and text != ""
    yield {"type": "response.content_part.added", "part": {**part, field: ""} if grows else part, **where}
    if isinstance(text, str) and text:
        yield from _text_events(name, field, text, where)
    yield {"type": "response.content_part.done", "part": part, **where}


def _text_events(name: str, field: str, text: str, where: dict[str, Any]) -> Iterator[Event]:
    # Probabilities stand in the part, which follows.
    spoken = {**where, "logprobs": []} if field == "text" else where
    yield {"type": f"{name}.delta", "delta": text, **spoken}
    yield {"type": f"{name}.done", field: text, **spoken}
