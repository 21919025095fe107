"""The dialects of OpenAI's APIs: one of errors, and one of streams for each API that streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memoflow.testing._dialect import Event
from memoflow.testing._encoding import encode_json
from memoflow.testing._rejections import Rejection, Usual, of_status
from memoflow.testing._script import Mangled, StatusFault

__all__ = ["DONE", "ChatDialect", "ResponsesDialect", "error_chunk"]

_USUAL: dict[int, Usual] = {
    400: ("invalid_request_error", None, "The request is not valid."),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    403: ("invalid_request_error", "unsupported_country_region_territory", "Not allowed."),
    404: ("invalid_request_error", "model_not_found", "The model does not exist."),
    408: ("timeout", None, "The request timed out."),
    409: ("invalid_request_error", "conflict", "The resource was changed at the same time."),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached."),
    500: ("server_error", "server_error", "The server had an error while processing the request."),
    503: ("server_error", "server_overloaded", "The engine is currently overloaded."),
}
_TYPES = {"insufficient_quota": "insufficient_quota"}

# What ends a stream of chunks: the only event of any API that is not JSON.
DONE: Event = {"[DONE]": True}


class _OpenAIErrors:
    """Errors as all of OpenAI's APIs send them."""

    def of_status(self, fault: StatusFault) -> Rejection:
        """The rejection a scripted status stands for."""
        return of_status(fault, _USUAL, _TYPES)

    def error_body(self, rejection: Rejection, headers: Sequence[tuple[str, str]]) -> dict[str, Any]:
        """An object with an ``error``."""
        return {
            "error": {
                "message": rejection.message,
                "type": rejection.type,
                "param": rejection.param,
                "code": rejection.code,
            }
        }


class ResponsesDialect(_OpenAIErrors):
    """Named, numbered events; the terminal one carries the whole response."""

    def encoded(self, event: Mapping[str, Any]) -> bytes:
        """An event with its name."""
        return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), encode_json(event))

    def error_event(self, entry: Mangled, number: int) -> Event:
        """An event of type ``error``."""
        error = {"code": entry.code, "message": entry.message, "param": None}
        told: Event = {"error": {"type": entry.code, **error}} if entry.nested else error
        return {"type": "error", **told, "sequence_number": number}

    def repeated(self, terminal: Event, number: int) -> Event:
        """The same event with a number of its own."""
        return {**terminal, "sequence_number": number}

    def differing(self, terminal: Event) -> Event:
        """Its last item changed, or gone if it has nothing that can be changed."""
        response = terminal["response"]
        *kept, last = response["output"] or [{}]
        changed = {**last, **{key: f"{last[key]} " for key in ("arguments", "input") if key in last}}
        if changed == last:
            return {**terminal, "response": {**response, "output": kept}}
        return {**terminal, "response": {**response, "output": [*kept, changed]}}


class ChatDialect(_OpenAIErrors):
    """Chunks without names, and ``[DONE]`` after the last one."""

    def encoded(self, event: Mapping[str, Any]) -> bytes:
        """A chunk, or the mark that ends the stream."""
        return b"data: [DONE]\n\n" if event is DONE else b"data: %s\n\n" % encode_json(event)

    def error_event(self, entry: Mangled, number: int) -> Event:
        """A chunk that is nothing but an ``error``."""
        return error_chunk(entry.code, entry.message)

    def repeated(self, terminal: Event, number: int) -> Event:
        """The same chunk."""
        return terminal

    def differing(self, terminal: Event) -> Event:
        """There is no snapshot in a chunk."""
        return terminal


def error_chunk(code: str = "server_error", message: str = "The model failed.") -> Event:
    """A chunk that is nothing but an error."""
    return {"error": {"message": message, "type": code, "param": None, "code": code}}
