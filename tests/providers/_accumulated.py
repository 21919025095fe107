"""What the official SDKs make of the events of a stream, each with its own accumulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anthropic.lib.streaming._messages import accumulate_event
from openai import omit
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.lib.streaming.responses._responses import ResponseStreamState

__all__ = ["accumulated", "same"]


def accumulated(api: str, events: Sequence[Any]) -> Any:
    """The reply that the SDK has at the end of these events, as plain data without what it adds."""
    return same(_ACCUMULATORS[api](events))


def same(value: Any) -> Any:
    """Plain data without nulls, which one side writes and the other leaves out."""
    if hasattr(value, "model_dump"):
        return same(value.model_dump(warnings=False))
    if isinstance(value, dict):
        kept = {key: same(part) for key, part in value.items() if part is not None and key not in _ADDED}
        return {key: part for key, part in kept.items() if part != []}
    return [same(part) for part in value] if isinstance(value, list) else value


# What the helpers parse out of a reply, and where a chunk has what.
_ADDED = ("parsed", "parsed_arguments", "parsed_output")


def _response(events: Sequence[Any]) -> Any:
    state: ResponseStreamState[Any] = ResponseStreamState(input_tools=omit, text_format=omit)
    shown = [one for event in events for one in state.handle_event(event)]
    return shown[-1].response  # type: ignore[union-attr]


def _completion(events: Sequence[Any]) -> Any:
    state: ChatCompletionStreamState[Any] = ChatCompletionStreamState()
    for event in events:
        list(state.handle_chunk(event))
    body = state.current_completion_snapshot.model_dump(warnings=False)
    for choice in body["choices"]:
        for call in choice["message"].get("tool_calls") or ():
            del call["index"]
    return body


def _message(events: Sequence[Any]) -> Any:
    message, buffers = None, {}  # type: ignore[var-annotated]
    for event in events:
        message = accumulate_event(event=event, current_snapshot=message, json_bufs=buffers)
    return message


_ACCUMULATORS = {"responses": _response, "chat": _completion, "messages": _message}
