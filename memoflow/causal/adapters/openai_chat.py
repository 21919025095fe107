"""Messages of the OpenAI Chat Completions API: those of the assistant, and those of tools."""

from __future__ import annotations

from collections.abc import Iterable

from memoflow.canonical import JSON
from memoflow.causal._frozen import EMPTY
from memoflow.causal.adapters.seen import Seen, SeenCall, SeenResult, content, parts
from memoflow.causal.envelopes import OPENAI_CHAT

__all__ = ["read"]


def read(messages: Iterable[object]) -> Seen:
    """The calls and results among messages, in order: objects of the SDK, or plain JSON.

    Raises:
        InvalidRequest: a message has no JSON form.
    """
    calls: list[SeenCall] = []
    results: list[SeenResult] = []
    for message in parts(messages):
        asked = message.get("tool_calls")
        calls += [_call(call) for call in asked if isinstance(call, dict)] if isinstance(asked, list) else []
        if message.get("role") == "tool":
            results.append(
                SeenResult("tool", _text(message.get("tool_call_id")), content(message.get("content")))
            )
    return Seen(tuple(calls), tuple(results))


def _call(call: dict[str, JSON]) -> SeenCall:
    kind = "custom" if call.get("type") == "custom" else "function"
    part = call.get(kind)
    named = part if isinstance(part, dict) else EMPTY
    text = named.get("input" if kind == "custom" else "arguments")
    return SeenCall(
        shape=OPENAI_CHAT,
        kind=kind,
        call_id=_text(call.get("id")),
        name=_text(named.get("name")),
        arguments=text if kind == "custom" else content(text, blank=EMPTY),
    )


def _text(value: JSON) -> str | None:
    return value if isinstance(value, str) and value.strip() else None
