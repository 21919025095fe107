"""Measuring the input of a Responses request.

What surrounds the text of a request on its way into the model is not published, so it is covered by
constants that were chosen above what usage figures of real replies show:

- a request: a hidden system message; up to about 70 tokens seen,
- tools: the headers of the tool section and of parallel calling; about 200 seen,
- each tool, and each response format: its frame around the schema,
- each item: role and message markers, 3 to 7 seen.

A continuation does not measure the conversation again. All of it was in the earlier round, whose usage is
exact: input(n + 1) <= input(n) + output(n) + what was appended since + scaffolding of the items. This is
tighter than any count of text, and it also covers what cannot be counted from text: encrypted or stored
reasoning, images, files and the history behind ``previous_response_id`` or ``conversation``.

In a first request encrypted content counts at one token a byte in the bound and half of that in the
estimate: it is base64 of an encryption of text, so it is longer than the text unless that was compressed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from memoflow.providers._measuring import compact, leaves
from memoflow.providers._responses_request import all_tools
from memoflow.providers.base import Measurement, MeasureMode, PreparedRequest
from memoflow.providers.measure import estimate_tokens, json_bytes, text_bytes

__all__ = [
    "FORMAT_TOKENS",
    "ITEM_TOKENS",
    "REQUEST_TOKENS",
    "TOOLS_TOKENS",
    "TOOL_TOKENS",
    "measure",
    "undeclared",
]

REQUEST_TOKENS: Final = 96
TOOLS_TOKENS: Final = 256
TOOL_TOKENS: Final = 16
FORMAT_TOKENS: Final = 64
ITEM_TOKENS: Final = 16

# Everything else at the top of a request is counted, so that a field unknown here is never free.
_NOT_PROMPT: Final = frozenset(
    {
        "access_programs",
        "background",
        "context_management",
        "conversation",
        "image",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "model",
        "moderation",
        "parallel_tool_calls",
        "previous_response_id",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "store",
        "stream_options",
        "temperature",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
    }
)
_MEDIA: Final = {
    "computer_screenshot": "image",
    "input_audio": "audio",
    "input_file": "file",
    "input_image": "image",
}
_OPAQUE_ITEMS: Final = {
    "code_interpreter_call": "hosted_item",
    "file_search_call": "hosted_item",
    "image_generation_call": "image",
    "item_reference": "item_reference",
    "web_search_call": "hosted_item",
}
_PLAIN_ITEMS: Final = frozenset(
    {
        "message",
        "reasoning",
        "compaction",
        "function_call",
        "custom_tool_call",
        "function_call_output",
        "custom_tool_call_output",
    }
)
# Fields of plain items that are frames, not text; ITEM_TOKENS covers what the model sees of them.
_FRAME: Final = frozenset(
    {
        "annotations",
        "async",
        "caller",
        "call_id",
        "created_by",
        "encrypted_content",
        "id",
        "logprobs",
        "phase",
        "prompt_cache_breakpoint",
        "role",
        "status",
        "type",
    }
)


def measure(prepared: PreparedRequest, mode: MeasureMode) -> Measurement:
    """Input tokens of everything that can be measured; see `undeclared` for the rest."""
    prior = prepared.prior
    if prior is not None:
        known = prior.tokens + ITEM_TOKENS * prior.items
        return Measurement(known + _items_tokens(prior.appended, prepared.model, mode), mode)
    body = prepared.body
    return Measurement(_whole_tokens(body, _input_items(body), prepared.model, mode), mode)


def undeclared(prepared: PreparedRequest) -> tuple[str, ...]:
    """Codes of the parts whose tokens cannot be told from the request, in a fixed order.

    A continuation whose earlier round is known only has those that may add input within the round.
    """
    body, prior = prepared.body, prepared.prior
    items = _input_items(body) if prior is None else prior.appended
    reasons = {reason for item in items for reason in _item_reasons(item)}
    if prepared.hosted:
        reasons.add("hosted_tool")
    keys = ["context_management"] + ([] if prior else ["conversation", "previous_response_id", "prompt"])
    reasons.update(key for key in keys if body.get(key))
    return tuple(sorted(reasons))


def _input_items(body: dict[str, Any]) -> list[dict[str, Any]]:
    given = body.get("input")
    if isinstance(given, str):
        return [{"content": given}]
    return given or []


def _item_reasons(item: dict[str, Any]) -> Iterator[str]:
    kind = _kind(item)
    if kind in _OPAQUE_ITEMS:
        yield _OPAQUE_ITEMS[kind]
    if kind == "reasoning" and not (item.get("encrypted_content") or item.get("content")):
        yield "stored_reasoning"
    for key in ("content", "output"):
        yield from (_MEDIA[part["type"]] for part in _parts(item.get(key)) if _is_media(part))


def _kind(item: dict[str, Any]) -> str:
    kind = item.get("type")
    if kind is None:
        return "message" if "content" in item else "item_reference"
    return kind if isinstance(kind, str) else ""


def _parts(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_media(part: Any) -> bool:
    kind = part.get("type") if isinstance(part, dict) else None
    return isinstance(kind, str) and kind in _MEDIA


def _without_media(item: dict[str, Any]) -> dict[str, Any]:
    kept = {
        key: [part for part in _parts(item[key]) if not _is_media(part)]
        for key in ("content", "output")
        if any(map(_is_media, _parts(item.get(key))))
    }
    return {**item, **kept} if kept else item


def _whole_tokens(body: dict[str, Any], items: list[dict[str, Any]], model: str, mode: MeasureMode) -> int:
    rest = {key: value for key, value in body.items() if key not in _NOT_PROMPT and value is not None}
    instructions = body.get("instructions")
    if instructions is not None:
        items = [*items, {"content": instructions}]
    total = REQUEST_TOKENS + _tool_frames(body) + (FORMAT_TOKENS if rest.get("text") else 0)
    if rest:
        total += json_bytes(rest) if mode == "bound" else estimate_tokens([compact(rest)], model)
    return total + _items_tokens(items, model, mode)


def _tool_frames(body: dict[str, Any]) -> int:
    tools = all_tools(body)
    members = sum(len(tool["tools"]) for tool in tools if isinstance(tool.get("tools"), list))
    return TOOLS_TOKENS + TOOL_TOKENS * (len(tools) + members) if tools else 0


def _items_tokens(items: Iterable[dict[str, Any]], model: str, mode: MeasureMode) -> int:
    kept = [_without_media(item) for item in items]
    frames = ITEM_TOKENS * len(kept)
    bound = sum(map(_item_bound, kept))
    if mode == "bound":
        return frames + bound
    sealed = sum(-(-_sealed_bytes(item) // 2) for item in kept)
    return frames + min(bound, sealed + estimate_tokens((t for i in kept for t in _texts(i)), model))


def _item_bound(item: dict[str, Any]) -> int:
    if item.keys() == {"content"} and isinstance(item["content"], str):
        return text_bytes(item["content"])
    return text_bytes(compact(item)) if _kind(item) in _PLAIN_ITEMS else json_bytes(item)


def _sealed_bytes(item: dict[str, Any]) -> int:
    sealed = item.get("encrypted_content")
    return len(sealed) if isinstance(sealed, str) else 0


def _texts(item: dict[str, Any]) -> Iterator[str]:
    return leaves(item, _FRAME) if _kind(item) in _PLAIN_ITEMS else iter((compact(item),))
