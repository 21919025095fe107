"""Bytes on a socket, for what no client would send."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import h11

__all__ = ["exchange", "replies"]


def exchange(base_url: str, sent: bytes, *, seconds: float = 10.0) -> bytes:
    """Send bytes and read until the other side closes."""
    address = urlsplit(base_url)
    got = b""
    with socket.create_connection((str(address.hostname), address.port or 80), timeout=seconds) as connection:
        connection.sendall(sent)
        while piece := _piece(connection):
            got += piece
    return got


def _piece(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65_536)
    except ConnectionResetError:
        return b""


def replies(got: bytes, count: int) -> list[tuple[int, bytes]]:
    """The replies to so many GET requests that were sent one after the other without waiting."""
    connection = h11.Connection(h11.CLIENT)
    connection.receive_data(got)
    found = []
    for number in range(count):
        if number:
            connection.start_next_cycle()
        connection.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
        connection.send(h11.EndOfMessage())
        status, body = 0, b""
        while not isinstance(event := connection.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif event in (h11.NEED_DATA, h11.PAUSED):
                raise AssertionError("the reply is not whole")
        found.append((status, body))
    return found
