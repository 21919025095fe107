"""A proxy in front of PostgreSQL that delays commits, loses the replies to them, and sees them coming."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from certification.crash.weather import Weather

__all__ = ["Proxy"]

COMMIT = b"COMMIT"
COMMITTED = b"COMMIT\0"
"""What the server says about a statement that was a commit: its command tag."""
CHUNK = 65_536


class Proxy:
    """Listens on loopback and passes everything on to the socket of a server.

    Attributes:
        port: where it listens.
        lost: how many replies to a commit it lost.
    """

    def __init__(self, server: Path, weather: Weather) -> None:
        self._server, self._weather = server, weather
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.lost = 0
        self._ambush: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    def at_next_commit(self, action: Callable[[], None] | None) -> None:
        """Do something once, when the next commit has just been sent to the server; None takes it back."""
        self._ambush = action

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(os.fspath(self._server))
        except OSError:
            client.close()
            server.close()
            return
        asking = threading.Thread(target=self._pass, args=(client, server, self._see_request), daemon=True)
        asking.start()
        self._pass(server, client, self._see_reply)
        asking.join()
        client.close()
        server.close()

    def _pass(
        self, source: socket.socket, target: socket.socket, look: Callable[[bytes, socket.socket], bool]
    ) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                if not look(data, target):
                    break
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _see_request(self, data: bytes, server: socket.socket) -> bool:
        ambush = self._ambush if COMMIT in data else None
        server.sendall(data)
        if ambush is not None:
            self._ambush = None
            ambush()
        return True

    def _see_reply(self, data: bytes, client: socket.socket) -> bool:
        if COMMITTED in data:
            time.sleep(self._weather.delay)
            if self._weather.loses():
                self.lost += 1
                return False
        client.sendall(data)
        return True
