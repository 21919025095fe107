"""What the Responses API refuses before it generates, with the codes and wording it uses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from memoflow.testing._rejections import Rejection

__all__ = ["check_body", "check_input"]

_PARAMETERS = frozenset(
    {
        *("access_programs", "background", "background_options", "context_management", "conversation"),
        *("image", "include", "input", "instructions", "max_output_tokens", "max_tool_calls", "metadata"),
        *("model", "moderation", "parallel_tool_calls", "previous_response_id", "prompt"),
        *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning"),
        *("safety_identifier", "service_tier", "store", "stream", "stream_options", "temperature"),
        *("text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user"),
    }
)
_CONTEXT = ("input", "previous_response_id", "prompt", "conversation")
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_LONGEST_NAME = 64
_UNREADABLE = Rejection(message="We could not parse the JSON body of your request.")


def check_body(body: Any, min_output_tokens: int) -> Rejection | None:
    """The first thing the API would object to in the body of a create request, or None."""
    if not isinstance(body, Mapping):
        return _UNREADABLE
    return next(_objections(body, min_output_tokens), None)


def check_input(body: Any) -> Rejection | None:
    """The first thing the API would object to in the body of a counting request, or None."""
    return next(_check_input(body.get("input")), None) if isinstance(body, Mapping) else _UNREADABLE


def _objections(body: Mapping[str, Any], min_output_tokens: int) -> Iterator[Rejection]:
    for name in body:
        if name not in _PARAMETERS:
            yield _about(name, f"Unknown parameter: '{name}'.", "unknown_parameter")
    if not isinstance(body.get("model"), str):
        yield _about("model", "Missing required parameter: 'model'.", "missing_required_parameter")
    if all(body.get(name) is None for name in _CONTEXT):
        yield _about("input", "Missing required parameter: 'input'.", "missing_required_parameter")
    yield from _check_input(body.get("input"))
    yield from _check_cap(body.get("max_output_tokens"), min_output_tokens)
    yield from _check_state(body)
    for index, tool in enumerate(body.get("tools") or ()):
        yield from _check_tool(tool, f"tools[{index}]")


def _about(param: str, message: str, code: str | None = None) -> Rejection:
    return Rejection(message=message, param=param, code=code)


def _check_input(given: Any) -> Iterator[Rejection]:
    if given is None or isinstance(given, str):
        return
    if not isinstance(given, list):
        yield _about("input", "Invalid type for 'input': expected a string or an array.", "invalid_type")
        return
    for index, item in enumerate(given):
        if not isinstance(item, Mapping):
            param = f"input[{index}]"
            yield _about(param, f"Invalid type for '{param}': expected an object.", "invalid_type")


def _check_cap(cap: Any, least: int) -> Iterator[Rejection]:
    param = "max_output_tokens"
    if cap is None:
        return
    if isinstance(cap, bool) or not isinstance(cap, int):
        yield _about(param, f"Invalid type for '{param}': expected an integer.", "invalid_type")
    elif cap < least:
        wanted = f"Expected a value >= {least}, but got {cap} instead."
        message = f"Invalid '{param}': integer below minimum value. {wanted}"
        yield _about(param, message, "integer_below_min_value")


def _check_state(body: Mapping[str, Any]) -> Iterator[Rejection]:
    if body.get("background") is True and body.get("store") is False:
        yield _about("background", "Background mode requires 'store' to be true.")
    if body.get("previous_response_id") is not None and body.get("conversation") is not None:
        message = "Mutually exclusive parameters: 'conversation' and 'previous_response_id'."
        yield _about("conversation", message, "mutually_exclusive_parameters")


def _check_tool(tool: Any, param: str) -> Iterator[Rejection]:
    if not isinstance(tool, Mapping) or not isinstance(tool.get("type"), str):
        yield _about(
            f"{param}.type", f"Missing required parameter: '{param}.type'.", "missing_required_parameter"
        )
        return
    if tool["type"] == "namespace":
        for index, inner in enumerate(tool.get("tools") or ()):
            yield from _check_tool(inner, f"{param}.tools[{index}]")
    if tool["type"] not in ("function", "custom", "namespace"):
        return
    yield from _check_name(tool.get("name"), f"{param}.name")
    if tool["type"] == "function" and tool.get("strict") is True:
        yield from _check_strict(tool, param)


def _check_name(name: Any, param: str) -> Iterator[Rejection]:
    if not isinstance(name, str):
        yield _about(param, f"Missing required parameter: '{param}'.", "missing_required_parameter")
    elif not _NAME.fullmatch(name):
        message = f"Invalid '{param}': string does not match pattern '^[a-zA-Z0-9_-]+$'."
        yield _about(param, message, "invalid_value")
    elif len(name) > _LONGEST_NAME:
        message = f"Invalid '{param}': string too long. Expected a maximum length of {_LONGEST_NAME}."
        yield _about(param, message, "string_above_max_length")


def _check_strict(tool: Mapping[str, Any], param: str) -> Iterator[Rejection]:
    problem = _strict_problem(tool.get("parameters"))
    if problem is not None:
        message = f"Invalid schema for function '{tool['name']}': {problem}"
        yield _about(f"{param}.parameters", message, "invalid_function_parameters")


def _strict_problem(schema: Any) -> str | None:
    """Why a schema is not a strict one: every object closed, and all of its properties required."""
    if isinstance(schema, list):
        return next(filter(None, map(_strict_problem, schema)), None)
    if not isinstance(schema, Mapping):
        return None
    properties = schema.get("properties") or {}
    if schema.get("type") == "object" or properties:
        if schema.get("additionalProperties") is not False:
            return "'additionalProperties' is required to be supplied and to be false."
        if set(schema.get("required") or ()) != set(properties):
            return (
                "'required' is required to be supplied and to be an array including every key in properties."
            )
    named = [*properties.values(), *(schema.get("$defs") or {}).values()]
    nested = [*named, schema.get("items"), schema.get("anyOf"), schema.get("allOf")]
    return _strict_problem(nested)
