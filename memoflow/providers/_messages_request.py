"""Requests of the Messages API: checking and freezing them, and how a round leads to the next one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from memoflow.canonical import freeze_json
from memoflow.errors import InvalidRequest
from memoflow.providers._messages_blocks import replayable, unpadded
from memoflow.providers._messages_tools import (
    hosted_types,
    is_described,
    offered_calls,
    schemas,
)
from memoflow.providers._request import SDK_KEYS, check_mapping, has_type, read_cap, read_model, refuse_keys
from memoflow.providers.base import PreparedRequest, PriorRound, Reply

if TYPE_CHECKING:
    from memoflow.tools import Toolset

__all__ = ["CAP_FIELD", "following", "prepare", "tools_of"]

CAP_FIELD: Final = "max_tokens"


def prepare(
    request: Mapping[str, Any], toolset: Toolset | None, *, streaming: bool, strict_tools: bool
) -> PreparedRequest:
    """Check and freeze a request of a caller; raises InvalidRequest."""
    body = check_mapping(request)
    refuse_keys(body, SDK_KEYS)
    _check_messages(body)
    _check_tools(body)
    tools = () if toolset is None else tuple(toolset)
    if tools and "tools" not in body:
        body["tools"] = schemas(tools, strict=strict_tools)
    return _describe(body, streaming=streaming)


def following(prepared: PreparedRequest, reply: Reply, outputs: Sequence[dict[str, Any]]) -> PreparedRequest:
    """The request of the next round."""
    appended = freeze_json(list(outputs))
    content = replayable(reply.body.get("content") or [])
    if not appended:
        content = unpadded(content)
    messages = [*_continued(prepared.body.get("messages") or [], content), *appended]
    body = {**prepared.body, "messages": messages, **_container(prepared.body, reply.body)}
    usage = reply.usage
    prior = PriorRound(usage.total, len(content), tuple(appended)) if usage is not None else None
    return _describe(body, streaming=prepared.streaming, prior=prior)


def tools_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The tools of a request."""
    return body.get("tools") or []


def _describe(body: dict[str, Any], *, streaming: bool, prior: PriorRound | None = None) -> PreparedRequest:
    tools, choice = tools_of(body), body.get("tool_choice")
    return PreparedRequest(
        body=body,
        model=read_model(body),
        output_cap=read_cap(body, CAP_FIELD),
        streaming=streaming,
        offered=offered_calls(tools, choice) if "tools" in body else None,
        calls_allowed=choice is None or choice.get("type") != "none",
        hosted=hosted_types(tools),
        prior=prior,
        cap_minimum=_cap_minimum(body.get("thinking")),
        cap_required=True,
    )


def _cap_minimum(thinking: Any) -> int:
    """The API wants room for an answer beside a fixed budget for thinking."""
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    if type(budget) is not int or budget < 1 or thinking.get("type") != "enabled":
        return 1
    return budget + 1


def _check_messages(body: dict[str, Any]) -> None:
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise InvalidRequest("messages must be a list of message objects. Correct it.")


def _check_tools(body: dict[str, Any]) -> None:
    tools, choice = body.get("tools", []), body.get("tool_choice")
    if not isinstance(tools, list) or not all(map(_is_tool, tools)):
        raise InvalidRequest(
            "tools must be a list of tool objects. Leave the key out to offer the registered tools."
        )
    for tool in tools:
        name = tool.get("name")
        if tool.get("type") == "function" or (is_described(tool) and not (isinstance(name, str) and name)):
            raise InvalidRequest(
                "A tool of the request has no name where this API looks for it. It wants the name at the top "
                'of the tool, and no type: {"name": …, "description": …, "input_schema": …}.'
            )
    if not (choice is None or has_type(choice)):
        raise InvalidRequest(
            'tool_choice must be an object with a type, for example {"type": "auto"}. '
            "Correct it, or leave it out."
        )


def _is_tool(tool: Any) -> bool:
    return isinstance(tool, dict) and isinstance(tool.get("type"), str | None)


def _continued(messages: list[dict[str, Any]], content: list[Any]) -> list[dict[str, Any]]:
    """The messages with a reply after them.

    A reply to messages that end with the assistant's turn, a prefill or a paused reply, goes on with that
    turn, so it becomes part of it: blocks beside blocks, none of them changed. A reply without any
    block is no message, since the API takes none without content.
    """
    if not content:
        return messages
    last = messages[-1] if messages else {}
    given = last.get("content")
    if last.get("role") != "assistant" or not isinstance(given, str | list):
        return [*messages, {"role": "assistant", "content": content}]
    blocks = [{"type": "text", "text": given}] if isinstance(given, str) and given else list(given)
    return [*messages[:-1], {**last, "content": [*blocks, *content]}]


def _container(body: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
    """The container of a reply: the API refuses to go on with code in it that waits, unless it is named.

    See https://github.com/anthropics/anthropic-sdk-python/pull/1150.
    """
    used, given = reply.get("container"), body.get("container")
    id = used.get("id") if isinstance(used, dict) else None
    if not isinstance(id, str):
        return {}
    return {"container": {**given, "id": id} if isinstance(given, dict) else id}
