"""Streams of the Responses API: events in, one terminal reply out.

Success needs a terminal event. Its snapshot is the reply; the items that were streamed before are only
kept as digests of their calls, to be compared with it, so memory does not grow with the stream.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from memoflow.canonical import canonical, freeze_json
from memoflow.errors import InvalidRequest
from memoflow.providers._assembling import Assembling
from memoflow.providers._reading import STREAM_PROBLEM, event_code, event_type, text_or_none
from memoflow.providers._responses_items import call_kind, raw_call
from memoflow.providers._responses_reply import read_response
from memoflow.providers.base import Reply, UnreadableReply

__all__ = ["MAX_ITEMS", "ResponsesAssembler"]

MAX_ITEMS: Final = 100_000
"""Most items of one stream that are compared with the snapshot."""

_TERMINAL: Final = {
    # The SDK's union has no cancelled event; a stream that brings one is still over.
    "response.cancelled": ("cancelled",),
    "response.completed": ("completed",),
    "response.failed": ("failed", "cancelled"),
    "response.incomplete": ("incomplete",),
}
_STARTED: Final = frozenset({"response.created", "response.in_progress", "response.queued"})
_ITEM_DONE: Final = "response.output_item.done"

_Signature = tuple[str, bytes]


class ResponsesAssembler(Assembling):
    """Takes the events of one stream as plain JSON objects."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        super().__init__()
        self._items: dict[int, _Signature | None] = {}

    @property
    def skipped(self) -> tuple[str, ...]:
        """Deltas are the bulk of a stream and are all repeated in the snapshots that follow them."""
        return (".delta",)

    def feed(self, event: dict[str, Any]) -> None:
        """Take the next event; what comes after a terminal event changes nothing.

        Raises:
            UnreadableReply: a terminal event holds no terminal response.
        """
        kind = event_type(event)
        if self._reply is not None or kind is None:
            return
        if kind in _TERMINAL:
            self._finish(kind, event.get("response"))
        elif kind == _ITEM_DONE:
            self._remember(event)
        elif kind in _STARTED:
            self._note_id(event.get("response"))
        elif kind == "error":
            self._failed, self._error_code = True, event_code(event)

    def _note_id(self, response: Any) -> None:
        if self._response_id is None and isinstance(response, dict):
            self._response_id = text_or_none(response.get("id"))

    def _remember(self, event: dict[str, Any]) -> None:
        item, index = event.get("item"), event.get("output_index")
        if type(index) is not int:
            index = len(self._items)
        signature = _signature(item)
        if self._items.setdefault(index, signature) != signature:
            self._problem = "an item was streamed twice, differently"
        if len(self._items) > MAX_ITEMS:
            self._problem = "more items were streamed than are compared"
            del self._items[index]

    def _finish(self, kind: str, response: Any) -> None:
        try:
            reply = read_response(freeze_json(response))
        except InvalidRequest:
            raise UnreadableReply("NOT_JSON") from None
        if reply.status == "pending":
            raise UnreadableReply("NOT_TERMINAL")
        problem = self._disagreement(kind, reply)
        self._response_id = self._response_id or reply.response_id
        # In the body, so that what is restored is refused as what was live.
        self._reply = read_response({**reply.body, STREAM_PROBLEM: problem}) if problem else reply

    def _disagreement(self, kind: str, reply: Reply) -> str | None:
        if reply.status not in _TERMINAL[kind]:
            return "its status does not belong to the event that brought it"
        if self._response_id not in (None, reply.response_id):
            return "its id is not the one the stream began with"
        # Of a failed reply nothing runs, and the failure is what the caller has to hear of.
        return self._items_disagree(reply) if reply.status in ("completed", "incomplete") else None

    def _items_disagree(self, reply: Reply) -> str | None:
        # Some servers stream no items at all; then there is nothing to disagree with.
        if self._problem or not self._items:
            return self._problem
        output = reply.body.get("output") or []
        if not output:
            return "items were streamed, but the terminal snapshot has none"
        final = [_signature(item) for item in output]
        streamed = [self._items[index] for index in sorted(self._items)]
        calls, seen = [s for s in final if s], [s for s in streamed if s]
        # A reply that was cut short may hold a call whose item was never finished in the stream.
        same = calls == seen if reply.status == "completed" else set(seen) <= set(calls)
        return None if same else "its calls are not the ones that were streamed"


def _signature(item: Any) -> _Signature | None:
    """A call as a digest, so that a long stream of long arguments stays small; None for other items."""
    kind = call_kind(item) if isinstance(item, dict) else None
    if kind is None:
        return None
    try:
        return kind, hashlib.sha256(canonical(raw_call(item))).digest()
    except InvalidRequest:
        return kind, b""
