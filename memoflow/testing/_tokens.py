"""How the simulated provider counts and cuts tokens: deterministic, and never above one token a byte."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from memoflow.providers.base import Usage
from memoflow.testing._items import Item

__all__ = ["count_input", "count_item", "count_text", "cut_items", "pieces"]

_PIECE = re.compile(r"\s*\w{1,4}|\s*[^\w\s]|\s+")
PER_ITEM, PER_REQUEST, PER_MEDIA = 3, 3, 85
_SPOKEN = {"function_call": "arguments", "custom_tool_call": "input"}
_MEDIA = {
    *("input_image", "input_file", "input_audio"),
    *("image_url", "file", "image", "document"),
}


def pieces(text: str) -> list[str]:
    """The tokens of a text; joined they are the text again."""
    return _PIECE.findall(text)


def count_text(text: str) -> int:
    """Tokens of a text."""
    return sum(1 for _ in _PIECE.finditer(text))


def count_input(body: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> int:
    """Tokens of a request whose whole context is ``items``."""
    total = PER_REQUEST + sum(PER_ITEM + _count_input_item(item) for item in items)
    if isinstance(body.get("instructions"), str):
        total += PER_ITEM + count_text(body["instructions"])
    for name in ("tools", "text"):
        if body.get(name):
            total += count_text(json.dumps(body[name], ensure_ascii=False))
    return total


def _count_input_item(item: Mapping[str, Any]) -> int:
    kind = item.get("type", "message")
    if kind == "message":
        return _count_content(item.get("content"))
    if kind in _SPOKEN:
        return count_text(str(item.get("name"))) + count_text(str(item.get(_SPOKEN[kind], "")))
    if str(kind).endswith("_output"):
        return _count_content(item.get("output"))
    if kind == "reasoning":
        return _count_content(item.get("summary"))
    return count_text(json.dumps(item, ensure_ascii=False))


def _count_content(content: Any) -> int:
    if isinstance(content, str):
        return count_text(content)
    if not isinstance(content, Sequence):
        return 0 if content is None else count_text(json.dumps(content, ensure_ascii=False))
    return sum(_count_part(part) for part in content)


def _count_part(part: Any) -> int:
    if not isinstance(part, Mapping):
        return count_text(json.dumps(part, ensure_ascii=False))
    if str(part.get("type")) in _MEDIA:
        return PER_MEDIA
    return count_text(str(part.get("text", part.get("refusal", ""))))


def count_item(item: Mapping[str, Any]) -> int:
    """Visible output tokens of an item; what the provider runs itself counts nothing."""
    kind = item.get("type")
    if kind == "message":
        return _count_content(item.get("content"))
    if kind in _SPOKEN:
        return count_text(str(item.get("name"))) + count_text(str(item.get(_SPOKEN[kind], "")))
    return 0


def cut_items(items: Sequence[Item], usage: Usage, cap: int) -> tuple[list[Item], Usage]:
    """The items as far as ``cap`` output tokens reach, and the usage then. Reasoning is spent first."""
    hidden = min(usage.reasoning_tokens, cap)
    visible, spoken = cap - hidden, usage.output_tokens - usage.reasoning_tokens
    counted = sum(count_item(item) for item in items)
    left = counted * visible // spoken if spoken > 0 else 0
    kept: list[Item] = []
    for item in items:
        weight = count_item(item)
        if weight > left:
            kept += [] if left == 0 else [_cut_item(item, left)]
            break
        kept.append(item)
        left -= weight
    return kept, replace(usage, output_tokens=cap, reasoning_tokens=hidden)


def _cut_item(item: Item, left: int) -> Item:
    cut = {**item, "status": "incomplete"}
    if item["type"] == "message":
        cut["content"] = _cut_content(item["content"], left)
    else:
        key = _SPOKEN[item["type"]]
        words = pieces(str(item.get(key, "")))
        cut[key] = "".join(words[: max(0, left - count_text(str(item.get("name"))))])
    return cut


def _cut_content(content: Sequence[Mapping[str, Any]], left: int) -> list[Item]:
    kept = []
    for part in content:
        key = "refusal" if part.get("type") == "refusal" else "text"
        words = pieces(part[key])
        kept.append({**part, key: "".join(words[:left])})
        left -= len(words)
        if left <= 0:
            break
    return kept
