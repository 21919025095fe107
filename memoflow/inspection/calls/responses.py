"""Calls in replies of the Responses API, streamed and whole.

A stream says each call up to four times: in deltas, in a ``done`` event, in the finished item and in the
snapshot at the end. Clients take any of them, so they have to say the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from memoflow.inspection.calls.records import AssembledCall, Found, Step, as_text, as_word
from memoflow.inspection.events import ManifestSeen, ManifestTool, Source, ToolResult

__all__ = ["ResponsesCalls", "response_calls", "response_results"]

# Where an item that the client has to act on says what to do.
_CLIENT: Final = {
    "function_call": ("arguments",),
    "custom_tool_call": ("input",),
    "shell_call": ("action",),
    "local_shell_call": ("action",),
    "apply_patch_call": ("operation",),
    "computer_call": ("action", "actions"),
    "mcp_approval_request": ("arguments",),
}
_FREEFORM: Final = frozenset({"custom_tool_call"})
# Run by the provider: they are told, not stopped.
_SERVER: Final = {
    "mcp_call": ("arguments",),
    "code_interpreter_call": ("code",),
    "program": ("code",),
    "tool_search_call": ("arguments",),
    "web_search_call": ("action",),
    "file_search_call": ("queries",),
    "image_generation_call": (),
}
# The servers choose the words of an error, too.
_OUTPUTS: Final = ("output", "outputs", "results", "result", "error")
_DELTAS: Final = (
    "function_call_arguments",
    "custom_tool_call_input",
    "mcp_call_arguments",
    "code_interpreter_call_code",
    "shell_call_command",
    "apply_patch_call_operation_diff",
)
_OPEN: Final = frozenset({"in_progress", "incomplete"})
_TERMINAL: Final = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled", "error"}
)


class _Item:
    """One item of a stream while it grows."""

    __slots__ = ("begun", "done", "kind", "pieces", "said")

    def __init__(self, kind: str, begun: str) -> None:
        self.kind, self.begun = kind, begun
        self.pieces: list[str] = []
        self.said: str | None = None
        self.done = False


class ResponsesCalls:
    """Reads the events of one stream."""

    __slots__ = ("_items", "_judged", "_open")

    def __init__(self) -> None:
        self._items: dict[object, _Item] = {}
        self._open: set[object] = set()
        self._judged: set[tuple[str, str, bool]] = set()

    @property
    def is_open(self) -> bool:
        """Whether an item of the client's is not done."""
        return bool(self._open)

    def feed(self, event: Mapping[str, Any]) -> Step:
        """Take the next event."""
        name = _kind(event)
        if isinstance(event.get("item"), dict):
            return self._item(name, event)
        if isinstance(event.get("response"), dict):
            return self._snapshot(event["response"], ended=name in _TERMINAL)
        if any(f".{part}." in f"{name}." for part in _DELTAS):
            return self._delta(name, event)
        return Step(ended=name in _TERMINAL)

    def _item(self, name: str, event: Mapping[str, Any]) -> Step:
        item = event["item"]
        kind = _kind(item)
        results = tuple(_results(item)) if name.endswith(".done") else ()
        if kind not in _CLIENT and kind not in _SERVER:
            return Step(results=results)
        key = _key(event, item)
        if not name.endswith(".done"):
            fresh = self._items.setdefault(key, _Item(kind, _call(item).arguments))
            if fresh.kind in _CLIENT and not fresh.done:
                self._open.add(key)
            return Step(kind in _CLIENT, problem=None if fresh.kind == kind else "ITEM_CHANGED")
        return self._done(key, item, results)

    def _done(self, key: object, item: Mapping[str, Any], results: tuple[Found, ...]) -> Step:
        kind = _kind(item)
        grown = self._items.setdefault(key, _Item(kind, ""))
        call = _call(item)
        problem = None if grown.kind == kind and not grown.done else "ITEM_CHANGED"
        grown.done = True
        self._open.discard(key)
        calls = [call, *self._other_ways(grown, call)]
        if len(calls) > 1:
            problem = problem or "AMBIGUOUS_CALLS"
        self._judged.update(one.reads_alike for one in calls)
        return Step(kind in _CLIENT, tuple(calls), results, problem)

    def _other_ways(self, grown: _Item, call: AssembledCall) -> Iterator[AssembledCall]:
        """What the start, the deltas and their end said, where that is another text than the item's."""
        if grown.kind not in ("function_call", "custom_tool_call", "mcp_call", "code_interpreter_call"):
            return
        for text in dict.fromkeys((grown.begun, "".join(grown.pieces), grown.said)):
            # Where nothing was said, nothing else can have been.
            if text and text != call.arguments:
                yield AssembledCall(call.name, text, call.call_id, call.freeform, call.ran, call.complete)

    def _delta(self, name: str, event: Mapping[str, Any]) -> Step:
        item = self._items.get(_key(event, {}))
        if item is None or item.done:
            return Step(carries=True, problem="STRAY_DELTA")
        if name.endswith(".delta"):
            item.pieces.append(as_text(event.get("delta")))
        elif name.endswith(".done"):
            said = next((event[key] for key in ("arguments", "input", "code") if key in event), None)
            item.said = said if isinstance(said, str) else None
        return Step(carries=item.kind in _CLIENT)

    def _snapshot(self, response: Mapping[str, Any], *, ended: bool) -> Step:
        calls = tuple(response_calls(response))
        fresh = tuple(call for call in calls if call.reads_alike not in self._judged)
        stoppable = any(not call.ran for call in calls)
        missing = ended and self._judged and {call.reads_alike for call in calls} != self._judged
        self._judged.update(call.reads_alike for call in fresh)
        if fresh and self._items:
            return Step(stoppable, fresh, problem="SNAPSHOT_DIFFERS", ended=ended)
        # A reply that was cut short, or has failed, may leave out what was streamed of it.
        problem = "SNAPSHOT_DIFFERS" if missing and response.get("status") == "completed" else None
        results = () if self._items else tuple(response_results(response))
        return Step(stoppable, fresh, results, problem, ended)


def response_calls(body: Mapping[str, Any]) -> Iterator[AssembledCall]:
    """The calls of a whole reply."""
    for item in _items(body):
        if _kind(item) in _CLIENT or _kind(item) in _SERVER:
            yield _call(item)


def response_results(body: Mapping[str, Any]) -> Iterator[Found]:
    """What came from outside in a whole reply, in order."""
    for item in _items(body):
        yield from _results(item)


def _items(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    output = body.get("output")
    return [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []


def _kind(item: Mapping[str, Any]) -> str:
    return as_word(item.get("type"))


def _key(event: Mapping[str, Any], item: Mapping[str, Any]) -> object:
    index = event.get("output_index")
    ids = map(as_word, (event.get("item_id"), item.get("id"), item.get("call_id")))
    return index if type(index) is int else next(filter(None, ids), None)


def _call(item: Mapping[str, Any]) -> AssembledCall:
    kind = _kind(item)
    fields = _CLIENT.get(kind) or _SERVER.get(kind) or ()
    said = [item[field] for field in fields if item.get(field) is not None]
    text = (
        "" if not said else said[0] if isinstance(said[0], str) else json.dumps(said[0], ensure_ascii=False)
    )
    parts = (item.get("namespace") or item.get("server_label"), item.get("name") or kind)
    call_id = item.get("call_id") or item.get("id")
    return AssembledCall(
        ".".join(part for part in parts if isinstance(part, str) and part),
        text,
        call_id if isinstance(call_id, str) else None,
        kind in _FREEFORM or kind in ("code_interpreter_call", "program"),
        kind in _SERVER,
        item.get("status") not in _OPEN,
    )


def _results(item: Mapping[str, Any]) -> Iterator[Found]:
    kind = _kind(item)
    if kind == "mcp_list_tools":
        yield _manifest(item)
    elif kind not in _SERVER and not kind.endswith("_output"):
        return
    label = item.get("server_label")
    name = label if isinstance(label, str) else kind
    for field in _OUTPUTS:
        if text := as_text(item.get(field)):
            yield ToolResult(str(item.get("name") or kind), text, Source("mcp", name))


def _manifest(item: Mapping[str, Any]) -> ManifestSeen:
    """What a server of the provider's offers the model: its words, which the model reads like any others."""
    tools = item.get("tools")
    described = [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    return ManifestSeen(as_word(item.get("server_label")), tuple(map(_described, described)))


def _described(tool: Mapping[str, Any]) -> ManifestTool:
    return ManifestTool(as_word(tool.get("name")), as_text(tool.get("description")), tool.get("input_schema"))
