"""The port through which a turn forwards a client's request and passes the reply on, byte for byte.

The request is the client's own, changed where an output cap must be set, and where a stream must be asked for
its usage. The bytes of the reply pass through, and the same codecs that the adapters use read along.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import httpx2

from memoflow.errors import ProviderError
from memoflow.gateway.apis import GeneratingApi
from memoflow.gateway.frames import UsageFilter
from memoflow.gateway.headers import Headers, returned
from memoflow.gateway.incoming import Incoming, edited
from memoflow.gateway.refusals import Refusal
from memoflow.gateway.upstream import Upstream, body_of
from memoflow.providers.base import Codec, Reply
from memoflow.providers.http import classify_status
from memoflow.providers.sse import encode_event
from memoflow.sdk.answers import CONNECT_PHASE, Tap, explain, not_counted, read_count, read_reply, read_status
from memoflow.turn.ports import Answer
from memoflow.turn.steps import Answered, Arrived, Interrupted, NotSent, Wire

if TYPE_CHECKING:
    from memoflow.gateway.watching import Watch

__all__ = ["ForwardPort", "Head", "Whole", "hides_usage", "replayed"]

log = logging.getLogger("memoflow.gateway")
EVENTS: Final = b"text/event-stream"
_SHOULD_RETRY: Final = b"x-should-retry"
_LONGEST_CHUNK: Final = 64 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """Status and headers of a reply that comes in pieces. What it yields next are its bytes."""

    status: int
    headers: Headers


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """A reply that came in one piece."""

    status: int
    headers: Headers
    body: bytes = field(repr=False)


class _Never(Exception):
    """Raised by nobody."""


class _NoSdk:
    """Stands for an SDK where there is none: the transport's exceptions come as they are."""

    APIError = APIConnectionError = APIStatusError = _Never
    Stream = AsyncStream = None


_NO_SDK: Final = _NoSdk()


def _failed(error: Exception) -> Answer:
    if isinstance(error, CONNECT_PHASE):
        log.warning("the provider could not be reached (%s)", type(error).__name__)
        return NotSent(type(error).__name__, error)
    return explain(error, _NO_SDK)


class ForwardPort:
    """`memoflow.turn.AsyncPort` of one request.

    Args:
        sending: called when the request is about to be sent; its result is called when that has ended.
        watch: what looks at the reply before it is passed on; None where nobody does.

    Attributes:
        whole: the reply of a request that is not streamed, once it is there.
        streams: whether the reply comes as events.
        complete: whether all of the reply has come, so that nothing has to be said about its end.
    """

    def __init__(
        self,
        api: GeneratingApi,
        codec: Codec,
        upstream: Upstream,
        incoming: Incoming,
        *,
        max_bytes: int,
        sending: Callable[[], Callable[[], None]],
        watch: Watch | None = None,
    ) -> None:
        self.api = api
        self.codec = codec
        self.max_bytes = max_bytes
        self.whole: Whole | None = None
        self.streams = False
        self.complete = False
        self.sending = sending
        self.watch = watch
        self.hidden = hides_usage(api, incoming)
        self._upstream = upstream
        self._incoming = incoming

    async def send(self, wire: Wire) -> Answer:
        """Forward a request and wait for the whole reply."""
        ended = self.sending()
        try:
            async with self.open(wire, wire.timeout) as response:
                body = await body_of(response, self.max_bytes)
        except Exception as error:
            return _failed(error)
        finally:
            ended()
        answer = self.read(response, body)
        self.whole = await self.judged(response, body, answer)
        return answer

    async def judged(self, response: httpx2.Response, body: bytes, answer: Answer) -> Whole:
        """A whole reply as the client is given it: itself, or why it is refused."""
        whole = Whole(response.status_code, _headers(response, answer), body)
        if self.watch is None or not response.is_success:
            return whole
        read = answer.reply.body if isinstance(answer, Arrived) else None
        return self.refused(await asyncio.to_thread(self.watch.whole, read)) or whole

    def refused(self, refusal: Refusal | None) -> Whole | None:
        """A refusal as it is given instead of a reply."""
        if refusal is None:
            return None
        return Whole(refusal.status, refusal.headers(), refusal.body(self.api.provider))

    def read(self, response: httpx2.Response, body: bytes) -> Answer:
        """The answer in a reply that came whole."""
        self.complete = True
        if not response.is_success:
            if response.status_code in (401, 403):
                log.warning(
                    "%s refuses the gateway's own key (status %d)", self.api.provider, response.status_code
                )
            return read_status(response.status_code, response.headers, body)
        return read_reply(self.codec, body)

    def stream(self, wire: Wire) -> _Forwarded:
        """Forward a request whose reply is streamed; nothing is sent before the iteration starts."""
        return _Forwarded(self, wire)

    def open(self, wire: Wire, timeout: float | None) -> Any:
        """The response to a request, as a context."""
        content = edited(self._incoming.raw, self._incoming.body, self._changes(wire))
        return self._upstream.open(
            "POST",
            self.api.path,
            self._incoming.headers,
            content,
            query=self._incoming.query,
            timeout=timeout,
        )

    def _changes(self, wire: Wire) -> dict[str, Any]:
        """What must be different from what the client sent: its cap, and that a stream tells its usage."""
        given = self._incoming.body
        changes = {
            name: wire.body[name]
            for name in self.api.cap_fields
            if wire.body.get(name) is not None and given.get(name) is None
        }
        if wire.streaming and self.api.usage_on_request:
            wanted = self.codec.streamed({"stream_options": given.get("stream_options")})
            if wanted["stream_options"] != given.get("stream_options"):
                changes["stream_options"] = wanted["stream_options"]
        return changes

    async def count(self, body: dict[str, Any]) -> int:
        """The input tokens of a request, by the provider's own counting."""
        assert self.api.count_path is not None, "asked for only where the API counts"
        counted = {name: value for name, value in body.items() if name in self.api.counted}
        content = json.dumps(counted, ensure_ascii=False).encode()
        try:
            async with self._upstream.open(
                "POST", self.api.count_path, self._incoming.headers, content
            ) as response:
                raw = await body_of(response, self.max_bytes)
            answer = json.loads(raw) if response.is_success else None
        except Exception as error:
            raise not_counted(error, _NO_SDK) from None
        if not response.is_success:
            raise ProviderError(
                f"The provider did not count the input tokens (status {response.status_code}); nothing was "
                "reserved and nothing was generated. Send memoflow-input-tokens, or try again."
            )
        return read_count(answer, _NO_SDK)

    def repeat(self, reply: Reply) -> Iterator[Any]:
        """A recorded reply as the stream it could have been."""
        refused = self.refused(None if self.watch is None else self.watch.whole(reply.body))
        if refused is not None:
            yield Head(refused.status, refused.headers)
            yield refused.body
            return
        yield Head(200, [(b"content-type", EVENTS)])
        yield replayed(self.api, self.codec, reply, hidden=self.hidden)


def hides_usage(api: GeneratingApi, incoming: Incoming) -> bool:
    """Whether a stream tells its usage only because the gateway asks for it, and not the client."""
    options = incoming.body.get("stream_options")
    asked = isinstance(options, dict) and options.get("include_usage") is True
    return api.usage_on_request and not asked


def replayed(api: GeneratingApi, codec: Codec, reply: Reply, *, hidden: bool) -> bytes:
    """The bytes of a stream that ends in this reply; ``hidden`` leaves the usage out."""
    stream = b"".join(map(encode_event, codec.events(reply))) + api.done
    return UsageFilter(len(stream)).feed(stream) if hidden else stream


class _Forwarded:
    """A streamed request: its head, then its bytes as they come."""

    def __init__(self, port: ForwardPort, wire: Wire) -> None:
        self._port = port
        self._wire = wire
        self._tap = Tap(port.codec, _NO_SDK, port.max_bytes, wire.choices)
        self._error: Exception | None = None
        self._response: httpx2.Response | None = None
        self._answer: Answer | None = None
        self._passing = _Passing(port)
        self._ended: Callable[[], None] = lambda: None

    @property
    def response_id(self) -> str | None:
        """The provider's id of the reply, once an event has named it."""
        return self._tap.response_id

    async def __aiter__(self) -> AsyncIterator[Any]:
        self._ended = self._port.sending()
        limits = [one for one in (self._wire.timeout, self._wire.idle_timeout) if one is not None]
        try:
            async with self._port.open(self._wire, min(limits, default=None)) as response:
                self._response = response
                self._port.streams = _is_stream(response)
                # A provider may answer with an error, or with a whole reply, where events were asked for.
                async for part in self._events(response) if self._port.streams else self._whole(response):
                    yield part
        except Exception as error:
            self._error = error
        finally:
            self._ended()

    async def _events(self, response: httpx2.Response) -> AsyncIterator[Head | bytes]:
        yield Head(response.status_code, returned(response.headers.raw))
        async for chunk in response.aiter_bytes():
            self._tap.feed(chunk)
            if shown := self._passing.feed(chunk):
                yield shown
        if rest := self._passing.end():
            yield rest

    async def _whole(self, response: httpx2.Response) -> AsyncIterator[Head | bytes]:
        body = await body_of(response, self._port.max_bytes)
        self._answer = self._port.read(response, body)
        whole = await self._port.judged(response, body, self._answer)
        yield Head(whole.status, whole.headers)
        yield whole.body

    def answer(self) -> Answer:
        """How it ended, or has ended so far."""
        self._ended()
        if self._port.streams and self._port.watch is not None:
            # However it came to its end; what was still held of a call is noted as cut short.
            self._port.watch.end()
        if self._error is not None and isinstance(self._error, CONNECT_PHASE):
            return _failed(self._error)
        if self._response is None or self._port.streams:
            answer = self._tap.answer(self._error)
            told = isinstance(answer, Interrupted) and answer.reason == "ERROR_EVENT"
            self._port.complete = told or self._passing.refused or isinstance(answer, Arrived)
            return answer
        if self._answer is not None:
            return self._answer
        return Interrupted("TRUNCATED") if self._error is None else _failed(self._error)

    async def close(self) -> None:
        """Close the connection; the iteration ends."""
        if self._response is not None:
            with suppress(Exception):
                await self._response.aclose()


class _Passing:
    """What a client is given of the bytes of a stream.

    Attributes:
        refused: whether it was told that the rest is refused.
    """

    def __init__(self, port: ForwardPort) -> None:
        self.refused = False
        self._api = port.api.name
        self._watch = port.watch
        self._hidden = UsageFilter(_LONGEST_CHUNK) if port.hidden else None

    def feed(self, chunk: bytes) -> bytes:
        """What to pass on now."""
        data = chunk if self._watch is None else self._watch.feed(chunk)
        return self._told(data if self._hidden is None else self._hidden.feed(data))

    def end(self) -> bytes:
        """What is left when the stream has ended."""
        data = b"" if self._watch is None else self._watch.end()
        return self._told(data if self._hidden is None else self._hidden.feed(data) + self._hidden.rest())

    def _told(self, data: bytes) -> bytes:
        refusal = None if self._watch is None else self._watch.refusal
        if refusal is None or self.refused:
            return data
        self.refused = True
        rest = b"" if self._hidden is None else self._hidden.rest()
        return data + rest + refusal.event(self._api)


def _headers(response: httpx2.Response, answer: Answer) -> Headers:
    """The headers of a whole reply; where nobody knows what was done, an SDK is kept from trying again."""
    given = returned(response.headers.raw)
    unknown = isinstance(answer, Answered) and classify_status(answer.status) == "unknown"
    if not unknown and not isinstance(answer, Interrupted):
        return given
    return [*((name, value) for name, value in given if name != _SHOULD_RETRY), (_SHOULD_RETRY, b"false")]


def _is_stream(response: httpx2.Response) -> bool:
    kind = response.headers.get("content-type", "")
    return response.is_success and kind.partition(";")[0].strip().lower() == EVENTS.decode()
