"""The dialect of Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memoflow.testing._dialect import Event
from memoflow.testing._encoding import encode_json
from memoflow.testing._rejections import Rejection, Usual, of_status
from memoflow.testing._script import Mangled, StatusFault

__all__ = ["MessagesDialect", "error_event"]

_USUAL: dict[int, Usual] = {
    400: ("invalid_request_error", None, "The request is not valid."),
    401: ("authentication_error", None, "invalid x-api-key"),
    402: ("billing_error", None, "Your credit balance is too low."),
    403: ("permission_error", None, "Not allowed."),
    404: ("not_found_error", None, "model: unknown"),
    408: ("timeout_error", None, "The request timed out."),
    413: ("request_too_large", None, "Request exceeds the maximum size"),
    429: ("rate_limit_error", None, "Rate limit reached."),
    500: ("api_error", None, "Internal server error"),
    504: ("timeout_error", None, "The request timed out."),
    529: ("overloaded_error", None, "Overloaded"),
}
_TYPES = frozenset(kind for kind, _, _ in _USUAL.values())
# What a script says in OpenAI's words, for scripts that are played to several APIs.
_TRANSLATED = {
    "invalid_api_key": "authentication_error",
    "insufficient_quota": "billing_error",
    "model_not_found": "not_found_error",
    "rate_limit_exceeded": "rate_limit_error",
    "server_error": "api_error",
    "server_overloaded": "overloaded_error",
}


class MessagesDialect:
    """Named events without numbers; no event carries a snapshot."""

    def encoded(self, event: Mapping[str, Any]) -> bytes:
        """An event with its name."""
        return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), encode_json(event))

    def error_event(self, entry: Mangled, number: int) -> Event:
        """An event of type ``error``."""
        return error_event(entry.code, entry.message)

    def repeated(self, terminal: Event, number: int) -> Event:
        """The same event."""
        return terminal

    def differing(self, terminal: Event) -> Event:
        """There is no snapshot in an event."""
        return terminal

    def of_status(self, fault: StatusFault) -> Rejection:
        """The rejection a scripted status stands for; a code that is a type of the API is its type."""
        types = _TRANSLATED | {kind: kind for kind in _TYPES}
        return of_status(fault, _USUAL, types)

    def error_body(self, rejection: Rejection, headers: Sequence[tuple[str, str]]) -> dict[str, Any]:
        """An object of type ``error`` that repeats the id of the request."""
        usual = _USUAL.get(rejection.status, _USUAL[500 if rejection.status >= 500 else 400])[0]
        known = rejection.status == 400 or rejection.type != "invalid_request_error"
        error: dict[str, Any] = {"type": rejection.type if known else usual, "message": rejection.message}
        if rejection.code is not None and rejection.code not in _TYPES:
            error["details"] = {"error_code": rejection.code}
        return {"type": "error", "error": error, "request_id": dict(headers).get("request-id")}


def error_event(code: str = "api_error", message: str = "Internal server error") -> Event:
    """The event that ends a stream that failed."""
    return {"type": "error", "error": {"type": _TRANSLATED.get(code, code), "message": message}}
