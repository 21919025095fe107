"""Where a campaign happens: the ledger's database, what can be done to it, and the files of evidence."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from certification.crash.disk import Disk
from certification.crash.proxy import Proxy
from certification.crash.server import Server
from certification.crash.weather import Weather
from memoflow.ledger.migrate import upgrade

__all__ = ["PostgresSite", "Site", "SqliteSite"]


class Site:
    """A database and the faults it knows.

    Attributes:
        url: for those who are not disturbed: the operator and the auditor.
        workers_url: for workers.
    """

    url: str
    workers_url: str

    def __init__(self, directory: Path, weather: Weather) -> None:
        self.directory, self.weather = directory, weather
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._stack = stack
            self._open()
            upgrade(self.workers_url)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _open(self) -> None:
        raise NotImplementedError

    def faults(self) -> dict[str, tuple[Callable[[float], None], Callable[[], None]]]:
        """What can be done to this database: how it begins, given an amount from 0 to 1, and how it ends."""
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        """What a report says about it."""
        raise NotImplementedError


class SqliteSite(Site):
    """A file on a disk of its own."""

    def _open(self) -> None:
        self._disk = self._stack.enter_context(Disk(self.directory / "disk", self.weather))
        self.url = self.workers_url = f"sqlite:///{self._disk.path / 'ledger.db'}"

    def faults(self) -> dict[str, tuple[Callable[[float], None], Callable[[], None]]]:
        """A full disk."""
        return {"full": (self._disk.fill, self._disk.free)}

    def facts(self) -> dict[str, Any]:
        """How the disk is made full."""
        return {"full disk by": self._disk.kind}


class PostgresSite(Site):
    """A server of its own, with a proxy in front of it for workers."""

    def _open(self) -> None:
        self._server = self._stack.enter_context(Server(self.directory))
        self._proxy = self._stack.enter_context(Proxy(self._server.socket, self.weather))
        self.url = self._server.url
        self.workers_url = self._server.through(self._proxy.port)

    def faults(self) -> dict[str, tuple[Callable[[float], None], Callable[[], None]]]:
        """An immediate stop, while a commit is on its way."""
        return {"stop": (self._stop, self._start)}

    def _stop(self, amount: float) -> None:
        self._proxy.at_next_commit(self._server.stop_at_once)

    def _start(self) -> None:
        # Where no commit came by in time.
        self._proxy.at_next_commit(None)
        self._server.stop_at_once()
        self._server.start()

    def facts(self) -> dict[str, Any]:
        """What the proxy did."""
        return {"commit replies lost": self._proxy.lost}
