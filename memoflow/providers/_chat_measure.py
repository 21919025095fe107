"""Measuring the input of a chat completion request.

The frames around the text of a request are covered by constants that are above what usage figures of
real replies show: 3 tokens a message and 3 for the reply that is begun, about 10 for a tool and for the
section of tools, more with the hidden instructions of some models.

A continuation does not measure the conversation again: the usage of the round before is exact, and covers
what no count of text can, such as images and files. What is handed back of that round is at most its
output, since hidden reasoning is not sent again; each message and each call of it may cost a frame.

A prediction is measured as text, for it is billed where the reply differs from it, but as output that no cap
bounds: that is why it has to be declared as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from memoflow.providers._chat_request import all_tools
from memoflow.providers._measuring import compact, leaves
from memoflow.providers.base import Measurement, MeasureMode, PreparedRequest
from memoflow.providers.measure import estimate_tokens, json_bytes, text_bytes

__all__ = [
    "FORMAT_TOKENS",
    "MESSAGE_TOKENS",
    "REQUEST_TOKENS",
    "TOOLS_TOKENS",
    "TOOL_TOKENS",
    "frames_of",
    "measure",
    "undeclared",
]

REQUEST_TOKENS: Final = 96
TOOLS_TOKENS: Final = 256
TOOL_TOKENS: Final = 16
FORMAT_TOKENS: Final = 64
MESSAGE_TOKENS: Final = 16

# Everything else at the top of a request is counted, so that a field unknown here is never free.
_NOT_PROMPT: Final = frozenset(
    {
        "audio",
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "metadata",
        "modalities",
        "model",
        "moderation",
        "n",
        "parallel_tool_calls",
        "presence_penalty",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning_effort",
        "safety_identifier",
        "seed",
        "service_tier",
        "stop",
        "store",
        "stream_options",
        "temperature",
        "top_logprobs",
        "top_p",
        "user",
        "web_search_options",
    }
)
# The API's own and those of compatible servers.
_MEDIA: Final = {
    "audio_url": "audio",
    "document_url": "file",
    "file": "file",
    "image": "image",
    "image_url": "image",
    "input_audio": "audio",
    "input_image": "image",
    "video": "video",
    "video_url": "video",
}
# Fields of messages that are frames, not text; MESSAGE_TOKENS covers what the model sees of them.
_FRAME: Final = frozenset({"id", "prompt_cache_breakpoint", "role", "tool_call_id", "type"})


def measure(prepared: PreparedRequest, mode: MeasureMode) -> Measurement:
    """Input tokens of everything that can be measured; see `undeclared` for the rest."""
    prior = prepared.prior
    if prior is not None:
        known = prior.tokens + MESSAGE_TOKENS * prior.items
        return Measurement(known + _messages_tokens(prior.appended, prepared.model, mode), mode)
    return Measurement(_whole_tokens(prepared.body, prepared.model, mode), mode)


def undeclared(prepared: PreparedRequest) -> tuple[str, ...]:
    """Codes of the parts whose tokens cannot be told from the request, in a fixed order.

    A continuation whose earlier round is known only has those that may add input within the round.
    """
    body, prior = prepared.body, prepared.prior
    messages = body["messages"] if prior is None else prior.appended
    reasons = {reason for message in messages for reason in _message_reasons(message)}
    if prepared.hosted:
        reasons.add("hosted_tool")
    if body.get("prediction") is not None:
        reasons.add("prediction")
    modalities = body.get("modalities")
    if prior is None and isinstance(modalities, list) and "audio" in modalities:
        reasons.add("audio_output")
    return tuple(sorted(reasons))


def frames_of(message: dict[str, Any]) -> int:
    """How many frames a message that is handed back may cost: its own and one for each call."""
    calls = message.get("tool_calls")
    return 1 + (len(calls) if isinstance(calls, list) else 0)


def _message_reasons(message: dict[str, Any]) -> Iterator[str]:
    yield from (_MEDIA[part["type"]] for part in _parts(message) if _is_media(part))
    # Earlier audio of the model is named by its id.
    if message.get("audio") is not None:
        yield "audio"


def _parts(message: dict[str, Any]) -> list[Any]:
    content = message.get("content")
    return content if isinstance(content, list) else [content]


def _is_media(part: Any) -> bool:
    kind = part.get("type") if isinstance(part, dict) else None
    return isinstance(kind, str) and kind in _MEDIA


def _without_media(message: dict[str, Any]) -> dict[str, Any]:
    parts = _parts(message)
    if not any(map(_is_media, parts)):
        return message
    return {**message, "content": [part for part in parts if not _is_media(part)]}


def _whole_tokens(body: dict[str, Any], model: str, mode: MeasureMode) -> int:
    rest = {key: value for key, value in body.items() if key not in _NOT_PROMPT and value is not None}
    tools = all_tools(body)
    total = REQUEST_TOKENS + (FORMAT_TOKENS if rest.get("response_format") else 0)
    total += TOOLS_TOKENS + TOOL_TOKENS * len(tools) if tools else 0
    if rest:
        total += json_bytes(rest) if mode == "bound" else estimate_tokens([compact(rest)], model)
    return total + _messages_tokens(body["messages"], model, mode)


def _messages_tokens(messages: Iterable[dict[str, Any]], model: str, mode: MeasureMode) -> int:
    kept = [_without_media(message) for message in messages]
    frames = MESSAGE_TOKENS * sum(map(frames_of, kept))
    bound = sum(map(_message_bound, kept))
    if mode == "bound":
        return frames + bound
    texts = (text for message in kept for text in leaves(message, _FRAME))
    return frames + min(bound, estimate_tokens(texts, model))


def _message_bound(message: dict[str, Any]) -> int:
    content = message.get("content")
    if message.keys() == {"role", "content"} and isinstance(content, str):
        return text_bytes(content)
    return text_bytes(compact(message))
