"""From an entry of the script to the steps of an exchange. Knows no API: that is the renderer's part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from memoflow.testing._encoding import encode_json
from memoflow.testing._events import sse
from memoflow.testing._rejections import Rejection, of_status
from memoflow.testing._script import (
    Cut,
    Delayed,
    Entry,
    Held,
    Mangled,
    ModelReply,
    RawReply,
    StatusFault,
)
from memoflow.testing._wire import Body, Fail, FailKind, Head, Perform, Step, Wait

__all__ = ["Headers", "Render", "Rendering", "play", "reject"]

Event = dict[str, Any]
Headers = tuple[tuple[str, str], ...]

_CUTS: dict[str, FailKind] = {
    "connect_refused": "connect_refused",
    "dns_failure": "dns_failure",
    "connect_timeout": "connect_timeout",
    "pool_timeout": "pool_timeout",
    "write_error": "write_error",
    "read_timeout": "read_timeout",
    "reset_before_reply": "reset",
    "closed_before_reply": "closed",
    "reset_mid_body": "reset",
    "truncated_body": "truncated",
}
_MID_BODY = {"reset_mid_body", "truncated_body"}


@dataclass(frozen=True, slots=True)
class Rendering:
    """What an API would answer.

    Attributes:
        body: the reply without streaming.
        events: the reply as a stream, or None if none was asked for. The last one is terminal.
        perform: bills and stores the generation, or None if there is none.
    """

    body: Any
    events: tuple[Event, ...] | None = None
    perform: Perform | None = None

    def performing(self, performed: bool, *, lost: bool = False) -> list[Step]:
        """The step that bills, if it is performed; ``lost`` treats the client as gone."""
        if self.perform is None or not performed:
            return []
        commit = self.perform.commit
        return [Perform(lambda gone: commit(True))] if lost else [self.perform]


Render = Callable[[ModelReply], "Rendering | Rejection"]


def reject(rejection: Rejection, headers: Headers) -> list[Step]:
    """The steps of an error reply."""
    body = encode_json(rejection.body())
    sent = (*headers, ("content-type", "application/json"), *rejection.headers)
    return [Head(rejection.status, sent, len(body)), Body(body)]


def play(entry: Entry, render: Render, headers: Headers) -> list[Step]:
    """The steps of an entry, after the request has arrived."""
    if isinstance(entry, Delayed):
        return _pause(play(entry.then, render, headers), Wait(seconds=entry.seconds), entry.after)
    if isinstance(entry, Held):
        return _pause(play(entry.then, render, headers), Wait(gate=entry.gate), entry.after)
    if isinstance(entry, (ModelReply, StatusFault, RawReply, Cut, Mangled)):
        rendering = _rendered(entry, render)
        if isinstance(rendering, Rejection):
            return reject(rejection=rendering, headers=headers)
        return _fate(entry, rendering, headers)
    raise TypeError(f"{type(entry).__name__} must be resolved before it is played.")


def _rendered(
    entry: ModelReply | StatusFault | RawReply | Cut | Mangled, render: Render
) -> Rendering | Rejection:
    if isinstance(entry, ModelReply):
        return render(entry)
    # What nobody generates and nobody sees must leave no trace in the provider's state.
    shown = isinstance(entry, Mangled) or (isinstance(entry, Cut) and entry.kind in _MID_BODY)
    return render(entry.then) if shown or entry.performed else Rendering(None)


def _fate(
    entry: ModelReply | StatusFault | RawReply | Cut | Mangled, rendering: Rendering, headers: Headers
) -> list[Step]:
    if isinstance(entry, ModelReply):
        return _answer(rendering, headers)
    if isinstance(entry, StatusFault):
        return [*rendering.performing(entry.performed), *reject(of_status(entry), headers)]
    if isinstance(entry, RawReply):
        sent = (*headers, ("content-type", entry.content_type), *entry.headers.items())
        head = Head(entry.status, sent, len(entry.body))
        return [*rendering.performing(entry.performed), head, Body(entry.body)]
    if isinstance(entry, Cut):
        return _cut(entry, rendering, headers)
    if rendering.events is None:
        return _mangle_body(entry, rendering, headers)
    return _mangle_stream(entry, rendering, rendering.events, headers)


def _answer(rendering: Rendering, headers: Headers) -> list[Step]:
    if rendering.events is None:
        return [*rendering.performing(True), *_json(encode_json(rendering.body), headers)]
    *before, terminal = (Body(sse(event)) for event in rendering.events)
    return [_stream_head(headers), *before, *rendering.performing(True), terminal]


def _json(body: bytes, headers: Headers) -> list[Step]:
    return [Head(200, (*headers, ("content-type", "application/json")), len(body)), Body(body)]


def _stream_head(headers: Headers) -> Head:
    return Head(200, (*headers, ("content-type", "text/event-stream; charset=utf-8")), None)


def _pause(steps: list[Step], wait: Wait, after: int | None) -> list[Step]:
    """Wait before everything, or after so many pieces of the body."""
    if after is None:
        return [wait, *steps]
    bodies = [index for index, step in enumerate(steps) if isinstance(step, (Head, Body))]
    at = bodies[min(after, len(bodies) - 1)] + 1
    return [*steps[:at], wait, *steps[at:]]


def _cut(entry: Cut, rendering: Rendering, headers: Headers) -> list[Step]:
    fail = Fail(_CUTS[entry.kind])
    if entry.kind not in _MID_BODY:
        return [*rendering.performing(entry.performed), fail]
    if rendering.events is None:
        body = encode_json(rendering.body)
        head, _ = _json(body, headers)
        return [*rendering.performing(entry.performed), head, Body(body[: len(body) // 2]), fail]
    shown = _first(rendering.events, entry.after)
    performing = rendering.performing(entry.performed, lost=True)
    return [_stream_head(headers), *_bodies(shown), *performing, fail]


def _first(events: Sequence[Event], after: int | None) -> Sequence[Event]:
    return events[: len(events) // 2 if after is None else after]


def _bodies(events: Sequence[Event]) -> list[Step]:
    return [Body(sse(event)) for event in events]


def _mangle_stream(
    entry: Mangled, rendering: Rendering, events: Sequence[Event], headers: Headers
) -> list[Step]:
    head, lost = _stream_head(headers), rendering.performing(entry.performed, lost=True)
    performing = rendering.performing(entry.performed)
    if entry.kind == "stream_ends_early":
        shown = events[:-1] if entry.after is None else events[: entry.after]
        return [head, *_bodies(shown), *lost]
    if entry.kind == "error_event":
        shown = _first(events, entry.after)
        return [head, *_bodies(shown), *lost, Body(sse(_error_event(entry, len(shown))))]
    if entry.kind == "no_events":
        return [head, *performing]
    sent = _bodies(events)
    if entry.kind == "corrupt_chunk":
        shown = _first(events, entry.after)
        sent[len(shown)] = Body(_corrupt(sse(events[len(shown)])))
    elif entry.kind == "duplicate_terminal":
        sent.append(Body(sse({**events[-1], "sequence_number": len(events)})))
    elif entry.kind == "snapshot_differs":
        sent[-1] = Body(sse(_differing(events[-1])))
    elif entry.kind == "huge":
        sent[-1] = Body(sse({**events[-1], "padding": "x" * entry.size}))
    return [head, *sent[:-1], *performing, sent[-1]]


def _mangle_body(entry: Mangled, rendering: Rendering, headers: Headers) -> list[Step]:
    if entry.kind == "error_event":
        fault = StatusFault(status=500, code=entry.code, message=entry.message)
        return [*rendering.performing(entry.performed), *reject(of_status(fault), headers)]
    body = encode_json(rendering.body)
    performing = rendering.performing(entry.performed)
    if entry.kind == "stream_ends_early":
        head, _ = _json(body, headers)
        return [*performing, head, Body(body[: len(body) // 2]), Fail("truncated")]
    if entry.kind == "corrupt_chunk":
        body = body[: len(body) // 2]
    elif entry.kind == "no_events":
        body = b""
    elif entry.kind == "huge":
        body = encode_json({**rendering.body, "padding": "x" * entry.size})
    return [*performing, *_json(body, headers)]


def _error_event(entry: Mangled, number: int) -> Event:
    error = {"code": entry.code, "message": entry.message, "param": None}
    told: Event = {"error": {"type": entry.code, **error}} if entry.nested else error
    return {"type": "error", **told, "sequence_number": number}


def _corrupt(data: bytes) -> bytes:
    start = data.index(b"data: ")
    return data[: start + (len(data) - start) // 2] + b"\n\n"


def _differing(terminal: Event) -> Event:
    response = terminal["response"]
    *kept, last = response["output"] or [{}]
    changed = {**last, **{key: f"{last[key]} " for key in ("arguments", "input") if key in last}}
    if changed == last:
        return {**terminal, "response": {**response, "output": kept}}
    return {**terminal, "response": {**response, "output": [*kept, changed]}}
