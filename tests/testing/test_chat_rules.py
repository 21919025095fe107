"""What Chat Completions refuses, as the real API does, before it generates anything."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai import BadRequestError

from memoflow.testing import (
    SimulatedProvider,
)
from tests.testing._callers import HELLO, Caller
from tests.testing.conftest import Talk

CHAT = "chat"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def _refused(caller: Caller, **request: Any) -> openai.APIStatusError:
    before = caller.provider.performed
    with pytest.raises(BadRequestError) as caught:
        caller.create(api=CHAT, **request)
    assert caller.provider.performed == before
    return caught.value


SAID = {"role": "assistant", "content": None}
CALLED = {
    **SAID,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "ok"}


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([CALLED], "must be followed by tool messages"),
        ([CALLED, {"role": "user", "content": "And?"}], "must be followed by tool messages"),
        ([CALLED, {"role": "user", "content": "And?"}, RESULT], "must be followed by tool messages"),
        ([RESULT], "must be a response to a preceeding message"),
        ([CALLED, {**RESULT, "tool_call_id": "c2"}], "'c2' not found"),
        ([CALLED, RESULT, RESULT], "Duplicate value"),
        ([{**CALLED, "tool_calls": CALLED["tool_calls"] * 2}, RESULT], "Duplicate 'id'"),  # type: ignore[operator]
        ([{**SAID, "tool_calls": []}], "empty array"),
        ([{**SAID, "tool_calls": "x"}], "expected an array"),
        ([{**SAID, "tool_calls": [1]}], "expected an object"),
        (
            [{**SAID, "tool_calls": [{"id": ["c1"], "type": "function", "function": {}}]}],
            r"tool_calls\[0\].id",
        ),
        ([{**SAID, "tool_calls": [{"id": "c1", "type": "function"}]}], "function.name"),
        ([{**SAID, "tool_calls": [{"id": "c1", "type": "odd"}]}], "Supported values"),
        ([CALLED, {**RESULT, "tool_call_id": ["c1"]}], "tool_call_id"),
        ([SAID], "got null"),
        ([{"role": "user"}], "got null"),
        ([{"role": "user", "content": 7}], "expected a string"),
        ([{"role": "user", "content": ["x"]}], r"content\[0\].type"),
        ([{"role": ["user"], "content": "x"}], "Supported values"),
        ([{"content": "x"}], "role"),
        (["x"], "expected an object"),
    ],
)
def test_bad_messages_are_400(messages: Any, words: str, talk_in_process: Talk) -> None:
    """Every call is answered at once and nothing else is; what is mistyped is refused."""
    wrong = {"model": "m", "messages": [*HELLO, *messages]}
    with pytest.raises(BadRequestError, match=words):
        talk_in_process().create(api=CHAT, extra_body=wrong)


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"model": None}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "x"}, "messages"),
        ({"max_tokens": 5, "max_completion_tokens": 5}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": True}, "max_completion_tokens"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": []}, "stream_options"),
        ({"tools": "x"}, "tools"),
        ({"tools": ["x"]}, "tools[0].type"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "name": "f"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        (
            {
                "tools": [
                    {
                        "type": "function",
                        "function": {"name": "f", "strict": True, "parameters": {"type": "object"}},
                    }
                ]
            },
            "tools[0].function.parameters",
        ),
        ({"tools": [{"type": "custom", "custom": {}}]}, "tools[0].custom.name"),
        ({"tool_choice": "auto"}, "tool_choice"),
    ],
)
def test_bad_parameters_are_400(extra: dict[str, Any], param: str, talk_in_process: Talk) -> None:
    """Missing, mistyped and contradicting parameters are refused with the name of what is wrong."""
    assert _refused(talk_in_process(), extra_body=extra).param == param  # type: ignore[attr-defined]


def test_a_body_that_is_not_json_is_400() -> None:
    """A body nobody can read is refused."""
    with SimulatedProvider().client(max_retries=0) as client, pytest.raises(BadRequestError):
        client.post("/chat/completions", cast_to=object, content=b"{")


def test_every_kind_of_message_is_counted(talk_in_process: Talk) -> None:
    """Media, results and tools count; the count is the input that is billed."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    parts = [{"type": "text", "text": "What is this?"}, image]
    conversation = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": None, "refusal": "No."},
        CALLED,
        RESULT,
    ]
    caller = talk_in_process()
    reply = caller.create(api=CHAT, messages=conversation, tools=[TOOL])
    assert reply.usage.prompt_tokens == caller.provider.billed.input_tokens > 85
