"""A database on which programs live one after the other."""

from __future__ import annotations

from typing import Any

from sqlalchemy import event

from memoflow import Digester, KeyRing, PriceBook, Runtime
from memoflow.ledger.database import Database
from memoflow.testing import ManualClock

__all__ = ["LEASE_S", "Site"]

LEASE_S = 60


class Site:
    """A database, and the way to open runtimes on it one after the other.

    They share its connections, which hold nothing that a death would take away, and the compiled statements.
    """

    def __init__(self, url: str) -> None:
        self.clock = ManualClock()
        self._database = Database(url, clock=self.clock)
        self.is_sqlite = self._database.is_sqlite
        if self.is_sqlite:
            event.listen(self._database.engine, "connect", _trust_the_machine)
            self._database.engine.dispose()
        self._keys = KeyRing.generate()

    def open(self) -> Runtime:
        """A runtime as `Runtime.open` makes it."""
        return Runtime(
            self._database,
            namespace="crash",
            keys=self._keys,
            digester=Digester(),
            prices=PriceBook(),
            lease_seconds=LEASE_S,
            retention_days=None,
            worker="worker",
        )

    def close(self) -> None:
        """Close the connections."""
        self._database.close()


def _trust_the_machine(connection: Any, record: Any) -> None:
    # The program dies here, the machine does not: what is written need not reach the disk.
    connection.execute("PRAGMA synchronous = OFF")
