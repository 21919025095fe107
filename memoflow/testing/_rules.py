"""What the Responses API refuses before it generates, with the codes and wording it uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from memoflow.testing._openai_rules import (
    UNREADABLE,
    about,
    check_least,
    check_name,
    check_strict,
    missing,
    mistyped,
)
from memoflow.testing._rejections import Rejection

__all__ = ["check_body", "check_input", "conversation_id"]

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


def check_body(body: Any, min_output_tokens: int) -> Rejection | None:
    """The first thing the API would object to in the body of a create request, or None."""
    if not isinstance(body, Mapping):
        return UNREADABLE
    return next(_objections(body, min_output_tokens), None)


def check_input(body: Any) -> Rejection | None:
    """The first thing the API would object to in the body of a counting request, or None."""
    return next(_check_context(body), None) if isinstance(body, Mapping) else UNREADABLE


def _check_context(body: Mapping[str, Any]) -> Iterator[Rejection]:
    yield from _check_input(body.get("input"))
    previous = body.get("previous_response_id")
    if previous is not None and not isinstance(previous, str):
        yield mistyped("previous_response_id", "a string")


def _objections(body: Mapping[str, Any], min_output_tokens: int) -> Iterator[Rejection]:
    for name in body:
        if name not in _PARAMETERS:
            yield about(name, f"Unknown parameter: '{name}'.", "unknown_parameter")
    if not isinstance(body.get("model"), str):
        yield missing("model")
    if all(body.get(name) is None for name in _CONTEXT):
        yield missing("input")
    yield from _check_context(body)
    yield from check_least(body.get("max_output_tokens"), "max_output_tokens", min_output_tokens)
    if (included := body.get("include")) is not None and not isinstance(included, list):
        yield mistyped("include", "an array")
    yield from _check_state(body)
    yield from _check_tools(body.get("tools"), "tools")


def _check_tools(tools: Any, param: str) -> Iterator[Rejection]:
    if tools is None:
        return
    if not isinstance(tools, list):
        yield mistyped(param, "an array")
        return
    for index, tool in enumerate(tools):
        yield from _check_tool(tool, f"{param}[{index}]")


def conversation_id(conversation: Any) -> str:
    """The id of the conversation a request or a response names."""
    return str(conversation.get("id") if isinstance(conversation, Mapping) else conversation)


def _check_input(given: Any) -> Iterator[Rejection]:
    if given is None or isinstance(given, str):
        return
    if not isinstance(given, list):
        yield mistyped("input", "a string or an array")
        return
    for index, item in enumerate(given):
        param = f"input[{index}]"
        if not isinstance(item, Mapping):
            yield mistyped(param, "an object")
            continue
        for key in ("type", "id", "call_id"):
            if item.get(key) is not None and not isinstance(item[key], str):
                yield mistyped(f"{param}.{key}", "a string")


def _check_state(body: Mapping[str, Any]) -> Iterator[Rejection]:
    if body.get("background") is True and body.get("store") is False:
        yield about("background", "Background mode requires 'store' to be true.")
    if body.get("previous_response_id") is not None and body.get("conversation") is not None:
        message = "Mutually exclusive parameters: 'conversation' and 'previous_response_id'."
        yield about("conversation", message, "mutually_exclusive_parameters")


def _check_tool(tool: Any, param: str) -> Iterator[Rejection]:
    if not isinstance(tool, Mapping) or not isinstance(tool.get("type"), str):
        yield missing(f"{param}.type")
        return
    if tool["type"] == "namespace":
        yield from _check_tools(tool.get("tools"), f"{param}.tools")
    if tool["type"] not in ("function", "custom", "namespace"):
        return
    yield from check_name(tool.get("name"), f"{param}.name")
    if tool["type"] == "function" and tool.get("strict") is True:
        yield from check_strict(tool, param)
