"""A recorded chat completion as the chunks of a stream that ends in it.

Each choice is one chunk with all of its message and one with its end; a usage comes last, as in a real
stream that was asked for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from memoflow.providers._reading import STREAM_PROBLEM

__all__ = ["chunks"]


_CHUNK: Final = "chat.completion.chunk"
# The SDK takes a chunk with an error for the end of the stream, and one with a type for another API's.
_APART: Final = frozenset({"choices", "error", "object", "type", "usage", STREAM_PROBLEM})


def chunks(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The chunks of a stream that ends in this body."""
    frame = {**{key: value for key, value in body.items() if key not in _APART}, "object": _CHUNK}
    for position, choice in enumerate(body["choices"]):
        yield from ({**frame, "choices": [part]} for part in _parts(choice, position))
    if body.get("usage") is not None:
        yield {**frame, "choices": [], "usage": body["usage"]}


def _parts(choice: Any, position: int) -> Iterator[dict[str, Any]]:
    given = choice if isinstance(choice, dict) else {}
    message = given.get("message")
    more = {key: value for key, value in given.items() if key not in ("message", "finish_reason", "index")}
    delta = _delta(message) if isinstance(message, dict) else {}
    yield {"index": position, "delta": delta, "finish_reason": None, **more}
    yield {"index": position, "delta": {}, "finish_reason": given.get("finish_reason")}


def _delta(message: dict[str, Any]) -> dict[str, Any]:
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    numbered = [{"index": n, **call} if isinstance(call, dict) else call for n, call in enumerate(calls)]
    return {**message, "tool_calls": numbered}
