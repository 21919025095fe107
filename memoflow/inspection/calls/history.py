"""What a request says of its session so far: what the user and the developer wrote, and what tools returned.

A request of a stateless API holds its whole history, so taint can be built of it. One that goes on from an
earlier response (``previous_response_id``, ``conversation``) does not: whoever forwards it has to keep the
session by the id, or treat what it cannot see as untrusted. `continues` tells which.

Whoever puts what was retrieved into a system or user message says with it that it may be believed: nothing in
the request tells such a text from what the user typed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from memoflow.inspection.calls.chat import chat_calls
from memoflow.inspection.calls.messages import message_calls, message_results
from memoflow.inspection.calls.records import API, AssembledCall, Found, as_text, as_word
from memoflow.inspection.calls.responses import response_calls, response_results
from memoflow.inspection.events import ManifestSeen, Prompt, Source, ToolResult

__all__ = ["calls_in_reply", "continues", "history", "results_in_reply"]

_DEVELOPERS: Final = frozenset({"developer", "system", "user"})
# Files, pages and search results in a message are put there by programs, and were written by anybody.
_ATTACHED: Final = frozenset({"browser_state", "document", "file", "image", "input_file", "search_result"})
# In parentheses, as no tool of anybody's is called: no declaration of one vouches for these.
_API_TOOL: Final = "(api-tool)"
_ATTACHMENT: Final = "(attachment)"


def history(api: API, body: Mapping[str, Any]) -> tuple[Prompt | Found, ...]:
    """The prompts, results and manifests of a request, in order; what has another shape is left out."""
    readers = {"chat": _chat, "messages": _messages, "responses": _responses}
    return tuple(found for found in readers[api](body) if isinstance(found, ManifestSeen) or found.content)


def continues(api: API, body: Mapping[str, Any]) -> str | None:
    """The id that a request goes on from without sending its history, else None."""
    if api != "responses":
        return None
    before = body.get("previous_response_id") or body.get("conversation")
    if isinstance(before, Mapping):
        before = before.get("id")
    return before if isinstance(before, str) else None


def calls_in_reply(api: API, body: Mapping[str, Any]) -> tuple[AssembledCall, ...]:
    """The calls of a whole reply, in order."""
    readers = {"chat": chat_calls, "messages": message_calls, "responses": response_calls}
    return tuple(readers[api](body))


def results_in_reply(api: API, body: Mapping[str, Any]) -> tuple[Found, ...]:
    """What from outside the provider put into a whole reply, in order."""
    if api == "chat":
        return ()
    return tuple(_by_provider((message_results if api == "messages" else response_results)(body)))


def _by_provider(results: Iterable[Found]) -> Iterator[Found]:
    """Results of what the provider ran, whose servers choose names as they like."""
    for result in results:
        yield replace(result, tool=f"({result.tool})") if isinstance(result, ToolResult) else result


def _chat(body: Mapping[str, Any]) -> Iterator[Prompt | ToolResult]:
    names: dict[str, str] = {}
    for message in _objects(body.get("messages")):
        role = as_word(message.get("role"))
        for call in chat_calls({"choices": [{"message": message}]}):
            names[call.call_id or ""] = call.name
        if role in _DEVELOPERS:
            yield from _spoken(message.get("content"))
        elif role in ("tool", "function"):
            named = message.get("name") or names.get(str(message.get("tool_call_id")))
            yield _result(named, message.get("content"))


def _messages(body: Mapping[str, Any]) -> Iterator[Prompt | Found]:
    yield Prompt(as_text(body.get("system")))
    names: dict[str, str] = {}
    for message in _objects(body.get("messages")):
        content = message.get("content")
        for block in _objects(content):
            if block.get("type") == "tool_use":
                names[str(block.get("id"))] = str(block.get("name"))
        if message.get("role") == "user":
            yield from _user_content(content, names)
        else:
            yield from _by_provider(message_results(message))


def _user_content(content: Any, names: Mapping[str, str]) -> Iterator[Prompt | ToolResult]:
    if isinstance(content, str):
        yield Prompt(content)
    for block in _objects(content):
        if block.get("type") == "tool_result":
            yield _result(names.get(str(block.get("tool_use_id"))), block.get("content"))
        else:
            yield from _spoken([block])


def _responses(body: Mapping[str, Any]) -> Iterator[Prompt | Found]:
    yield Prompt(as_text(body.get("instructions")))
    given = body.get("input")
    if isinstance(given, str):
        yield Prompt(given)
    names: dict[str, str] = {}
    for item in _objects(given):
        kind = item.get("type")
        if as_word(item.get("role")) in _DEVELOPERS:
            yield from _spoken(item.get("content"))
        elif isinstance(kind, str) and kind.endswith("_output"):
            named = names.get(str(item.get("call_id")))
            yield _result(named, item.get("output", item.get("tools")))
        elif isinstance(kind, str):
            names[str(item.get("call_id"))] = str(item.get("name") or kind)
            yield from _by_provider(response_results({"output": [item]}))


def _spoken(content: Any) -> Iterator[Prompt | ToolResult]:
    """What the user typed, and what was attached to it."""
    if isinstance(content, str):
        yield Prompt(content)
        return
    for part in _objects(content):
        if as_word(part.get("type")) in _ATTACHED:
            yield ToolResult(_ATTACHMENT, _attached(part), Source("network", "attachment"))
        else:
            yield Prompt(as_text([part]))


def _attached(part: Mapping[str, Any]) -> str:
    source = part.get("source")
    if isinstance(source, Mapping):
        # The bytes of images and files are no text.
        return as_text(source.get("data") if source.get("type") == "text" else source.get("content"))
    return as_text(part.get("content") or part.get("text"))


def _result(name: object, content: Any) -> ToolResult:
    tool = name if isinstance(name, str) and name else _API_TOOL
    text = as_text(content) if isinstance(content, str | list | None) else json.dumps(content)
    return ToolResult(tool, text, Source("mcp", "api-tool"))


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    return (part for part in value if isinstance(part, Mapping)) if isinstance(value, list) else iter(())
