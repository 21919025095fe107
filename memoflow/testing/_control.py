"""Control endpoints of a served provider, for whoever runs it in another process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any

from pydantic import ValidationError

from memoflow.errors import MemoflowError
from memoflow.testing._served import Served
from memoflow.testing._wire import RecordedRequest, WireRequest
from memoflow.testing._wireform import entry_from_json

__all__ = ["CONTROL", "control"]

CONTROL = "/_control/"
_SHOWN = [field.name for field in fields(RecordedRequest) if field.name not in ("body", "billed", "ended")]
_Answer = tuple[int, Any]


def control(provider: Served, wire: WireRequest) -> _Answer:
    """Status and JSON that answer a control request. It is not counted among the requests."""
    action = _ACTIONS.get((wire.method, wire.path.removeprefix(CONTROL)))
    if action is None:
        return 404, {"error": f"There is no control endpoint {wire.method} {wire.path}."}
    try:
        return action(provider, json.loads(wire.body) if wire.body else wire.query)
    except ValidationError as error:
        where = error.errors(include_url=False, include_input=False, include_context=False)
        return 400, {"error": "The script is not valid.", "details": where}
    except (MemoflowError, ValueError, KeyError) as error:
        return 400, {"error": str(error)}


def _health(provider: Served, given: dict[str, Any]) -> _Answer:
    return 200, {"ok": True}


def _script(provider: Served, given: dict[str, Any]) -> _Answer:
    entries = [entry_from_json(entry) for entry in given["script"]]
    provider.push(*entries, to=given.get("to", "create"))
    return 200, {"remaining": provider.remaining}


def _reset(provider: Served, given: dict[str, Any]) -> _Answer:
    script = [entry_from_json(entry) for entry in given.get("script", ())]
    default = given.get("default")
    provider.reset(script, default=None if default is None else entry_from_json(default))
    return 200, {"remaining": provider.remaining}


def _requests(provider: Served, given: dict[str, Any]) -> _Answer:
    return 200, {
        "wire_requests": dict(provider.wire_requests),
        "performed": provider.performed,
        "billed": asdict(provider.billed),
        "remaining": provider.remaining,
        "requests": [_recorded(record) for record in provider.requests],
    }


def _recorded(record: RecordedRequest) -> dict[str, Any]:
    shown = {name: getattr(record, name) for name in _SHOWN}
    billed = None if record.billed is None else asdict(record.billed)
    return {
        **shown,
        "body": record.body.decode("utf-8", "replace"),
        "billed": billed,
        "ended": record.ended.is_set(),
    }


def _release(provider: Served, given: dict[str, Any]) -> _Answer:
    provider.gate(given["hold"]).released.set()
    return 200, {"ok": True}


def _wait(provider: Served, given: dict[str, Any]) -> _Answer:
    gate = provider.gate(given["hold"])
    states = {"entered": gate.entered, "abandoned": gate.abandoned}
    return 200, {"ok": states[given["state"]].wait(float(given["timeout"]))}


def _advance(provider: Served, given: dict[str, Any]) -> _Answer:
    provider.advance(given.get("response_id"))
    return 200, {"ok": True}


_ACTIONS: dict[tuple[str, str], Callable[[Served, dict[str, Any]], _Answer]] = {
    ("GET", "health"): _health,
    ("GET", "requests"): _requests,
    ("POST", "script"): _script,
    ("POST", "reset"): _reset,
    ("POST", "release"): _release,
    ("POST", "wait"): _wait,
    ("POST", "advance"): _advance,
}
