"""What the Messages API refuses, as the real one does, before it generates anything."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic import BadRequestError

from memoflow.testing import (
    SimulatedProvider,
)
from tests.testing._callers import HELLO
from tests.testing.conftest import Talk

API = "messages"
TOOL = {"name": "f", "input_schema": {"type": "object"}}
THINKS = {"type": "enabled", "budget_tokens": 1_024}

USE = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
CALLED = {"role": "assistant", "content": [USE]}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "ok"}
SPOKEN = {"type": "text", "text": "And?"}


def _user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def _assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([CALLED], "without `tool_result` blocks"),
        ([CALLED, _user(SPOKEN)], "without `tool_result` blocks"),
        ([CALLED, _user(SPOKEN, RESULT)], "without `tool_result` blocks"),
        ([_user(RESULT)], "unexpected `tool_use_id`"),
        ([CALLED, _user(RESULT), _assistant(SPOKEN), _user(RESULT)], "unexpected `tool_use_id`"),
        ([CALLED, _user(RESULT, {**RESULT, "tool_use_id": "c2"})], "unexpected `tool_use_id`"),
        ([CALLED, _user(RESULT, RESULT)], "a single result"),
        ([CALLED, _user(RESULT), _assistant(RESULT)], "only be in `user`"),
        ([_assistant(USE, USE), _user(RESULT)], "must be unique"),
        ([CALLED, _user(RESULT), CALLED, _user(RESULT)], "must be unique"),
        ([_assistant({**USE, "input": [1]})], "valid dictionary"),
        ([_assistant({**USE, "id": ["c1"]})], "id: Input should be a valid string"),
        ([_assistant({**USE, "id": ""})], "should match pattern"),
        ([_assistant({**USE, "partial_json": "{"})], "partial_json: Extra inputs"),
        ([_assistant({"type": "tool_use", "name": "f", "input": {}})], "id: Field required"),
        ([CALLED, _user({**RESULT, "tool_use_id": ["c1"]})], "valid string"),
        ([CALLED, _user({**RESULT, "content": 7})], "valid list"),
        ([CALLED, _user({**RESULT, "content": ["x"]})], "type: Field required"),
        ([_user({"type": "text", "text": " "})], "must be non-empty"),
        ([_user("x")], "type: Field required"),
        ([_user()], "non-empty content"),
        ([{"role": "assistant", "content": "So "}], "trailing whitespace"),
        ([_assistant({"type": "text", "text": "So "})], "trailing whitespace"),
        ([{"role": "tool", "content": "x"}], "role"),
        ([{"role": "user"}], "content: Field required"),
        ([{"role": "user", "content": 7}], "valid list"),
        (["x"], "valid dictionary"),
    ],
)
def test_bad_messages_are_400(messages: Any, words: str, talk_in_process: Talk) -> None:
    """Every call is answered in the next user message and nothing else is; what is mistyped is refused."""
    wrong = {"messages": [*HELLO, *messages]}
    with pytest.raises(BadRequestError, match=words):
        talk_in_process().create(api=API, extra_body=wrong)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"model": None}, "model: Field required"),
        ({"max_tokens": None}, "max_tokens: Field required"),
        ({"max_tokens": "9"}, "valid integer"),
        ({"max_tokens": 0}, "greater than or equal to 1"),
        ({"messages": None}, "messages: Field required"),
        ({"messages": "x"}, "valid list"),
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, 'must use the "user" role'),
        ({"stop_sequences": "x"}, "stop_sequences"),
        ({"thinking": {"type": "enabled"}}, "budget_tokens"),
        ({"thinking": THINKS}, "must be greater than"),
        ({"tools": "x"}, "valid list"),
        ({"tools": ["x"]}, "valid dictionary"),
        ({"tools": [{"input_schema": {"type": "object"}}]}, "name: Field required"),
        ({"tools": [{**TOOL, "name": "a b"}]}, "should match pattern"),
        ({"tools": [{"name": "f"}]}, "input_schema: Field required"),
        ({"tools": [{**TOOL, "input_schema": {}}]}, "Input should be 'object'"),
        ({"tools": [TOOL, TOOL]}, "must be unique"),
        ({"tool_choice": {"type": "auto"}}, "while providing tools"),
        ({"tool_choice": "auto"}, "expected tags"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": ["g"]}}, "not found"),
    ],
)
def test_bad_parameters_are_400(extra: dict[str, Any], words: str, talk_in_process: Talk) -> None:
    """Missing, mistyped and contradicting parameters are refused in the API's words."""
    caller = talk_in_process()
    with pytest.raises(BadRequestError, match=words):
        caller.create(api=API, extra_body=extra)
    assert caller.provider.performed == 0


def test_what_is_allowed_passes(talk_in_process: Talk) -> None:
    """Turns of one role are merged, results may come in two messages, and a reply may be begun."""
    other = {**USE, "id": "c2"}
    messages = [
        *HELLO,
        {"role": "user", "content": "And?"},
        _assistant(SPOKEN),
        _assistant(USE, other),
        _user(RESULT),
        _user({**RESULT, "tool_use_id": "c2", "content": [SPOKEN]}, SPOKEN),
        {"role": "assistant", "content": "So"},
    ]
    tools = [TOOL, {"type": "bash_20250124", "name": "bash"}]
    choice = {"type": "tool", "name": "bash"}
    reply = talk_in_process().create(api=API, messages=messages, tools=tools, tool_choice=choice)
    assert reply.content[0].text == "echo: And?"


def test_a_body_that_is_not_json_is_400() -> None:
    """A body nobody can read is refused."""
    with SimulatedProvider().anthropic_client(max_retries=0) as client, pytest.raises(BadRequestError):
        client.post("/v1/messages", cast_to=object, content=b"[" * 100_000)
