"""What is checked of every request, whatever API it is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from memoflow.budget import MAX_AMOUNT
from memoflow.canonical import freeze_json
from memoflow.errors import InvalidRequest

__all__ = ["SDK_KEYS", "check_cap", "check_mapping", "has_type", "read_cap", "read_model", "refuse_keys"]

_OF_THE_CLIENT: Final = "options of the SDK call do not belong into the request: configure the client instead"

SDK_KEYS: Final = {
    "stream": "memoflow decides it: call run() for a whole reply and stream() for events",
    "extra_headers": _OF_THE_CLIENT,
    "extra_query": _OF_THE_CLIENT,
    "extra_body": "it could replace fields that were checked: put its fields into the request itself",
    "timeout": "pass timeout= to the call instead",
}
"""Arguments of an SDK call that are no fields of a request, and what to do instead."""


def check_mapping(request: Mapping[str, Any]) -> dict[str, Any]:
    """A frozen copy of a request of a caller; raises InvalidRequest."""
    if not isinstance(request, Mapping):
        raise InvalidRequest(f"The request must be a mapping, not {type(request).__name__}.")
    body: dict[str, Any] = freeze_json(request)
    return body


def refuse_keys(body: Mapping[str, Any], refused: Mapping[str, str]) -> None:
    """Raise InvalidRequest for the first key of ``refused`` in the body, with the advice that it maps to."""
    for key, advice in refused.items():
        if key in body:
            raise InvalidRequest(f"The request has the key {key!r}; {advice}.")


def read_model(body: Mapping[str, Any]) -> str:
    """The model that a request names; raises InvalidRequest."""
    model = body.get("model")
    if not isinstance(model, str) or not model.strip() or "\0" in model:
        raise InvalidRequest(
            "The request names no model. Name one: calls are priced, measured and recorded by it."
        )
    return model


def read_cap(body: Mapping[str, Any], field: str) -> int | None:
    """The output cap that a request names in this field, None if it names none; raises InvalidRequest."""
    cap = body.get(field)
    if cap is None:
        return None
    if type(cap) is not int or not 1 <= cap <= MAX_AMOUNT:
        shown = type(cap).__name__ if type(cap) is not int else "more" if cap > 0 else cap
        raise InvalidRequest(
            f"{field} must be a whole number from 1 to {MAX_AMOUNT}, not {shown}. "
            "Correct it, or leave it out to let memoflow set one from the budget."
        )
    return cap


def check_cap(cap: int) -> int:
    """A cap that is about to be sent; raises InvalidRequest for one that would mean no cap."""
    if type(cap) is not int or cap < 1:
        raise InvalidRequest(f"An output cap must be at least 1 token, not {cap!r}. Reserve more.")
    return cap


def has_type(entry: Any) -> bool:
    """Whether it is an object with a type, as every tool is."""
    return isinstance(entry, dict) and isinstance(entry.get("type"), str)
