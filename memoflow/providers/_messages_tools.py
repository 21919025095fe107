"""Tools of Messages requests: who answers them, which calls they allow, and how registered ones are offered.

Three sorts: tools whose schema stands in the request; predefined tools, which the caller answers too but of
which only the provider knows the schema; and hosted ones, which run at the provider. A toolset of the API is
one entry for many predefined tools. Its calls name it, which is the namespace of the tools that answer them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from memoflow.errors import InvalidRequest
from memoflow.providers.http import safe_code

if TYPE_CHECKING:
    from memoflow.tools import Tool

__all__ = ["hosted_types", "is_described", "is_predefined", "offered_calls", "schemas"]

_PREDEFINED: Final = ("bash_", "browser_toolset_", "computer_", "memory_", "text_editor_")
_HOSTED: Final = (
    "advisor_",
    "code_execution_",
    "mcp_toolset",
    "tool_search_tool_",
    "web_fetch_",
    "web_search_",
)
_SHARED_MEMBERS: Final = (
    "double_click hold_key key left_click left_click_drag left_mouse_down left_mouse_up middle_click "
    "mouse_move right_click screenshot scroll triple_click type wait zoom"
)
_BROWSER_MEMBERS: Final = (
    "close_tab file_upload find form_input get_page_text hover javascript_exec list_tabs navigate new_tab "
    "read_console read_network read_page scroll_to switch_tab"
)
_MEMBERS: Final = {
    "browser": frozenset(f"{_SHARED_MEMBERS} {_BROWSER_MEMBERS}".split(" ")),
    "computer": frozenset(f"{_SHARED_MEMBERS} cursor_position".split(" ")),
}

# What the provider's strict mode does not take, beside schemas that lead back to themselves; see
# https://platform.claude.com/docs/en/build-with-claude/structured-outputs.
_RANGES: Final = "exclusiveMaximum exclusiveMinimum maximum minimum multipleOf"
_LENGTHS: Final = "maxItems maxLength minItems minLength pattern"
_NOT_STRICT: Final = frozenset(f"{_RANGES} {_LENGTHS}".split(" "))
_MOST_STRICT: Final = 20

_Name = tuple[str | None, str]


def is_described(tool: dict[str, Any]) -> bool:
    """Whether all that the model sees of this tool is in the request."""
    return tool.get("type") in (None, "custom")


def is_predefined(tool: dict[str, Any]) -> bool:
    """Whether the caller answers a tool of which only the provider knows the schema."""
    kind = tool.get("type")
    return isinstance(kind, str) and kind.startswith(_PREDEFINED)


def hosted_types(tools: list[dict[str, Any]]) -> tuple[str, ...]:
    """Types of the tools that run at the provider; one that is not known here may be one of them."""
    hosted = (tool for tool in tools if not is_described(tool) and not is_predefined(tool))
    return tuple(safe_code(tool["type"]) or "unknown" for tool in hosted)


def offered_calls(tools: list[dict[str, Any]], choice: dict[str, Any] | None) -> frozenset[_Name]:
    """The calls that tools and a tool choice leave to the model, each as (toolset, name)."""
    offered = frozenset(pair for tool in tools for pair in _names(tool))
    if choice is None or choice.get("type") != "tool":
        return offered
    return frozenset(pair for pair in offered if pair[1] == choice.get("name"))


def schemas(tools: tuple[Tool[..., Any], ...], *, strict: bool) -> list[dict[str, Any]]:
    """Registered tools as the API wants them.

    Raises:
        InvalidRequest: one has a namespace or takes raw text, which this API has no form for.
    """
    for tool in tools:
        if tool.namespace or tool.custom:
            what = "takes raw text" if tool.custom else "is in a namespace"
            raise InvalidRequest(
                f"The tool {tool.name!r} {what}, which the Messages API has no form for. "
                "Register it as a plain function tool to offer it here."
            )
    enforced = [tool.name for tool in tools if strict and tool.strict and _can_be_strict(tool.schema)]
    # More of them are refused as a whole, and a call is checked again before it runs.
    named = frozenset(enforced if len(enforced) <= _MOST_STRICT else ())
    return [_schema(tool, tool.name in named) for tool in tools]


def _schema(tool: Tool[..., Any], strict: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": tool.name}
    if tool.description:
        entry["description"] = tool.description
    entry["input_schema"] = tool.schema
    return {**entry, "strict": True} if strict else entry


def _can_be_strict(schema: dict[str, Any]) -> bool:
    definitions = schema.get("$defs", {})
    # A definition that refers to others may lead back to itself, which the provider cannot compile.
    if any("$ref" in node for one in definitions.values() for node in _objects(one)):
        return False
    return not any(_NOT_STRICT & node.keys() for node in _schema_nodes(schema))


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(child)


def _schema_nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """The schemas within a schema; names of properties are no keywords."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key in ("properties", "$defs"):
        for child in schema.get(key, {}).values():
            yield from _schema_nodes(child)
    for child in (schema.get("items"), *schema.get("anyOf", ())):
        yield from _schema_nodes(child)


def _names(tool: dict[str, Any]) -> Iterator[_Name]:
    kind, name = tool.get("type"), tool.get("name")
    family, found, _ = kind.partition("_toolset_") if isinstance(kind, str) else ("", "", "")
    if found and family in _MEMBERS:
        disabled = _disabled(tool.get("configs"))
        yield from ((family, member) for member in sorted(_MEMBERS[family] - disabled))
    elif isinstance(name, str) and name and not (isinstance(kind, str) and kind.startswith(_HOSTED)):
        yield None, name


def _disabled(configs: Any) -> frozenset[str]:
    members = configs.items() if isinstance(configs, dict) else ()
    return frozenset(name for name, one in members if isinstance(one, dict) and one.get("enabled") is False)
