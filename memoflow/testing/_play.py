"""From an entry of the script to the steps of an exchange. Knows no API: that is the renderer's part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from memoflow.testing._dialect import Dialect, Event, Headers
from memoflow.testing._encoding import encode_json
from memoflow.testing._rejections import Rejection
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

__all__ = ["Player", "Render", "Rendering"]

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
        events: the reply as a stream, or None if none was asked for.
        perform: bills and stores the generation, or None if there is none.
        ending: how many of the last events tell how it ended.
        terminal: which of them is the terminal one, counted from the last.
        status: the HTTP status of the reply without streaming.
    """

    body: Any
    events: tuple[Event, ...] | None = None
    perform: Perform | None = None
    ending: int = 1
    terminal: int = 1
    status: int = 200

    def performing(self, performed: bool, *, lost: bool = False) -> list[Step]:
        """The step that bills, if it is performed; ``lost`` treats the client as gone."""
        if self.perform is None or not performed:
            return []
        commit = self.perform.commit
        return [Perform(lambda gone: commit(True))] if lost else [self.perform]


_Played = ModelReply | StatusFault | RawReply | Cut | Mangled
Render = Callable[[ModelReply], "Rendering | Rejection"]


@dataclass(frozen=True, slots=True)
class Player:
    """Plays entries as one API would.

    Attributes:
        dialect: how the API writes events and errors.
        headers: headers of every reply.
    """

    dialect: Dialect
    headers: Headers = ()

    def reject(self, rejection: Rejection) -> list[Step]:
        """The steps of an error reply."""
        headers = (*self.headers, *rejection.headers)
        return self._json(self.dialect.error_body(rejection, headers), rejection.status, rejection.headers)

    def play(self, entry: Entry, render: Render) -> list[Step]:
        """The steps of an entry, after the request has arrived."""
        if isinstance(entry, Delayed):
            return _pause(self.play(entry.then, render), Wait(seconds=entry.seconds), entry.after)
        if isinstance(entry, Held):
            return _pause(self.play(entry.then, render), Wait(gate=entry.gate), entry.after)
        if isinstance(entry, (ModelReply, StatusFault, RawReply, Cut, Mangled)):
            rendering = _rendered(entry, render)
            if isinstance(rendering, Rejection):
                return self.reject(rendering)
            return self._fate(entry, rendering)
        raise TypeError(f"{type(entry).__name__} must be resolved before it is played.")

    def _fate(self, entry: _Played, rendering: Rendering) -> list[Step]:
        if isinstance(entry, ModelReply):
            return self._answer(rendering)
        performing = rendering.performing(entry.performed)
        if isinstance(entry, StatusFault):
            return [*performing, *self.reject(self.dialect.of_status(entry))]
        if isinstance(entry, RawReply):
            sent = (*self.headers, ("content-type", entry.content_type), *entry.headers.items())
            return [*performing, Head(entry.status, sent, len(entry.body)), Body(entry.body)]
        if isinstance(entry, Cut):
            return self._cut(entry, rendering)
        if rendering.events is None:
            return self._mangle_body(entry, rendering)
        return self._mangle_stream(entry, rendering, rendering.events)

    def _answer(self, rendering: Rendering) -> list[Step]:
        if rendering.events is None:
            return [*rendering.performing(True), *self._json(rendering.body, rendering.status)]
        return self._stream(self._bodies(rendering.events), rendering.performing(True), rendering.ending)

    def _json(self, body: Any, status: int = 200, more: Headers = ()) -> list[Step]:
        return self._encoded(encode_json(body), status, more)

    def _encoded(self, body: bytes, status: int = 200, more: Headers = ()) -> list[Step]:
        sent = (*self.headers, ("content-type", "application/json"), *more)
        return [Head(status, sent, len(body)), Body(body)]

    def _stream_head(self) -> Head:
        return Head(200, (*self.headers, ("content-type", "text/event-stream; charset=utf-8")), None)

    def _stream(self, sent: list[Step], performing: list[Step], ending: int) -> list[Step]:
        """A whole stream: the generation is complete before the client sees how it ended."""
        return [self._stream_head(), *sent[:-ending], *performing, *sent[-ending:]]

    def _bodies(self, events: Sequence[Event]) -> list[Step]:
        return [Body(self.dialect.encoded(event)) for event in events]

    def _cut(self, entry: Cut, rendering: Rendering) -> list[Step]:
        fail = Fail(_CUTS[entry.kind])
        if entry.kind not in _MID_BODY:
            return [*rendering.performing(entry.performed), fail]
        if rendering.events is None:
            body = encode_json(rendering.body)
            head, _ = self._encoded(body, rendering.status)
            return [*rendering.performing(entry.performed), head, Body(body[: len(body) // 2]), fail]
        shown = self._bodies(_first(rendering.events, entry.after))
        return [self._stream_head(), *shown, *rendering.performing(entry.performed, lost=True), fail]

    def _mangle_stream(self, entry: Mangled, rendering: Rendering, events: Sequence[Event]) -> list[Step]:
        head, lost = self._stream_head(), rendering.performing(entry.performed, lost=True)
        if entry.kind == "stream_ends_early":
            shown = events[: -rendering.ending] if entry.after is None else events[: entry.after]
            return [head, *self._bodies(shown), *lost]
        if entry.kind == "error_event":
            shown = _first(events, entry.after)
            last = self.dialect.error_event(entry, len(shown))
            return [head, *self._bodies(shown), *lost, *self._bodies([last])]
        performing = rendering.performing(entry.performed)
        if entry.kind == "no_events":
            return [head, *performing]
        sent = self._spoilt(entry, events, len(events) - rendering.terminal)
        return self._stream(sent, performing, rendering.ending + len(sent) - len(events))

    def _spoilt(self, entry: Mangled, events: Sequence[Event], terminal: int) -> list[Step]:
        """The pieces of a stream that is whole but for one of its events."""
        sent = self._bodies(events)
        if entry.kind == "corrupt_chunk":
            at = min(len(_first(events, entry.after)), len(events) - 1)
            sent[at] = Body(_corrupt(self.dialect.encoded(events[at])))
        elif entry.kind == "duplicate_terminal":
            again = self.dialect.repeated(events[terminal], terminal + 1)
            sent.insert(terminal + 1, Body(self.dialect.encoded(again)))
        elif entry.kind == "snapshot_differs":
            sent[terminal] = Body(self.dialect.encoded(self.dialect.differing(events[terminal])))
        elif entry.kind == "huge":
            padded = {**events[terminal], "padding": "x" * entry.size}
            sent[terminal] = Body(self.dialect.encoded(padded))
        return sent

    def _mangle_body(self, entry: Mangled, rendering: Rendering) -> list[Step]:
        performing = rendering.performing(entry.performed)
        if entry.kind == "error_event":
            fault = StatusFault(status=500, code=entry.code, message=entry.message)
            return [*performing, *self.reject(self.dialect.of_status(fault))]
        body, status = encode_json(rendering.body), rendering.status
        if entry.kind == "stream_ends_early":
            head, _ = self._encoded(body, status)
            return [*performing, head, Body(body[: len(body) // 2]), Fail("truncated")]
        if entry.kind == "corrupt_chunk":
            body = body[: len(body) // 2]
        elif entry.kind == "no_events":
            body = b""
        elif entry.kind == "huge":
            body = encode_json({**rendering.body, "padding": "x" * entry.size})
        return [*performing, *self._encoded(body, status)]


def _rendered(entry: _Played, render: Render) -> Rendering | Rejection:
    if isinstance(entry, ModelReply):
        return render(entry)
    # What nobody generates and nobody sees must leave no trace in the provider's state.
    shown = isinstance(entry, Mangled) or (isinstance(entry, Cut) and entry.kind in _MID_BODY)
    return render(entry.then) if shown or entry.performed else Rendering(None)


def _pause(steps: list[Step], wait: Wait, after: int | None) -> list[Step]:
    """Wait before everything, or after so many pieces of the body."""
    if after is None:
        return [wait, *steps]
    bodies = [index for index, step in enumerate(steps) if isinstance(step, (Head, Body))]
    at = bodies[min(after, len(bodies) - 1)] + 1
    return [*steps[:at], wait, *steps[at:]]


def _first(events: Sequence[Event], after: int | None) -> Sequence[Event]:
    return events[: len(events) // 2 if after is None else after]


def _corrupt(data: bytes) -> bytes:
    start = data.index(b"data: ")
    return data[: start + (len(data) - start) // 2] + b"\n\n"
