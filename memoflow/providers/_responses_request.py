"""Requests of the Responses API: checking and freezing them, and what they offer to the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from memoflow.errors import InvalidRequest
from memoflow.providers._request import SDK_KEYS, check_mapping, has_type, read_cap, read_model, refuse_keys
from memoflow.providers.base import PreparedRequest, PriorRound
from memoflow.providers.http import safe_code

if TYPE_CHECKING:
    from memoflow.tools import Tool, Toolset

__all__ = ["CAP_FIELD", "MEASURED_TOOLS", "all_tools", "describe", "prepare"]

CAP_FIELD: Final = "max_output_tokens"
CAP_MINIMUM: Final = 16

MEASURED_TOOLS: Final = frozenset({"function", "custom", "namespace"})
"""Tools that the caller answers and whose whole text is in the request; all others are hosted."""

_Name = tuple[str | None, str]

_REFUSED_KEYS: Final = {
    **SDK_KEYS,
    "background_options": "background responses are not supported: leave it out",
}


def prepare(request: Mapping[str, Any], toolset: Toolset | None, *, streaming: bool) -> PreparedRequest:
    """Check and freeze a request of a caller; raises InvalidRequest."""
    body = check_mapping(request)
    _check_keys(body, streaming)
    _check_input(body)
    _check_tools(body)
    tools = () if toolset is None else tuple(toolset)
    if tools and "tools" not in body:
        body["tools"] = _schemas(tools)
    return describe(body, streaming=streaming)


def describe(body: dict[str, Any], *, streaming: bool, prior: PriorRound | None = None) -> PreparedRequest:
    """The prepared form of a body that was checked, or that a round of it led to."""
    tools = all_tools(body)
    choice = body.get("tool_choice")
    return PreparedRequest(
        body=body,
        model=read_model(body),
        output_cap=read_cap(body, CAP_FIELD),
        streaming=streaming,
        offered=_offered(body, tools, choice),
        calls_allowed=choice != "none",
        hosted=tuple(safe_code(t["type"]) or "unknown" for t in tools if t["type"] not in MEASURED_TOOLS),
        prior=prior,
        cap_minimum=CAP_MINIMUM,
    )


def all_tools(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The tools of the request and those that input items add to it, each an object with a type."""
    tools = list(body.get("tools", []))
    for item in _items(body):
        added = item.get("tools")
        if item.get("type") in ("additional_tools", "tool_search_output") and isinstance(added, list):
            tools += added
    return [tool for tool in tools if has_type(tool)]


def _items(body: dict[str, Any]) -> list[dict[str, Any]]:
    items = body.get("input")
    return items if isinstance(items, list) else []


def _check_keys(body: dict[str, Any], streaming: bool) -> None:
    refuse_keys(body, _REFUSED_KEYS)
    if body.get("background") not in (None, False):
        raise InvalidRequest(
            "The request asks for a background response, whose outcome this call could not wait for. "
            "Leave background out."
        )
    if body.get("stream_options") is not None and not streaming:
        raise InvalidRequest("stream_options only has a meaning for stream(). Leave it out of this call.")
    if body.get("previous_response_id") is not None and body.get("conversation") is not None:
        raise InvalidRequest("previous_response_id and conversation exclude each other. Give one of them.")


def _check_input(body: dict[str, Any]) -> None:
    given = body.get("input")
    if isinstance(given, list) and all(isinstance(item, dict) for item in given):
        return
    if not (given is None or isinstance(given, str)):
        raise InvalidRequest("input must be text or a list of item objects. Correct it.")


def _check_tools(body: dict[str, Any]) -> None:
    tools, choice = body.get("tools", []), body.get("tool_choice")
    if not isinstance(tools, list) or not all(map(has_type, tools)):
        raise InvalidRequest(
            "tools must be a list of objects with a type. Leave the key out to offer the registered tools."
        )
    for tool in tools:
        name = tool.get("name")
        if tool["type"] in MEASURED_TOOLS and not (isinstance(name, str) and name):
            raise InvalidRequest(
                f"A {tool['type']} tool of the request has no name. This API wants the name at the top of "
                'the tool: {"type": "function", "name": …, "parameters": …}.'
            )
    if not (choice is None or isinstance(choice, (str, dict))):
        raise InvalidRequest("tool_choice must be text or an object. Correct it, or leave it out.")


def _schemas(tools: tuple[Tool[..., Any], ...]) -> list[dict[str, Any]]:
    """Tools as the API wants them; those of a namespace share one entry, at the place of the first."""
    entries: list[dict[str, Any]] = []
    namespaces: dict[str, list[dict[str, Any]]] = {}
    for tool in tools:
        if not tool.namespace:
            entries.append(_schema(tool))
            continue
        if tool.namespace not in namespaces:
            members = namespaces[tool.namespace] = []
            description = f"Tools of {tool.namespace}."
            entry = {"type": "namespace", "name": tool.namespace, "description": description}
            entries.append({**entry, "tools": members})
        namespaces[tool.namespace].append(_schema(tool))
    return entries


def _schema(tool: Tool[..., Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "custom" if tool.custom else "function", "name": tool.name}
    if tool.description:
        entry["description"] = tool.description
    if not tool.custom:
        entry |= {"parameters": tool.schema, "strict": tool.strict}
    return entry


def _offered(
    body: dict[str, Any], tools: list[dict[str, Any]], choice: str | dict[str, Any] | None
) -> frozenset[_Name] | None:
    if "tools" not in body and not tools:
        return None
    offered = frozenset(_names(tools, None))
    return offered if not isinstance(choice, dict) else offered & _chosen(choice, offered)


def _names(tools: list[Any], namespace: str | None) -> Iterator[_Name]:
    for tool in tools:
        name, members = (tool.get("name"), tool.get("tools")) if has_type(tool) else (None, None)
        if not isinstance(name, str) or not name:
            continue
        if tool["type"] in ("function", "custom"):
            yield namespace, name
        elif tool["type"] == "namespace" and namespace is None and isinstance(members, list):
            yield from _names(members, name)


def _chosen(choice: dict[str, Any], offered: frozenset[_Name]) -> frozenset[_Name]:
    """What a tool choice leaves of the offered calls; a hosted tool as the choice leaves them all."""
    kind = choice.get("type")
    if kind in ("function", "custom"):
        entries: Any = [choice]
    elif kind == "allowed_tools":
        entries = choice.get("tools")
    else:
        return offered
    named = entries if isinstance(entries, list) else []
    return frozenset(pair for pair in offered if any(_matches(entry, pair) for entry in named))


def _matches(entry: Any, pair: _Name) -> bool:
    namespace, name = pair
    if not isinstance(entry, dict):
        return False
    if entry.get("type") == "namespace":
        return namespace is not None and entry.get("name") == namespace
    if entry.get("type") not in ("function", "custom"):
        return False
    # A choice without a namespace means the name wherever it stands.
    return entry.get("name") == name and entry.get("namespace", namespace) == namespace
