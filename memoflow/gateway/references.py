"""Objects of the provider's account that a request names: whose they are, nobody here can tell.

All virtual keys share one account of the provider. Of replies that were made here it is known whom they were
made for; of files, conversations, containers, vector stores and stored prompts it is not, so naming one is
refused unless the operator allows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["foreign_objects"]


def foreign_objects(body: dict[str, Any]) -> tuple[str, ...]:
    """What kinds of objects a request names that may be somebody else's, in a fixed order."""
    return tuple(sorted(set(_named(body))))


def _named(body: dict[str, Any]) -> Iterator[str]:
    for name in ("conversation", "container"):
        if body.get(name) is not None:
            yield name
    if _has(body.get("prompt"), "id"):
        yield "stored prompt"
    for entry in (*_dicts(body.get("input")), *_dicts(body.get("messages"))):
        yield from _in_entry(entry)
    for tool in _dicts(body.get("tools")):
        yield from _in_tool(tool)


def _in_entry(entry: dict[str, Any]) -> Iterator[str]:
    """In an input item or a message: itself, the parts of its content, and those within a tool's result."""
    if entry.get("type") == "item_reference" or entry.keys() == {"id"}:
        yield "stored item"
    if _has(entry.get("audio"), "id"):
        yield "stored audio"
    for part in (*_dicts(entry.get("content")), *_dicts(entry.get("output"))):
        yield from _in_part(part)
        for inner in _dicts(part.get("content")):
            yield from _in_part(inner)


def _in_part(part: dict[str, Any]) -> Iterator[str]:
    holders = (part, part.get("file"), part.get("source"), part.get("image_url"))
    if any(_has(holder, "file_id") for holder in holders):
        yield "file"


def _in_tool(tool: dict[str, Any]) -> Iterator[str]:
    if tool.get("vector_store_ids"):
        yield "vector store"
    container = tool.get("container")
    if isinstance(container, str):
        yield "container"
    if isinstance(container, dict) and container.get("file_ids"):
        yield "file"
    if tool.get("connector_id"):
        yield "connector"
    mask = tool.get("input_image_mask")
    if _has(mask, "file_id"):
        yield "file"


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _has(value: Any, name: str) -> bool:
    return isinstance(value, dict) and value.get(name) is not None
