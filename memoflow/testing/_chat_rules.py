"""What Chat Completions refuses before it generates, with the codes and wording it uses."""

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

__all__ = ["check_chat"]

_ROLES = ("developer", "system", "user", "assistant", "tool")
_KINDS = ("function", "custom")
_CAPS = ("max_completion_tokens", "max_tokens")
_MOST_CHOICES = 128


def check_chat(body: Any) -> Rejection | None:
    """The first thing the API would object to in the body of a request, or None."""
    if not isinstance(body, Mapping):
        return UNREADABLE
    return next(_objections(body), None)


def _objections(body: Mapping[str, Any]) -> Iterator[Rejection]:
    if not isinstance(body.get("model"), str):
        yield missing("model")
    yield from _check_caps(body)
    yield from _check_choices(body.get("n"))
    if body.get("stream_options") is not None:
        yield from _check_stream_options(body)
    yield from _check_tools(body)
    messages = body.get("messages")
    if messages is None:
        yield missing("messages")
    elif not isinstance(messages, list):
        yield mistyped("messages", "an array of objects")
    elif not messages:
        message = "Invalid 'messages': empty array. Expected an array with minimum length 1."
        yield about("messages", message, "empty_array")
    else:
        yield from _check_messages(messages)


def _check_caps(body: Mapping[str, Any]) -> Iterator[Rejection]:
    if all(body.get(name) is not None for name in _CAPS):
        message = "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
        yield about("max_tokens", message, "invalid_parameter_combination")
    for name in _CAPS:
        yield from check_least(body.get(name), name, 1)


def _check_choices(wanted: Any) -> Iterator[Rejection]:
    yield from check_least(wanted, "n", 1)
    if isinstance(wanted, int) and wanted > _MOST_CHOICES:
        message = f"Invalid 'n': integer above maximum value. Expected a value <= {_MOST_CHOICES}."
        yield about("n", message, "integer_above_max_value")


def _check_stream_options(body: Mapping[str, Any]) -> Iterator[Rejection]:
    if body.get("stream") is not True:
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        yield about("stream_options", message)
    if not isinstance(body["stream_options"], Mapping):
        yield mistyped("stream_options", "an object")


def _check_tools(body: Mapping[str, Any]) -> Iterator[Rejection]:
    tools = body.get("tools")
    if tools is None:
        for name in ("tool_choice", "parallel_tool_calls"):
            if body.get(name) is not None:
                yield about(
                    name, f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are set."
                )
    elif not isinstance(tools, list):
        yield mistyped("tools", "an array of objects")
    else:
        for index, tool in enumerate(tools):
            yield from _check_tool(tool, f"tools[{index}]")


def _check_tool(tool: Any, param: str) -> Iterator[Rejection]:
    kind = tool.get("type") if isinstance(tool, Mapping) else None
    if kind is None:
        yield missing(f"{param}.type")
    elif kind not in _KINDS:
        message = f"Invalid value: '{kind}'. Supported values are: 'function' and 'custom'."
        yield about(f"{param}.type", message, "invalid_value")
    elif not isinstance(tool.get(kind), Mapping):
        yield missing(f"{param}.{kind}")
    else:
        yield from check_name(tool[kind].get("name"), f"{param}.{kind}.name")
        if kind == "function" and tool[kind].get("strict") is True:
            yield from check_strict(tool[kind], f"{param}.function")


def _check_messages(messages: list[Any]) -> Iterator[Rejection]:
    for index, message in enumerate(messages):
        param = f"messages[{index}]"
        if not isinstance(message, Mapping):
            yield mistyped(param, "an object")
        elif message.get("role") is None:
            yield missing(f"{param}.role")
        elif message["role"] not in _ROLES:
            wanted = ", ".join(f"'{role}'" for role in _ROLES)
            text = f"Invalid value: '{message['role']}'. Supported values are: {wanted}."
            yield about(f"{param}.role", text, "invalid_value")
        else:
            yield from _check_content(message, param)
    yield from _check_pairing(messages)


def _check_content(message: Mapping[str, Any], param: str) -> Iterator[Rejection]:
    content = message.get("content")
    if isinstance(content, list):
        for index, part in enumerate(content):
            if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
                yield missing(f"{param}.content[{index}].type")
    elif content is None:
        silent = all(message.get(name) is None for name in ("tool_calls", "refusal", "audio"))
        if message["role"] != "assistant" or silent:
            yield about(f"{param}.content", "Invalid value for 'content': expected a string, got null.")
    elif not isinstance(content, str):
        yield mistyped(f"{param}.content", "a string or an array of objects")
    if message.get("tool_calls") is not None:
        yield from _check_calls(message["tool_calls"], f"{param}.tool_calls")
    if message["role"] == "tool" and not isinstance(message.get("tool_call_id"), str):
        yield missing(f"{param}.tool_call_id")


def _check_calls(calls: Any, param: str) -> Iterator[Rejection]:
    if not isinstance(calls, list):
        yield mistyped(param, "an array of objects")
    elif not calls:
        message = f"Invalid '{param}': empty array. Expected an array with minimum length 1."
        yield about(param, message, "empty_array")
    else:
        for index, call in enumerate(calls):
            yield from _check_call(call, f"{param}[{index}]")


def _check_call(call: Any, param: str) -> Iterator[Rejection]:
    if not isinstance(call, Mapping):
        yield mistyped(param, "an object")
        return
    kind = call.get("type")
    for name in ("id", "type"):
        if not isinstance(call.get(name), str):
            yield missing(f"{param}.{name}")
    if kind in _KINDS:
        said = call.get(kind)
        for name in ("name", "arguments" if kind == "function" else "input"):
            if not isinstance(said, Mapping) or not isinstance(said.get(name), str):
                yield missing(f"{param}.{kind}.{name}")
    elif isinstance(kind, str):
        message = f"Invalid value: '{kind}'. Supported values are: 'function' and 'custom'."
        yield about(f"{param}.type", message, "invalid_value")


def _check_pairing(messages: list[Any]) -> Iterator[Rejection]:
    """Every call is answered by tool messages before anything else is said, and nothing else is answered."""
    waiting: list[str] = []
    answered: set[str] = set()
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            yield from _check_answer(message["tool_call_id"], waiting, answered, index)
            continue
        yield from _check_answered(waiting, answered, index)
        answered = set()
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
        if len(set(waiting)) < len(waiting):
            yield about(f"messages[{index}].tool_calls", "Duplicate 'id' found in 'tool_calls'.")
    yield from _check_answered(waiting, answered, len(messages))


def _check_answer(call_id: str, waiting: list[str], answered: set[str], index: int) -> Iterator[Rejection]:
    param = f"messages[{index}].tool_call_id"
    if not waiting:
        text = (
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message "
            "with 'tool_calls'."
        )
        yield about(f"messages[{index}].role", text)
    elif call_id not in waiting:
        text = (
            f"Invalid parameter: 'tool_call_id' of '{call_id}' not found in 'tool_calls' of previous message."
        )
        yield about(param, text)
    elif call_id in answered:
        yield about(param, f"Duplicate value for 'tool_call_id' of '{call_id}'.")
    answered.add(call_id)


def _check_answered(waiting: list[str], answered: set[str], index: int) -> Iterator[Rejection]:
    silent = [call_id for call_id in waiting if call_id not in answered]
    if silent:
        text = (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(silent)}"
        )
        yield about(f"messages[{index - 1}].role", text)
