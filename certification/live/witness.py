"""A witness between the SDK and the network. It owes nothing to memoflow: it has a reader of its own.

It is the transport of the client that memoflow is given, so every request of the run passes it, also those
that an SDK would repeat by itself. What passes is kept in memory until it has been read for its figures.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2

from certification.live.endpoint import host_of
from certification.live.evidence import Usage, Wire, hashed

__all__ = ["Exchange", "UnclearWire", "Witness"]

_CAPS: Final = ("max_output_tokens", "max_tokens")
_ENDS: Final = ("response.completed", "response.incomplete", "response.failed", "message_stop")
_RETRY_COUNT: Final = "x-stainless-retry-count"


class UnclearWire(Exception):
    """What went over the wire cannot be read; says what is wrong without any of it."""


@dataclass(eq=False)
class Exchange:
    """A request and as much of its reply as was read. Nothing of it is shown by `repr`."""

    provider: str = field(repr=False)
    host: str
    retry_count: int | None
    sent: dict[str, Any] = field(repr=False)
    status: int | None = None
    certificate: str | None = None
    parts: list[bytes] = field(default_factory=list, repr=False)
    whole: bool = False

    def wire(self) -> Wire:
        """What is told of it.

        Raises:
            UnclearWire: no reply came, or it does not say what a reply must say.
        """
        if self.status is None:
            raise UnclearWire("A request got no reply at all.")
        events = self._events()
        ended = self._ended(events)
        id = _response_id(self.provider, events)
        if id is None:
            raise UnclearWire("A reply does not name its id.")
        return Wire(
            host=self.host,  # type: ignore[arg-type]
            retry_count=self.retry_count,
            status=self.status,
            streamed=self._streamed,
            output_cap=next((self.sent[name] for name in _CAPS if name in self.sent), 0),
            certificate=self.certificate,
            ended=ended,
            response_id=hashed(id.encode()),
            usage=_usage(self.provider, events) if ended else None,
        )

    @property
    def _streamed(self) -> bool:
        return bool(self.sent.get("stream"))

    def _events(self) -> list[dict[str, Any]]:
        """The events of a stream, or the whole reply as if it were the only one."""
        body = b"".join(self.parts)
        try:
            if self._streamed:
                # The last line may have been cut by whoever left.
                lines = body.split(b"\n")[:-1]
                found = [json.loads(line[5:]) for line in lines if line.startswith(b"data:")]
            else:
                found = [json.loads(body)]
        except ValueError:
            raise UnclearWire("A reply is not in the form that was asked for.") from None
        return [event for event in found if isinstance(event, dict)]

    def _ended(self, events: list[dict[str, Any]]) -> bool:
        return any(e.get("type") in _ENDS for e in events) if self._streamed else self.whole


def _objects(provider: str, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The replies in events: of OpenAI as ``response``, of Anthropic as ``message``, or bare."""
    found = [event.get("response" if provider == "openai" else "message", event) for event in events]
    return [one for one in found if isinstance(one, dict)]


def _response_id(provider: str, events: list[dict[str, Any]]) -> str | None:
    ids = (one.get("id") for one in _objects(provider, events))
    return next((id for id in ids if isinstance(id, str) and id), None)


def _usage(provider: str, events: list[dict[str, Any]]) -> Usage | None:
    """The last word on each figure: of the counts of a message each replaces the one before."""
    said: dict[str, Any] = {}
    for one in (*_objects(provider, events), *events):
        if isinstance(one.get("usage"), dict):
            said |= one["usage"]
    if not said:
        return None
    given, made = _part(said, "input_tokens"), _part(said, "output_tokens")
    if provider == "anthropic":
        taken, written = _part(said, "cache_read_input_tokens"), _part(said, "cache_creation_input_tokens")
        given, thought = given + taken + written, _part(said, "output_tokens_details", "thinking_tokens")
    else:
        taken = _part(said, "input_tokens_details", "cached_tokens")
        written = _part(said, "input_tokens_details", "cache_write_tokens")
        thought = _part(said, "output_tokens_details", "reasoning_tokens")
    return Usage(
        input_tokens=given,
        cached_input_tokens=taken,
        cache_write_tokens=written,
        output_tokens=made,
        reasoning_tokens=thought,
    )


def _part(said: dict[str, Any], *names: str) -> int:
    found: Any = said
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    if found is None:
        return 0
    if type(found) is not int or found < 0:
        raise UnclearWire("A figure of a reply's usage is no number of tokens.")
    return found


class _Heard(httpx2.SyncByteStream):
    def __init__(self, stream: httpx2.SyncByteStream, exchange: Exchange) -> None:
        self._stream, self._exchange = stream, exchange

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            self._exchange.parts.append(chunk)
            yield chunk
        self._exchange.whole = True

    def close(self) -> None:
        self._stream.close()


class Witness(httpx2.HTTPTransport):
    """A transport that remembers what passes. It takes no proxy and no certificates from the environment.

    Args:
        provider: whose host is looked for.
        verify: as httpx2 takes it.
    """

    def __init__(self, provider: str, *, verify: ssl.SSLContext | bool = True) -> None:
        super().__init__(verify=verify, trust_env=False)
        self._provider = provider
        self.exchanges: list[Exchange] = []

    def client(self) -> httpx2.Client:
        """A client over it. Replies come as they are, since compressed ones could not be read."""
        return httpx2.Client(transport=self, trust_env=False, headers={"accept-encoding": "identity"})

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and remember it."""
        count = request.headers.get(_RETRY_COUNT, "")
        exchange = Exchange(
            provider=self._provider,
            host=host_of(self._provider, request.url),
            retry_count=int(count) if count.isdecimal() else None,
            sent=json.loads(request.content or b"{}"),
        )
        self.exchanges.append(exchange)
        response = super().handle_request(request)
        exchange.status = response.status_code
        exchange.certificate = _certificate(response)
        assert isinstance(response.stream, httpx2.SyncByteStream)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_Heard(response.stream, exchange),
            extensions=response.extensions,
        )


def _certificate(response: httpx2.Response) -> str | None:
    """The digest of the certificate that the server showed on this connection."""
    tls = response.extensions["network_stream"].get_extra_info("ssl_object")
    shown = None if tls is None else tls.getpeercert(True)
    return None if shown is None else hashed(shown)
