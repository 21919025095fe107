"""Requests of chat completions: checking and freezing them, and what they offer to the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from memoflow.errors import InvalidRequest
from memoflow.providers._chat_calls import KINDS
from memoflow.providers._chat_stream import MAX_CHOICES
from memoflow.providers._request import SDK_KEYS, check_mapping, has_type, read_cap, read_model, refuse_keys
from memoflow.providers.base import PreparedRequest, PriorRound
from memoflow.providers.http import safe_code

if TYPE_CHECKING:
    from memoflow.tools import Tool, Toolset

__all__ = ["CAP_FIELDS", "all_tools", "cap_field", "describe", "prepare"]

CAP_FIELDS: Final = ("max_completion_tokens", "max_tokens")
"""The fields that hold an output cap; the second is the one that compatible servers know."""

_Name = tuple[str | None, str]

_REFUSED_KEYS: Final = {
    **SDK_KEYS,
    "functions": 'they were replaced by tools: give {"type": "function", "function": {…}} there',
    "function_call": "it was replaced by tool_choice: use that",
}


def prepare(request: Mapping[str, Any], toolset: Toolset | None, *, streaming: bool) -> PreparedRequest:
    """Check and freeze a request of a caller; raises InvalidRequest."""
    body = check_mapping(request)
    refuse_keys(body, _REFUSED_KEYS)
    _check_stream_options(body, streaming)
    _check_messages(body)
    _check_tools(body)
    tools = () if toolset is None else tuple(toolset)
    _check_toolset(tools)
    if tools and "tools" not in body:
        body["tools"] = [_schema(tool) for tool in tools]
    prepared = describe(body, streaming=streaming)
    if tools and prepared.choices > 1:
        raise InvalidRequest(
            "The request asks for several choices (n), of which none could be continued with the results of "
            "tools. Ask for one, or leave the tools out."
        )
    return prepared


def describe(body: dict[str, Any], *, streaming: bool, prior: PriorRound | None = None) -> PreparedRequest:
    """The prepared form of a body that was checked, or that a round of it led to."""
    tools, choice = all_tools(body), body.get("tool_choice")
    hosted = tuple(safe_code(tool["type"]) or "unknown" for tool in tools if tool["type"] not in KINDS)
    field = cap_field(body)
    return PreparedRequest(
        body=body,
        model=read_model(body),
        output_cap=None if field is None else read_cap(body, field),
        streaming=streaming,
        offered=_offered(body, tools, choice),
        calls_allowed=choice != "none",
        hosted=(*hosted, "web_search") if body.get("web_search_options") is not None else hosted,
        prior=prior,
        choices=_choices(body),
    )


def cap_field(body: Mapping[str, Any]) -> str | None:
    """The field in which the request names its output cap; raises InvalidRequest if it names two."""
    named = [field for field in CAP_FIELDS if body.get(field) is not None]
    if len(named) > 1:
        raise InvalidRequest(
            "max_completion_tokens and max_tokens are two names of one limit. Give one of them."
        )
    return named[0] if named else None


def all_tools(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The tools of the request, each an object with a type."""
    tools: list[dict[str, Any]] = body.get("tools", [])
    return tools


def _choices(body: dict[str, Any]) -> int:
    asked = body.get("n")
    if asked is None:
        return 1
    if type(asked) is not int or not 1 <= asked <= MAX_CHOICES:
        raise InvalidRequest(
            f"n must be a whole number from 1 to {MAX_CHOICES}. Correct it, or leave it out."
        )
    return asked


def _check_stream_options(body: dict[str, Any], streaming: bool) -> None:
    options = body.get("stream_options")
    if options is not None and not streaming:
        raise InvalidRequest("stream_options only has a meaning for stream(). Leave it out of this call.")
    if not (options is None or isinstance(options, dict)):
        raise InvalidRequest("stream_options must be an object. Correct it, or leave it out.")


def _check_messages(body: dict[str, Any]) -> None:
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise InvalidRequest(
            'messages must be a list of message objects: [{"role": "user", "content": …}]. Correct it.'
        )


def _check_tools(body: dict[str, Any]) -> None:
    tools, choice = body.get("tools", []), body.get("tool_choice")
    if not isinstance(tools, list) or not all(map(has_type, tools)):
        raise InvalidRequest(
            "tools must be a list of objects with a type. Leave the key out to offer the registered tools."
        )
    for tool in tools:
        if tool["type"] == "namespace":
            raise InvalidRequest("This API has no namespaces of tools. Give the tools without one.")
        if tool["type"] in KINDS and _name(tool) is None:
            raise InvalidRequest(
                f"A {tool['type']} tool of the request has no name. This API wants it within the tool: "
                '{"type": "function", "function": {"name": …, "parameters": …}}.'
            )
    if not (choice is None or isinstance(choice, (str, dict))):
        raise InvalidRequest("tool_choice must be text or an object. Correct it, or leave it out.")


def _check_toolset(tools: tuple[Tool[..., Any], ...]) -> None:
    for tool in tools:
        if tool.namespace:
            raise InvalidRequest(
                f"The tool {tool.name!r} is in the namespace {tool.namespace!r}, and this API has no "
                "namespaces. Register it without one for this call."
            )


def _schema(tool: Tool[..., Any]) -> dict[str, Any]:
    kind = "custom" if tool.custom else "function"
    entry: dict[str, Any] = {"name": tool.name}
    if tool.description:
        entry["description"] = tool.description
    if not tool.custom:
        entry["parameters"] = tool.schema
        # Without the field a function is not strict, and compatible servers may not know it.
        entry |= {"strict": True} if tool.strict else {}
    return {"type": kind, kind: entry}


def _name(entry: Any) -> str | None:
    """The name that a function or custom tool, or a choice of one, holds under the key of its type."""
    part = entry.get(entry["type"]) if has_type(entry) and entry["type"] in KINDS else None
    name = part.get("name") if isinstance(part, dict) else None
    return name if isinstance(name, str) and name else None


def _offered(
    body: dict[str, Any], tools: list[dict[str, Any]], choice: str | dict[str, Any] | None
) -> frozenset[_Name] | None:
    if "tools" not in body:
        return None
    offered = frozenset(name for name in map(_name, tools) if name is not None)
    chosen = offered & _chosen(choice, offered) if isinstance(choice, dict) else offered
    return frozenset((None, name) for name in chosen)


def _chosen(choice: dict[str, Any], offered: frozenset[str]) -> frozenset[str]:
    """What a tool choice leaves of the offered calls; a choice of another kind leaves them all."""
    kind = choice.get("type")
    if kind == "allowed_tools":
        allowed = choice.get(kind)
        entries = allowed.get("tools") if isinstance(allowed, dict) else None
        named = entries if isinstance(entries, list) else []
    elif isinstance(kind, str) and kind in KINDS:
        named = [choice]
    else:
        return offered
    return frozenset(name for name in map(_name, named) if name is not None)
