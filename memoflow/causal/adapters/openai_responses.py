"""Items of the OpenAI Responses API: output of a reply, and the outputs that its host sends back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from memoflow.canonical import JSON
from memoflow.causal._frozen import EMPTY, freeze
from memoflow.causal.adapters.seen import Seen, SeenCall, SeenResult, content, parts
from memoflow.causal.envelopes import OPENAI_RESPONSES

__all__ = ["read"]

_TEXTS: Final = {"function_call": "arguments", "custom_tool_call": "input"}
_ABOUT_THE_ITEM: Final = frozenset({"type", "id", "call_id", "name", "status", "caller"})
_RESULTS: Final = ("results", "outputs", "output", "result", "error")


def read(items: Iterable[object]) -> Seen:
    """The calls and results among items, in order: objects of the SDK, or plain JSON.

    Items that the provider executed (web search, file search, code interpreter, MCP and the like) are calls
    too, with what they say of their result. Other items are passed over.

    Raises:
        InvalidRequest: an item has no JSON form.
    """
    calls: list[SeenCall] = []
    results: list[SeenResult] = []
    for item in parts(items):
        kind = item.get("type")
        if not isinstance(kind, str):
            continue
        if kind.endswith("_call"):
            calls.append(_host_call(item, kind) if _is_the_hosts(item, kind) else _hosted_call(item, kind))
        elif kind.endswith("_call_output"):
            results.append(_result(item, kind))
    return Seen(tuple(calls), tuple(results))


def _is_the_hosts(item: dict[str, JSON], kind: str) -> bool:
    """What has an id to answer to is answered by the host; what the provider runs has none."""
    return kind in _TEXTS or item.get("call_id") is not None


def _host_call(item: dict[str, JSON], kind: str) -> SeenCall:
    text = item.get(_TEXTS[kind]) if kind in _TEXTS else _own_members(item)
    return SeenCall(
        shape=OPENAI_RESPONSES,
        kind=kind,
        call_id=_text(item.get("call_id")),
        name=_text(item.get("name")) if kind in _TEXTS else kind.removesuffix("_call"),
        # The input of a custom tool is text, whatever it looks like.
        arguments=text if kind == "custom_tool_call" else content(text, blank=EMPTY),
        result_kind=f"{kind}_output",
    )


def _hosted_call(item: dict[str, JSON], kind: str) -> SeenCall:
    output = {key: item[key] for key in _RESULTS if item.get(key) is not None}
    failed = item.get("status") in ("failed", "incomplete") or item.get("error") is not None
    call_id = _text(item.get("id"))
    arguments = _own_members(item)
    return SeenCall(
        shape=OPENAI_RESPONSES,
        kind=kind,
        call_id=call_id,
        name=_text(item.get("name")) or kind.removesuffix("_call"),
        arguments=content(arguments.get("arguments")) if kind == "mcp_call" else arguments,
        hosted=True,
        result=SeenResult(kind, call_id, freeze({"status": item.get("status"), **output}), failed),
    )


def _own_members(item: dict[str, JSON]) -> dict[str, JSON]:
    """What an item says of the call: not of itself, and not of its result."""
    kept = {key: value for key, value in item.items() if key not in _ABOUT_THE_ITEM and key not in _RESULTS}
    frozen: dict[str, JSON] = freeze(kept)
    return frozen


def _result(item: dict[str, JSON], kind: str) -> SeenResult:
    # The output of a local shell names its call in ``id``; all others in ``call_id``.
    named = item.get("call_id") if "call_id" in item else item.get("id")
    raw = item.get("output")
    output = raw if kind == "custom_tool_call_output" and isinstance(raw, str) else content(raw)
    return SeenResult(kind, _text(named), output, item.get("status") in ("failed", "incomplete"))


def _text(value: JSON) -> str | None:
    return value if isinstance(value, str) and value.strip() else None
