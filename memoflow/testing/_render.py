"""From what a script says to the response object the API would send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memoflow.providers.base import Usage
from memoflow.testing._encoding import Ids
from memoflow.testing._items import Item
from memoflow.testing._request import ProviderRequest
from memoflow.testing._script import ModelReply
from memoflow.testing._speech import speak
from memoflow.testing._usage import report_usage, spoil_usage

__all__ = ["Generation", "generate", "item_id", "pending"]

_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "reasoning": "rs",
    "web_search_call": "ws",
    "file_search_call": "fs",
    "code_interpreter_call": "ci",
    "computer_call": "cu",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
    "image_generation_call": "ig",
}
_CALLS = {"function_call", "custom_tool_call", "computer_call"}
_WITHOUT_STATUS = {"reasoning", "mcp_list_tools", "mcp_approval_request"}
_ECHOED: dict[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}


@dataclass(frozen=True, slots=True)
class Generation:
    """A complete generation: the terminal response as reported, and the usage that is billed for it."""

    response: dict[str, Any]
    usage: Usage | None


def item_id(item: Mapping[str, Any], ids: Ids) -> str:
    """A new id for an item of this type."""
    return ids.new(_PREFIXES.get(str(item.get("type")), "item"))


def generate(reply: ModelReply, request: ProviderRequest, response_id: str, ids: Ids) -> Generation:
    """Carry out a reply of the script for a request."""
    speech = speak(reply, request, request.body.get("max_output_tokens"))
    status, reason, usage = speech.status, speech.reason, speech.usage
    if speech.stop is not None:
        status, reason = "incomplete", speech.stop
    response = _frame(request.body, response_id, ids) | {
        "status": status,
        "output": _complete(speech.items, request.body, ids),
        "error": reply.error,
        "incomplete_details": None if reason is None else {"reason": reason},
        "usage": None if usage is None else report_usage(usage),
        **_overridden(reply),
    }
    response["completed_at"] = ids.second() if status == "completed" else None
    if reply.usage_variant is not None and usage is not None:
        response = spoil_usage(response, reply.usage_variant)
    return Generation(response | reply.fields, usage)


def pending(response: Mapping[str, Any], status: str) -> dict[str, Any]:
    """The response as it looks before it is terminal."""
    empty: dict[str, Any] = {
        "output": [],
        "usage": None,
        "error": None,
        "incomplete_details": None,
        "completed_at": None,
    }
    return {**response, **empty, "status": status}


def _overridden(reply: ModelReply) -> dict[str, Any]:
    given = {"model": reply.model, "service_tier": reply.service_tier}
    return {key: value for key, value in given.items() if value is not None}


def _frame(body: Mapping[str, Any], response_id: str, ids: Ids) -> dict[str, Any]:
    tier = body.get("service_tier") or "auto"
    conversation = body.get("conversation")
    frame = {
        "id": response_id,
        "object": "response",
        "created_at": ids.second(),
        "background": body.get("background") is True,
        "model": body["model"],
        "service_tier": "default" if tier == "auto" else tier,
        **{key: default if body.get(key) is None else body[key] for key, default in _ECHOED.items()},
    }
    if conversation is not None:
        frame["conversation"] = {"id": conversation} if isinstance(conversation, str) else conversation
    return frame


def _complete(items: Sequence[Item], body: Mapping[str, Any], ids: Ids) -> list[Item]:
    encrypts = "reasoning.encrypted_content" in (body.get("include") or ())
    return [_complete_item(item, encrypts, ids) for item in items]


def _complete_item(item: Item, encrypts: bool, ids: Ids) -> Item:
    kind = item.get("type")
    made = dict(item)
    if "id" not in made:
        made = {"id": item_id(item, ids), **made}
    if kind in _CALLS and "call_id" not in made:
        made["call_id"] = ids.new("call")
    if "status" not in made and kind not in _WITHOUT_STATUS and kind in _PREFIXES:
        made["status"] = "completed"
    if kind == "reasoning" and not isinstance(made.get("encrypted_content"), str):
        wanted = made.pop("encrypted_content", None)
        if wanted is True or (wanted is None and encrypts):
            made["encrypted_content"] = ids.new("gAAAAA")
    return made
