"""Output items of a Responses reply: which of them are calls, whose calls, and what contradicts itself.

Items are told apart by ``type`` alone. An unknown item is passed through; it is never a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from memoflow.providers._reading import repeated_ids, text_or_none
from memoflow.providers.base import AnsweredCall, CallKind, HostedCall, RequestedCall
from memoflow.providers.http import safe_code

__all__ = ["Items", "answers", "call_kind", "raw_call", "read_items"]

_ARGUMENTS: Final = {"function": "arguments", "custom": "input"}
_KINDS: Final[dict[str, CallKind]] = {"function_call": "function", "custom_tool_call": "custom"}
_OUTPUTS: Final = {"function": "function_call_output", "custom": "custom_tool_call_output"}

# They wait for an answer that only the caller's own screen, shell, disk or user can give.
_CLIENT_CALLS: Final = frozenset(
    {"apply_patch_call", "computer_call", "local_shell_call", "mcp_approval_request", "shell_call"}
)
_HOSTED_WITHOUT_SUFFIX: Final = frozenset({"mcp_list_tools", "program"})


@dataclass(frozen=True, slots=True)
class Items:
    """What the output items of one reply ask for."""

    calls: tuple[RequestedCall, ...]
    hosted: tuple[HostedCall, ...]
    needs_client: tuple[str, ...]
    refused: bool
    problem: str | None


def read_items(output: list[Any], *, runnable: bool) -> Items:
    """Sort the items of a reply; no call is complete unless ``runnable`` and nothing contradicts itself."""
    items = [item for item in output if isinstance(item, dict) and isinstance(item.get("type"), str)]
    problem = None if len(items) == len(output) else "an output item is not an object with a type"
    answered = _answered(items)
    calls: list[RequestedCall] = []
    hosted: list[HostedCall] = []
    needs_client: list[str] = []
    for item in items:
        is_open = answered.isdisjoint(_own_ids(item))
        if is_open and call_kind(item):
            call = _read_call(item, len(calls))
            problem = problem or (call if isinstance(call, str) else None)
            calls += [call] if isinstance(call, RequestedCall) else []
        elif is_open and _waits_for_client(item):
            needs_client.append(item["type"])
        elif _is_hosted(item):
            hosted.append(_hosted(item, len(hosted)))
    problem = problem or repeated_ids(calls)
    if problem or not runnable:
        calls = [replace(call, complete=False) for call in calls]
    return Items(tuple(calls), tuple(hosted), tuple(needs_client), any(map(_is_refusal, items)), problem)


def call_kind(item: dict[str, Any]) -> CallKind | None:
    """``function`` or ``custom`` for a call that a tool may answer, else None."""
    kind = item.get("type")
    return _KINDS.get(kind) if isinstance(kind, str) else None


def raw_call(item: dict[str, Any]) -> tuple[Any, ...]:
    """The parts of a call that must be the same wherever the call is repeated."""
    kind = call_kind(item)
    arguments = item.get(_ARGUMENTS[kind]) if kind else None
    namespace = item.get("namespace") or None
    return kind, item.get("call_id"), namespace, item.get("name"), arguments, _is_complete(item)


def _is_complete(item: dict[str, Any]) -> bool:
    return item.get("status") in (None, "completed")


def answers(results: Sequence[AnsweredCall], output: list[Any]) -> list[dict[str, Any]]:
    """The items that answer calls of a reply, in the given order."""
    callers: dict[tuple[str | None, str], Any] = {}
    for raw in output:
        if isinstance(raw, dict) and isinstance(raw.get("call_id"), str):
            callers.setdefault((call_kind(raw), raw["call_id"]), raw.get("caller"))
    return [
        _answer(one.request, one.text, callers.get((one.request.kind, one.request.call_id)))
        for one in results
    ]


def _answer(call: RequestedCall, text: str, caller: Any) -> dict[str, Any]:
    item = {"type": _OUTPUTS[call.kind], "call_id": call.call_id, "output": text}
    # A call that a program of the model made is answered to that program.
    return {**item, "caller": caller} if isinstance(caller, dict) else item


def _answered(items: list[dict[str, Any]]) -> set[Any]:
    """Ids of the calls that have their answer in the same reply, because the provider ran them."""
    ids: set[Any] = set()
    for item in items:
        kind = item["type"]
        if kind.endswith("_output"):
            # local_shell_call_output names its call in ``id``; all others in ``call_id``.
            named = item.get("id") if kind == "local_shell_call_output" else item.get("call_id")
        elif kind == "mcp_approval_response":
            named = item.get("approval_request_id")
        else:
            continue
        if isinstance(named, str):
            ids.add(named)
    return ids


def _own_ids(item: dict[str, Any]) -> set[str]:
    return {value for key in ("call_id", "id") if isinstance(value := item.get(key), str)}


def _waits_for_client(item: dict[str, Any]) -> bool:
    if item["type"] == "tool_search_call":
        return item.get("execution") == "client"
    return item["type"] in _CLIENT_CALLS


def _is_hosted(item: dict[str, Any]) -> bool:
    return item["type"].endswith("_call") or item["type"] in _HOSTED_WITHOUT_SUFFIX


def _is_refusal(item: dict[str, Any]) -> bool:
    content = item.get("content") if item["type"] == "message" else None
    return isinstance(content, list) and any(
        isinstance(part, dict) and part.get("type") == "refusal" for part in content
    )


def _hosted(item: dict[str, Any], ordinal: int) -> HostedCall:
    kind = safe_code(item["type"]) or "unknown"
    return HostedCall(ordinal, kind, text_or_none(item.get("id")))


def _read_call(item: dict[str, Any], ordinal: int) -> RequestedCall | str:
    """The call, or what is wrong with it."""
    kind, call_id, namespace, name, arguments, complete = raw_call(item)
    if not text_or_none(call_id):
        return f"call {ordinal} has no usable call id"
    if not isinstance(name, str) or not isinstance(arguments, str):
        return f"call {ordinal} has no name or no arguments as text"
    if not (namespace is None or isinstance(namespace, str)) or "\0" in name + (namespace or ""):
        return f"call {ordinal} has a name or namespace that is no name"
    return RequestedCall(ordinal, call_id, name, namespace, kind, arguments, complete)
