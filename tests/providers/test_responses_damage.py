"""Damaged replies of the Responses API: never another exception, never a call that runs."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseUsage

from memoflow.providers.base import Reply, UnreadableReply
from tests.providers._bodies import (
    CODEC,
    JSON_VALUES,
    custom_call,
    encode,
    function_call,
    message,
    reasoning,
    response,
)


def test_bodies_of_these_tests_are_what_the_sdk_calls_responses() -> None:
    """The shapes used here validate as the SDK's own types, so the tests are about the real thing."""
    body = response(reasoning(), message(), message("no", kind="refusal"), function_call(), custom_call())
    parsed = Response.model_validate_json(encode(body))
    assert [item.type for item in parsed.output] == [item["type"] for item in body["output"]]
    assert isinstance(parsed.usage, ResponseUsage)
    reread = CODEC.read(parsed.model_dump_json(exclude_unset=True, by_alias=True).encode())
    assert reread.calls == CODEC.read(encode(body)).calls


def check_runnable(reply: Reply) -> None:
    """The rules that hold for whatever was read."""
    runnable = [call for call in reply.calls if call.complete]
    if not runnable:
        return
    assert reply.status == "completed"
    assert reply.problem is None
    assert len({call.call_id for call in reply.calls}) == len(reply.calls)
    raw = [item for item in reply.body["output"] if item["type"] in ("function_call", "custom_tool_call")]
    for call in runnable:
        assert call.call_id.strip()
        (item,) = [item for item in raw if item["call_id"] == call.call_id]
        text = item["arguments"] if call.kind == "function" else item["input"]
        assert (item["name"], text) == (call.name, call.arguments)
        assert item.get("status") in (None, "completed")


def paths(value: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [prefix, *(path for key, child in children for path in paths(child, (*prefix, key)))]


def mutate(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The value with one place replaced."""
    if not path:
        return value
    result = copy.deepcopy(body)
    node = result
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return result


WHOLE = response(
    reasoning(), function_call("call_1"), custom_call("call_2"), function_call("call_3"), message()
)
PLACES = paths(WHOLE)


@st.composite
def damaged(draw: st.DrawFn) -> Any:
    """A good response with a few places replaced by arbitrary JSON."""
    body: Any = WHOLE
    for path in draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=3)):
        try:
            body = mutate(body, path, draw(JSON_VALUES))
        except (KeyError, IndexError, TypeError):
            continue
    return body


@given(damaged() | JSON_VALUES)
def test_garbage_never_raises_otherwise_and_never_runs(body: Any) -> None:
    """Any JSON is a consistent reply or an UnreadableReply."""
    try:
        reply = CODEC.read(encode(body))
    except UnreadableReply:
        return
    assert reply.body == body
    check_runnable(reply)


@given(
    st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_bytes_that_are_no_reply_are_unreadable(body: bytes) -> None:
    """Arbitrary bytes are never a reply."""
    with pytest.raises(UnreadableReply):
        CODEC.read(body)


@given(st.integers(min_value=0))
def test_a_truncated_reply_is_unreadable(cut: int) -> None:
    """No prefix of a reply is a reply."""
    body = encode(WHOLE)
    with pytest.raises(UnreadableReply, match="NOT_JSON"):
        CODEC.read(body[: cut % len(body)])


def test_the_damage_reaches_the_calls() -> None:
    """The undamaged body has runnable calls, so the property above can fail."""
    assert [call.complete for call in CODEC.read(json.dumps(WHOLE).encode()).calls] == [True] * 3
