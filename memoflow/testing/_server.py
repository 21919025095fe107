"""The simulated provider over real sockets: resets and truncation as the network does them."""

from __future__ import annotations

import selectors
import socket
import struct
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from memoflow.testing._control import CONTROL, control
from memoflow.testing._encoding import encode_json
from memoflow.testing._script import BEFORE_ARRIVAL
from memoflow.testing._served import Served
from memoflow.testing._wire import Body, Fail, Head, Wait, WireRequest

__all__ = ["ProviderServer"]

_STOP_SECONDS = 5.0


class ProviderServer:
    """A simulated provider listening on a socket, one thread a connection.

    Args:
        provider: what answers.
        host: address to listen on.
        port: port to listen on; 0 takes a free one.

    Attributes:
        base_url: what a client of OpenAI takes as its ``base_url``. One of Anthropic takes it without the
            ``/v1`` at its end.
    """

    def __init__(self, provider: Served, host: str = "127.0.0.1", port: int = 0) -> None:
        self._http = _HttpServer((host, port), provider)
        self.base_url = f"http://{host}:{self._http.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Close the socket and every connection, and wait for their threads."""
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
        self._http.drop_connections()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 512

    def __init__(self, address: tuple[str, int], provider: Served) -> None:
        super().__init__(address, _Handler)
        self.provider = provider
        self._live: set[socket.socket] = set()
        self._changed = threading.Condition()

    def entered(self, connection: socket.socket) -> None:
        with self._changed:
            self._live.add(connection)

    def left(self, connection: socket.socket) -> None:
        with self._changed:
            self._live.discard(connection)
            self._changed.notify_all()

    def drop_connections(self) -> None:
        with self._changed:
            for connection in self._live:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._changed.wait_for(lambda: not self._live, _STOP_SECONDS)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that resets its connection is nothing to print a traceback about.
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _ClientGone(ConnectionError):
    """The client closed its connection while its reply was held back."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Without this every small write of a stream waits for a delayed acknowledgement.
    disable_nagle_algorithm = True
    server: _HttpServer
    _chunked = False

    def setup(self) -> None:
        super().setup()
        self.server.entered(self.connection)

    def finish(self) -> None:
        try:
            with suppress(OSError):
                super().finish()
        finally:
            self.server.left(self.connection)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: requests are recorded, not printed."""

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def _serve(self) -> None:
        wire = self._wire_request()
        if wire is None:
            # What was cut short has not arrived.
            self.close_connection = True
            return
        if wire.path.startswith(CONTROL):
            status, answer = control(self.server.provider, wire)
            self._send_json(status, encode_json(answer))
            return
        exchange = self.server.provider.open(wire)
        try:
            for step in exchange:
                self._perform(step)
            self._end_body()
        except OSError:
            self.close_connection = True
            exchange.abandon(undelivered=True)

    def _wire_request(self) -> WireRequest | None:
        """The request, or None if its client went away before the end of its body."""
        url = urlsplit(self.path)
        length = int(self.headers.get("content-length") or 0)
        try:
            body = self.rfile.read(length)
        except OSError:
            return None
        if len(body) < length:
            return None
        return WireRequest(
            method=self.command,
            path=url.path,
            query=dict(parse_qsl(url.query)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body,
        )

    def _perform(self, step: Wait | Head | Body | Fail) -> None:
        if isinstance(step, Wait):
            self._wait(step)
        elif isinstance(step, Head):
            self._send_head(step)
        elif isinstance(step, Body):
            self._write(step.data)
        else:
            self._fail(step)

    def _send_head(self, head: Head) -> None:
        self._chunked = head.length is None
        self.send_response_only(head.status)
        for name, value in head.headers:
            self.send_header(name, value)
        if head.length is None:
            self.send_header("transfer-encoding", "chunked")
        else:
            self.send_header("content-length", str(head.length))
        self.end_headers()

    def _write(self, data: bytes) -> None:
        if self._gone():
            raise _ClientGone
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data) if self._chunked else data)

    def _end_body(self) -> None:
        if self._chunked and not self.close_connection:
            self.wfile.write(b"0\r\n\r\n")
        self._chunked = False

    def _fail(self, fail: Fail) -> None:
        self.close_connection = True
        if fail.kind in BEFORE_ARRIVAL:
            self._send_json(501, _NOT_OVER_SOCKETS, (("x-should-retry", "false"),))
        elif fail.kind == "read_timeout":
            self._wait(Wait())
        elif fail.kind == "reset":
            # Lingering for no time makes close() send a reset instead of a good end.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        elif fail.kind == "truncated" and self._chunked:
            self.wfile.write(b"1000\r\ndata: {")

    def _send_json(self, status: int, body: bytes, headers: tuple[tuple[str, str], ...] = ()) -> None:
        self._send_head(Head(status, (("content-type", "application/json"), *headers), len(body)))
        self.wfile.write(body)

    def _wait(self, step: Wait) -> None:
        """Wait as the step says, or for ever, but not for a client that has gone."""
        wake, woken = socket.socketpair()
        unsubscribe = None
        if step.gate is not None:
            unsubscribe = step.gate.released.subscribe(lambda: _poke(wake))
        try:
            ready = _readable(self.connection, woken, step.seconds)
            if self.connection in ready and woken not in ready and self._gone():
                raise _ClientGone
        finally:
            if unsubscribe is not None:
                unsubscribe()
            wake.close()
            woken.close()

    def _gone(self) -> bool:
        try:
            return len(self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)) == 0
        except BlockingIOError:
            return False


# An error as both OpenAI and Anthropic write it.
_NOT_OVER_SOCKETS = encode_json(
    {
        "type": "error",
        "error": {
            "message": "A server cannot simulate this failure; use refused_url() or an in-process client.",
            "type": "script_error",
            "param": None,
            "code": "not_over_sockets",
        },
    }
)


def _readable(connection: socket.socket, woken: socket.socket, seconds: float | None) -> list[object]:
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(seconds)]


def _poke(wake: socket.socket) -> None:
    with suppress(OSError):
        wake.send(b"x")
