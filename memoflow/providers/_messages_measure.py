"""Measuring the input of a Messages request.

What surrounds the text of a request on its way into the model is covered by constants:

- a request: its frame and what a thinking mode adds,
- tools: the system prompt that explains calling, 159 to 530 tokens in the provider's published tables
  (https://docs.anthropic.com/en/docs/tool-use-pricing-and-tokens), with room for newer vocabularies,
- each tool, and an output format: its frame around the schema,
- each message and each content block: its markers.

No tokenizer of the provider's current models is public. The estimate, which already raises the count of
another vocabulary by half, is raised by a quarter once more, since vocabularies of this provider cut the
same text up to a third finer than the ones before them. It is never above the bound.

A continuation does not measure the conversation again: all of it was in the earlier round, whose usage is
exact. This also covers what cannot be counted from text, such as images, thinking that is only shown as a
summary, and predefined tools.

In a first request signatures and redacted thinking count at one token a byte in the bound and half of that
in the estimate: they are base64 of an encryption of text, so they are longer than the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from memoflow.providers._measuring import compact
from memoflow.providers._messages_request import tools_of
from memoflow.providers._messages_tools import is_predefined
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
TOOLS_TOKENS: Final = 1_024
TOOL_TOKENS: Final = 32
FORMAT_TOKENS: Final = 256
ITEM_TOKENS: Final = 16
"""For each message and each content block."""

VOCABULARY_MARGIN: Final = 4
"""One token in this many is added to an estimate."""

# Everything else at the top of a request is counted, so that a field unknown here is never free.
_NOT_PROMPT: Final = frozenset(
    {
        "betas",
        "cache_control",
        "compaction",
        "container",
        "context_management",
        "diagnostics",
        "inference_geo",
        "max_tokens",
        "mcp_servers",
        "messages",
        "metadata",
        "model",
        "service_tier",
        "speed",
        "stop_sequences",
        "system",
        "temperature",
        "thinking",
        "thread",
        "top_k",
        "top_p",
        "user_profile_id",
        "workspace_id",
    }
)
# They may add input within a round; the others are in the usage of an earlier one.
_ALWAYS_OPEN: Final = ("compaction", "context_management", "mcp_servers")
_OPEN_AT_FIRST: Final = ("container", "thread")

_SEALED: Final = ("data", "encrypted_content", "encrypted_stdout", "signature")
_PLAIN_BLOCKS: Final = frozenset({"redacted_thinking", "text", "thinking", "tool_result", "tool_use"})
# Fields of plain blocks that are frames, not text; ITEM_TOKENS covers what the model sees of them.
_FRAME: Final = frozenset({"cache_control", "caller", "citations", "id", "is_error", "tool_use_id", "type"})


def measure(prepared: PreparedRequest, mode: MeasureMode) -> Measurement:
    """Input tokens of everything that can be measured; see `undeclared` for the rest."""
    prior = prepared.prior
    if prior is not None:
        known = prior.tokens + ITEM_TOKENS * prior.items
        return Measurement(known + _messages_tokens(list(prior.appended), prepared.model, mode), mode)
    body = prepared.body
    system = [{"content": body["system"]}] if body.get("system") else []
    tokens = _rest_tokens(body, prepared.model, mode)
    return Measurement(tokens + _messages_tokens([*system, *body["messages"]], prepared.model, mode), mode)


def undeclared(prepared: PreparedRequest) -> tuple[str, ...]:
    """Codes of the parts whose tokens cannot be told from the request, in a fixed order.

    A continuation whose earlier round is known only has those that may add input within the round.
    """
    body, prior = prepared.body, prepared.prior
    messages = body["messages"] if prior is None else prior.appended
    reasons = {reason for message in messages for reason in _reasons(message.get("content"))}
    keys = _ALWAYS_OPEN if prior else _ALWAYS_OPEN + _OPEN_AT_FIRST
    reasons.update(key for key in keys if body.get(key))
    if prepared.hosted:
        reasons.add("hosted_tool")
    if prior is None and any(map(is_predefined, tools_of(body))):
        reasons.add("predefined_tool")
    return tuple(sorted(reasons))


def _reasons(content: Any) -> Iterator[str]:
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict):
            continue
        kind = block.get("type")
        if kind == "container_upload":
            yield "container"
        elif kind in ("document", "image"):
            yield from _media_reasons(block, kind)
        else:
            # The provider keeps the text of what its own tools found, and shows an encryption of it.
            if isinstance(kind, str) and kind.endswith("_tool_result") and kind != "mcp_tool_result":
                yield "hosted_item"
            yield from _reasons(block.get("content"))


def _media_reasons(block: dict[str, Any], kind: str) -> Iterator[str]:
    source = block.get("source")
    if _is_text_document(block):
        yield from _reasons(source.get("content") if isinstance(source, dict) else None)
    else:
        yield kind


def _is_text_document(block: dict[str, Any]) -> bool:
    source = block.get("source")
    return (
        block.get("type") == "document"
        and isinstance(source, dict)
        and source.get("type") in ("text", "content")
    )


def _without_media(value: Any) -> Any:
    """A block without the bytes of images and files in it, which are no text."""
    if isinstance(value, list):
        return [_without_media(part) for part in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _without_media(part) if key == "content" else part for key, part in value.items()}
    if value.get("type") in ("document", "image"):
        if not _is_text_document(value):
            kept.pop("source", None)
        elif isinstance(value["source"].get("content"), list):
            kept["source"] = _without_media(value["source"])
    return kept


def _rest_tokens(body: dict[str, Any], model: str, mode: MeasureMode) -> int:
    rest = {key: value for key, value in body.items() if key not in _NOT_PROMPT and value is not None}
    tools, output = tools_of(body), body.get("output_config")
    total = REQUEST_TOKENS + (TOOLS_TOKENS + TOOL_TOKENS * len(tools) if tools else 0)
    if isinstance(output, dict) and output.get("format"):
        total += FORMAT_TOKENS
    if not rest:
        return total
    bound = json_bytes(rest)
    return total + (bound if mode == "bound" else min(bound, _estimate([compact(rest)], model)))


def _messages_tokens(messages: list[dict[str, Any]], model: str, mode: MeasureMode) -> int:
    blocks = [_without_media(block) for message in messages for block in _blocks(message)]
    frames = ITEM_TOKENS * (len(messages) + len(blocks))
    bound = sum(map(_block_bound, blocks))
    if mode == "bound":
        return frames + bound
    sealed = sum(-(-_sealed_bytes(block) // 2) for block in blocks)
    texts = [text for block in blocks for text in _texts(block)]
    return frames + min(bound, sealed + _estimate(texts, model))


def _blocks(message: dict[str, Any]) -> list[Any]:
    """The content of a message as blocks; whatever else a message holds counts as one more."""
    content = message.get("content")
    blocks = content if isinstance(content, list) else [] if content is None else [content]
    rest = {key: value for key, value in message.items() if key not in ("content", "role")}
    return [*blocks, rest] if rest else blocks


def _estimate(texts: list[str], model: str) -> int:
    tokens = estimate_tokens(texts, model)
    return tokens + -(-tokens // VOCABULARY_MARGIN)


def _block_bound(block: Any) -> int:
    if isinstance(block, str):
        return text_bytes(block)
    return text_bytes(compact(block)) if _is_plain(block) else json_bytes(block)


def _is_plain(block: Any) -> bool:
    kind = block.get("type") if isinstance(block, dict) else None
    return isinstance(kind, str) and kind in _PLAIN_BLOCKS


def _sealed_bytes(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_sealed_bytes, value))
    if not isinstance(value, dict):
        return 0
    own = sum(len(sealed) for key in _SEALED if isinstance(sealed := value.get(key), str))
    return own + _sealed_bytes(value.get("content"))


def _texts(block: Any) -> Iterator[str]:
    if isinstance(block, str):
        yield block
    elif isinstance(block, list):
        for part in block:
            yield from _texts(part)
    elif isinstance(block, dict):
        kept = {key: value for key, value in block.items() if key not in _SEALED}
        if not _is_plain(block):
            yield compact(kept)
            return
        for key, value in kept.items():
            if key in ("content", "text", "thinking"):
                yield from _texts(value)
            elif key not in _FRAME:
                yield compact(value)
    elif block is not None:
        yield str(block)
