"""What the SDK's exceptions and bytes say, in the protocol's terms.

Nothing here looks at a message. A status is a status; "nothing was sent" needs the transport's
connect phase and the original request; all the rest is unknown.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import httpx2

from memoflow.budget import MAX_AMOUNT
from memoflow.canonical import StrictJSONError
from memoflow.errors import ProviderError
from memoflow.providers.base import Codec, Reply, UnreadableReply
from memoflow.providers.http import (
    MAX_ERROR_BODY_BYTES,
    error_code,
    error_detail,
    is_retryable,
    parse_retry_after,
)
from memoflow.providers.sse import SSEDecoder, event_json
from memoflow.sdk.api import Sdk
from memoflow.turn.ports import Answer
from memoflow.turn.steps import Answered, Arrived, Interrupted, NotSent

__all__ = ["Tap", "TooLargeError", "explain", "not_counted", "read_count", "read_reply", "read_status"]

CONNECT_PHASE: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
"""Raised before a byte of the request can be written."""

_REASONS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (httpx2.ReadTimeout, "READ_TIMEOUT"),
    (httpx2.WriteTimeout, "WRITE_TIMEOUT"),
    (httpx2.ReadError, "CONNECTION_RESET"),
    (httpx2.WriteError, "CONNECTION_RESET"),
    (httpx2.RemoteProtocolError, "CONNECTION_CLOSED"),
    (httpx2.TimeoutException, "TIMEOUT"),
    (httpx2.HTTPError, "TRANSPORT_ERROR"),
    (json.JSONDecodeError, "CORRUPT_STREAM"),
    (StrictJSONError, "CORRUPT_STREAM"),
    (UnicodeDecodeError, "CORRUPT_STREAM"),
)


# The event that holds a whole reply is larger than the reply.
_AROUND_REPLY: Final = 4_096

# Bytes of a stream that are read at a time, in about half a millisecond.
_TOGETHER: Final = 8_192


class TooLargeError(Exception):
    """A reply went over the size that is read."""


def explain(error: Exception, sdk: Sdk) -> Answer:
    """The answer of a request that ended in an exception."""
    if isinstance(error, sdk.APIStatusError):
        return _status(error)
    if isinstance(error, UnreadableReply):
        return Interrupted(error.reason, error)
    if isinstance(error, TooLargeError):
        return Interrupted("TOO_LARGE", error)
    connecting = isinstance(error, sdk.APIConnectionError)
    cause = error.__cause__ if connecting else error
    # No redirect is followed, so the connection that failed was for our own request.
    if connecting and isinstance(cause, CONNECT_PHASE):
        return NotSent(type(cause).__name__, error)
    for kind, reason in _REASONS:
        if isinstance(cause, kind):
            return Interrupted(reason, error)
    if connecting:
        return Interrupted("TRANSPORT_ERROR", error)
    if isinstance(error, sdk.APIError):
        return _error_event(error)
    return Interrupted("CLIENT_ERROR", error)


def _error_event(error: Exception) -> Interrupted:
    body = getattr(error, "body", None)
    return Interrupted("ERROR_EVENT", error, code=error_code(body if isinstance(body, dict) else None))


def _status(error: Any) -> Answer:
    response = error.response
    if response.is_success:
        # An SDK may raise an event of a stream as the status that it would have been.
        return _error_event(error)
    return read_status(error.status_code, response.headers, response.content)


def read_status(status: int, headers: Mapping[str, str], body: bytes) -> Answered:
    """The answer in a status other than success."""
    detail = error_detail(body if len(body) <= MAX_ERROR_BODY_BYTES else None)
    code = detail.code or detail.type
    return Answered(
        status=status,
        code=code,
        retry_after=parse_retry_after(headers, datetime.now(UTC)),
        retryable=is_retryable(status, code),
        type=detail.type,
        param=detail.param,
    )


def read_reply(codec: Codec, raw: bytes) -> Answer:
    """The answer in a whole 200 body."""
    try:
        return Arrived(codec.read(raw), raw)
    except UnreadableReply as error:
        return Interrupted(error.reason, error)


def not_counted(error: Exception, sdk: Sdk) -> ProviderError:
    """What a caller is told when the provider could not count; nothing was reserved by then."""
    found = explain(error, sdk)
    why = f"status {found.status}" if isinstance(found, Answered) else type(error).__name__
    return ProviderError(
        f"The provider did not count the input tokens ({why}); nothing was reserved and nothing was "
        "generated. Pass input_tokens=…, leave count_input out, or try again."
    )


def read_count(answer: object, sdk: Sdk) -> int:
    """The provider's count, if it is one; the SDK does not check it."""
    value = answer.get("input_tokens") if isinstance(answer, dict) else None
    if type(value) is not int or not 0 <= value <= MAX_AMOUNT:
        raise not_counted(UnreadableReply("NO_COUNT"), sdk)
    return value


class Tap:
    """Reads along with the SDK: the bytes of a stream pass by on their way to it.

    Once the reply is named nothing waits for what the codec's assembler makes of them, so some thousand are
    read at a time: between the events that the SDK decodes, each would find the processor's caches cold, and
    take twice as long. Like the SDK it reads nothing after ``[DONE]``.

    A stream that is watched over is read by a thread of its own, which may still be at it when the answer is
    asked for.
    """

    def __init__(self, codec: Codec, sdk: Sdk, max_bytes: int, choices: int = 1) -> None:
        self._sdk = sdk
        self._assembler = codec.assembler(choices)
        self._decoder = SSEDecoder(max_event_bytes=max_bytes + _AROUND_REPLY, skipped=self._assembler.skipped)
        self._lock = threading.Lock()
        self._waiting: list[bytes] = []
        self._size = 0
        self._failure: Exception | None = None
        self._over = False

    @property
    def response_id(self) -> str | None:
        """The provider's id of the reply, once an event has named it."""
        return self._assembler.response_id

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes. What cannot be read is remembered, not raised: the SDK will meet it too.

        Raises:
            TooLargeError: an event is too large. The SDK would keep all of it in memory.
        """
        with self._lock:
            if self._failure is not None or self._over:
                return
            self._waiting.append(chunk)
            self._size += len(chunk)
            if self._size < _TOGETHER and self.response_id is not None:
                return
            self._read()
        if isinstance(self._failure, UnreadableReply) and self._failure.reason == "TOO_LARGE":
            raise TooLargeError from None

    def _read(self) -> None:
        together = b"".join(self._waiting)
        self._waiting, self._size = [], 0
        try:
            for event in self._decoder.feed(together):
                if event.data.startswith("[DONE]"):
                    self._over = True
                    return
                if (data := event_json(event)) is not None:
                    self._assembler.feed(data)
        except (UnreadableReply, ValueError) as error:
            self._failure = _of_stream(error)

    def answer(self, error: Exception | None) -> Answer:
        """How the stream ended; the first terminal or error event counts, whatever came after it."""
        with self._lock:
            if self._waiting:
                self._read()
            return self._answer(error)

    def _answer(self, error: Exception | None) -> Answer:
        if self._assembler.failed:
            return Interrupted("ERROR_EVENT", error, self.response_id, code=self._assembler.error_code)
        if (reply := self._assembler.reply()) is not None:
            return Arrived(reply, _as_json(reply))
        failure = self._failure or error
        if failure is None:
            return Interrupted("NO_TERMINAL_EVENT", None, self.response_id)
        found = explain(failure, self._sdk)
        if isinstance(found, Interrupted) and self.response_id is not None:
            return Interrupted(found.reason, found.error, self.response_id, code=found.code)
        return found


def _of_stream(error: Exception) -> Exception:
    """What cannot be decoded is one fault, whether it is met here or, in what is skipped here, by the SDK."""
    undecodable = isinstance(error, UnreadableReply) and error.reason in ("NOT_JSON", "NOT_UTF8")
    return UnreadableReply("CORRUPT_STREAM") if undecodable else error


def _as_json(reply: Reply) -> bytes:
    return json.dumps(reply.body, ensure_ascii=False, separators=(",", ":")).encode()
