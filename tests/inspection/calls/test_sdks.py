"""Well-formed streams against the official SDKs: what their accumulators run is what was judged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import RawMessageStreamEvent
from hypothesis import given
from openai import omit
from openai._models import construct_type
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent

from memoflow.inspection.calls import API
from tests.inspection.calls._streams import APIS, Said, Watched, encoded, events, played, said


def chat(shown: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """The calls that OpenAI's SDK puts together of chunks."""
    state: ChatCompletionStreamState[Any] = ChatCompletionStreamState()
    for event in shown:
        list(state.handle_chunk(construct_type(type_=ChatCompletionChunk, value=event)))  # type: ignore[arg-type]
    made = state.current_completion_snapshot.choices[0].message.tool_calls or []
    return [(call.function.name, json.loads(call.function.arguments)) for call in made]  # type: ignore[union-attr]


def responses(shown: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """The calls in the last snapshot of OpenAI's SDK."""
    state: ResponseStreamState[Any] = ResponseStreamState(input_tools=omit, text_format=omit)
    last: Any = None
    for event in shown:
        typed: Any = construct_type(type_=ResponseStreamEvent, value=event)
        last = [*state.handle_event(typed), last][0]
    made = [item for item in last.response.output if item.type == "function_call"]
    return [(item.name, json.loads(item.arguments)) for item in made]


def messages(shown: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """The calls that Anthropic's SDK puts together of events."""
    message: Any = None
    buffers: dict[int, Any] = {}
    for event in shown:
        if event["type"] != "ping":
            typed: Any = construct_type(type_=RawMessageStreamEvent, value=event)
            message = accumulate_event(event=typed, current_snapshot=message, json_bufs=buffers)
    return [(block.name, block.input) for block in message.content if block.type == "tool_use"]


SDKS = {"chat": chat, "messages": messages, "responses": responses}


@pytest.mark.parametrize("api", APIS)
@given(said)
def test_what_an_sdk_runs_is_what_was_judged(api: API, reply: Said) -> None:
    """Names and arguments, in their order."""
    shown = events(api, reply)
    watched = Watched("shadow")
    played(api, [encoded(api, shown)], watched)
    assert watched.calls == SDKS[api](shown)
