"""In-process transports: the exchange of a simulated provider as an httpx2 transport performs it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Protocol

import httpx2

from memoflow.testing._wire import Body, Exchange, Fail, Head, Wait, WireRequest

__all__ = ["AsyncSimulatedTransport", "Opens", "SimulatedTransport"]

_FAILURES: dict[str, tuple[type[httpx2.TransportError], str]] = {
    "connect_refused": (httpx2.ConnectError, "[Errno 111] Connection refused"),
    "dns_failure": (httpx2.ConnectError, "[Errno -2] Name or service not known"),
    "connect_timeout": (httpx2.ConnectTimeout, "timed out"),
    "pool_timeout": (httpx2.PoolTimeout, "timed out"),
    "write_error": (httpx2.WriteError, "[Errno 32] Broken pipe"),
    "read_timeout": (httpx2.ReadTimeout, "The read operation timed out"),
    "reset": (httpx2.ReadError, "[Errno 104] Connection reset by peer"),
    "closed": (httpx2.RemoteProtocolError, "Server disconnected without sending a response."),
    "truncated": (
        httpx2.RemoteProtocolError,
        "peer closed connection without sending complete message body",
    ),
}


class Opens(Protocol):
    """What answers requests; `SimulatedProvider` does."""

    def open(self, wire: WireRequest) -> Exchange:
        """Decide about a request."""
        ...


def _failure(kind: str) -> httpx2.TransportError:
    error, message = _FAILURES[kind]
    return error(message)


def _wire_request(request: httpx2.Request, body: bytes) -> WireRequest:
    return WireRequest(
        method=request.method,
        path=request.url.path,
        query=dict(request.url.params),
        headers={name.lower(): value for name, value in request.headers.items()},
        body=body,
    )


def _read_timeout(request: httpx2.Request) -> float | None:
    timeouts = request.extensions.get("timeout", {})
    limit: float | None = timeouts.get("read")
    return limit


def _headers(head: Head) -> list[tuple[str, str]]:
    framing = ("transfer-encoding", "chunked")
    if head.length is not None:
        framing = ("content-length", str(head.length))
    return [*head.headers, framing]


class _Reading:
    """An exchange being read by a client, whose read timeout applies to every wait."""

    def __init__(self, exchange: Exchange, limit: float | None) -> None:
        self.exchange, self._limit = exchange, limit
        self._steps = iter(exchange)

    def next(self) -> Wait | Head | Body | None:
        step = next(self._steps, None)
        if isinstance(step, Fail):
            raise _failure(step.kind)
        return step

    def wait(self, step: Wait) -> None:
        if step.gate is not None:
            _in_time(step.gate.released.wait(self._limit))
            return
        time.sleep(self._bounded(step.seconds))
        _in_time(self._fits(step.seconds))

    async def wait_async(self, step: Wait) -> None:
        if step.gate is not None:
            _in_time(await step.gate.released.wait_async(self._limit))
            return
        await asyncio.sleep(self._bounded(step.seconds))
        _in_time(self._fits(step.seconds))

    def _bounded(self, seconds: float | None) -> float:
        wanted = seconds or 0
        return wanted if self._limit is None else min(wanted, self._limit)

    def _fits(self, seconds: float | None) -> bool:
        return self._limit is None or (seconds or 0) <= self._limit


def _in_time(came: bool) -> None:
    if not came:
        raise _failure("read_timeout")


def _response(head: Head, request: httpx2.Request, stream: _SyncBody | _AsyncBody) -> httpx2.Response:
    extensions = {"http_version": b"HTTP/1.1"}
    return httpx2.Response(
        head.status, headers=_headers(head), stream=stream, request=request, extensions=extensions
    )


class _SyncBody(httpx2.SyncByteStream):
    def __init__(self, reading: _Reading) -> None:
        self._reading = reading

    def __iter__(self) -> Iterator[bytes]:
        try:
            while (step := self._reading.next()) is not None:
                if isinstance(step, Wait):
                    self._reading.wait(step)
                elif isinstance(step, Body):
                    yield step.data
        finally:
            self.close()

    def close(self) -> None:
        self._reading.exchange.abandon()


class _AsyncBody(httpx2.AsyncByteStream):
    def __init__(self, reading: _Reading) -> None:
        self._reading = reading

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while (step := self._reading.next()) is not None:
                if isinstance(step, Wait):
                    await self._reading.wait_async(step)
                elif isinstance(step, Body):
                    # A socket would let other tasks run here, and cancellation arrive.
                    await asyncio.sleep(0)
                    yield step.data
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        self._reading.exchange.abandon()


class SimulatedTransport(httpx2.BaseTransport):
    """The transport of a synchronous client of a simulated provider."""

    def __init__(self, provider: Opens) -> None:
        self._provider = provider

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Perform one exchange up to its head; the body follows as it is read."""
        exchange = self._provider.open(_wire_request(request, request.read()))
        reading = _Reading(exchange, _read_timeout(request))
        try:
            while not isinstance(step := reading.next(), Head):
                if isinstance(step, Wait):
                    reading.wait(step)
        except BaseException:
            exchange.abandon()
            raise
        return _response(step, request, _SyncBody(reading))


class AsyncSimulatedTransport(httpx2.AsyncBaseTransport):
    """The transport of an asynchronous client (asyncio) of a simulated provider."""

    def __init__(self, provider: Opens) -> None:
        self._provider = provider

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Perform one exchange up to its head; the body follows as it is read."""
        body = await request.aread()
        # Connecting and reading let other tasks run, and cancellation arrive before or after the request.
        await asyncio.sleep(0)
        exchange = self._provider.open(_wire_request(request, body))
        reading = _Reading(exchange, _read_timeout(request))
        try:
            await asyncio.sleep(0)
            while not isinstance(step := reading.next(), Head):
                if isinstance(step, Wait):
                    await reading.wait_async(step)
        except BaseException:
            exchange.abandon()
            raise
        return _response(step, request, _AsyncBody(reading))
