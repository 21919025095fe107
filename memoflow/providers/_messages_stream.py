"""Streams of the Messages API: events in, one terminal reply out.

No event of this API holds the whole reply. The assembler rebuilds the body that the API would have answered
without streaming and reads it as such, so both ways share one reader, and what is recorded is what was read.
What only the stream can show, its contradictions, is noted in that body.

A stream has ended with ``message_stop``, after a ``message_delta`` that gave the reason to stop. Usage is
cumulative: the latest of each figure counts, and none is added. A figure of output that came before the last
of the content, as the placeholder of ``message_start`` does, is none: without a later one there is no usage.
"""

from __future__ import annotations

from typing import Any, Final

from memoflow.providers._assembling import Assembling
from memoflow.providers._measuring import compact
from memoflow.providers._messages_growing import GrowingBlock, frozen
from memoflow.providers._messages_reply import read_body
from memoflow.providers._reading import STREAM_PROBLEM, event_code, event_type, text_or_none
from memoflow.providers.base import MAX_REPLY_BYTES, UnreadableReply

__all__ = ["MessagesAssembler"]

_CONTENT: Final = frozenset({"content_block_delta", "content_block_start", "content_block_stop"})
# What a later event cannot change about a message.
_FIXED: Final = frozenset({"content", "id", "model", "role", "type", "usage", STREAM_PROBLEM})
_NO_FIELDS: Final = frozenset({"delta", "index", "stop_reason", "stop_sequence"}) | _FIXED


class MessagesAssembler(Assembling):
    """Takes the events of one stream as plain JSON objects.

    Args:
        max_bytes: largest reply that is put together.
    """

    __slots__ = ("_blocks", "_indexes", "_max_bytes", "_message", "_reason", "_size")

    def __init__(self, *, max_bytes: int = MAX_REPLY_BYTES) -> None:
        super().__init__()
        self._max_bytes, self._size = max_bytes, 0
        self._message: dict[str, Any] | None = None
        self._blocks: list[GrowingBlock] = []
        self._indexes: dict[int, GrowingBlock] = {}
        self._reason: Any = None

    @property
    def skipped(self) -> tuple[str, ...]:
        """Pings only keep the connection open; every other event is a part of the message."""
        return ("ping",)

    def feed(self, event: dict[str, Any]) -> None:
        """Take the next event; what comes after the end of the message changes nothing.

        Raises:
            UnreadableReply: the message grows too large, is not plain JSON, or ends without being one.
        """
        kind = event_type(event)
        if self._reply is not None or kind is None:
            return
        if kind == "error":
            self._failed, self._error_code = True, event_code(event)
        elif kind == "message_start":
            self._begin(event.get("message"))
        elif kind == "message_stop":
            self._finish()
        elif kind == "message_delta" or kind in _CONTENT:
            self._take(kind, event)

    def _take(self, kind: str, event: dict[str, Any]) -> None:
        if self._message is None:
            self._note("its content or usage came before the message began")
        elif kind == "message_delta":
            self._change(self._message, event)
        elif self._reason is not None:
            self._note("its content came after its stop reason")
        elif kind == "content_block_start":
            _forget_output(self._message)
            self._open(self._message, event.get("index"), event.get("content_block"))
        else:
            self._continue(self._message, kind, event)

    def _begin(self, message: Any) -> None:
        if self._message is not None:
            self._note("a second message began")
        elif isinstance(message, dict):
            self._grow(len(compact(began := frozen(message))))
            if began.get("content"):
                self._note("the message began with content")
            self._message = {**began, "content": [], "stop_reason": None}
            _forget_output(self._message)
            self._response_id = text_or_none(began.get("id"))

    def _open(self, message: dict[str, Any], index: Any, given: Any) -> None:
        given = frozen(given)
        block = GrowingBlock(given)
        self._grow(len(compact(given)))
        if (model := _successor(given)) is not None:
            message["model"] = model
        # The SDK appends blocks in the order they come, and then finds them by their index.
        if type(index) is not int or index != len(self._blocks):
            self._note("a content block began twice or out of order")
        else:
            self._indexes[index] = block
        self._blocks.append(block)

    def _continue(self, message: dict[str, Any], kind: str, event: dict[str, Any]) -> None:
        index, delta = event.get("index"), event.get("delta")
        block = self._indexes.get(index) if type(index) is int else None
        if block is None or not block.is_open:
            self._note("a delta or end belongs to no open content block")
        elif kind == "content_block_stop":
            block.is_open = False
        else:
            self._grow(_length(delta))
            _forget_output(message)
            if not block.add(delta):
                self._note("a delta does not fit its content block")

    def _change(self, message: dict[str, Any], event: dict[str, Any]) -> None:
        event = frozen(event)
        self._grow(len(compact(event)))
        delta, usage = event.get("delta"), event.get("usage")
        given = delta if isinstance(delta, dict) else {}
        _merge(message, event, _NO_FIELDS)
        _merge(message, given, _FIXED)
        if usage is not None:
            _merge_usage(message, usage)
        reason = given.get("stop_reason")
        if reason is not None:
            if self._reason not in (None, reason):
                self._note("it gave two different stop reasons")
            self._reason = reason

    def _finish(self) -> None:
        if self._message is None:
            raise UnreadableReply("WRONG_OBJECT")
        if self._reason is None:
            raise UnreadableReply("NOT_TERMINAL")
        finished = [block.finished() for block in self._blocks]
        if any(block.is_open for block in self._blocks):
            self._note("a content block was not finished")
        if not all(once for _, once in finished):
            self._note("the input of a call was sent twice, differently")
        body = {**self._message, "content": [block for block, _ in finished]}
        if self._problem is not None:
            body[STREAM_PROBLEM] = self._problem
        self._reply = read_body(_encoded(body), max_bytes=self._max_bytes)

    def _note(self, problem: str) -> None:
        self._problem = self._problem or problem

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._max_bytes:
            raise UnreadableReply("TOO_LARGE")


def _successor(block: Any) -> str | None:
    """The model that took over in the middle of a stream: a whole reply is labelled with the last one."""
    if not isinstance(block, dict) or block.get("type") != "fallback":
        return None
    to = block.get("to")
    model = to.get("model") if isinstance(to, dict) else None
    return model if isinstance(model, str) else None


def _length(delta: Any) -> int:
    """About the bytes of a delta; nearly all are one text, which is not written out only to be measured."""
    if not isinstance(delta, dict):
        return 0
    sizes = (
        len(value) if isinstance(value, str) else len(compact(frozen(value))) for value in delta.values()
    )
    return sum(map(len, delta)) + sum(sizes)


def _merge(message: dict[str, Any], changes: dict[str, Any], without: frozenset[str]) -> None:
    for key, value in changes.items():
        if key not in without and (value is not None or key not in message):
            message[key] = value


def _merge_usage(message: dict[str, Any], usage: Any) -> None:
    given = message.get("usage")
    if not isinstance(usage, dict) or not (given is None or isinstance(given, dict)):
        message["usage"] = None
        return
    message["usage"] = {**(given or {}), **{key: value for key, value in usage.items() if value is not None}}


def _forget_output(message: dict[str, Any]) -> None:
    """Drop a figure that was given before all output was there."""
    usage = message.get("usage")
    if isinstance(usage, dict):
        usage.pop("output_tokens", None)


def _encoded(body: dict[str, Any]) -> bytes:
    try:
        return compact(body).encode()
    except UnicodeEncodeError:
        raise UnreadableReply("NOT_JSON") from None
