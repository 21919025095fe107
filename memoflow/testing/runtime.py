"""A runtime on a temporary database, and a clock that tests move."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from memoflow.errors import InvalidRequest
from memoflow.keyring import KeyRing
from memoflow.ledger.migrate import upgrade
from memoflow.periods import from_datetime
from memoflow.runtime import Runtime

__all__ = ["ManualClock", "temporary_runtime"]

SECOND_US: Final = 1_000_000


class ManualClock:
    """A database clock that stands still until a test moves it; give it to a runtime as ``clock=``.

    Leases and budget periods follow it, so a test lets a dead worker's lease run out without waiting.

    Args:
        start: what it shows first (aware); this moment if left out.
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._lock = threading.Lock()
        self._now = time.time_ns() // 1000 if start is None else from_datetime(start)

    @property
    def now(self) -> int:
        """What it shows, in UTC microseconds."""
        return self._now

    def __call__(self, connection: object) -> int:
        """What it shows; the connection is what a runtime would ask otherwise."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move it on.

        Raises:
            InvalidRequest: ``seconds`` is negative; a database's clock is not expected to go back.
        """
        if not seconds >= 0:
            raise InvalidRequest("A clock can be advanced by 0 seconds or more, not set back.")
        with self._lock:
            self._now += round(seconds * SECOND_US)


@contextmanager
def temporary_runtime(url: str | None = None, **options: Any) -> Iterator[Runtime]:
    """A runtime that is closed at the end, on an SQLite database of its own that is then removed.

    Args:
        url: open this database instead, and leave it where it is; for one that outlives a runtime.
        options: as for `Runtime.open`. Without ``keys`` a temporary database gets a key ring of its own.
    """
    if url is not None:
        with Runtime.open(url, **options) as runtime:
            yield runtime
        return
    with tempfile.TemporaryDirectory(prefix="memoflow-") as directory:
        file = Path(directory) / "memoflow.db"
        file.write_bytes(_empty_ledger())
        given = {"keys": KeyRing.generate(), **options}
        with Runtime.open(f"sqlite:///{file}", **given) as runtime:
            yield runtime


@cache
def _empty_ledger() -> bytes:
    """A migrated database without rows. Migrating takes long enough to do it once a process."""
    with tempfile.TemporaryDirectory(prefix="memoflow-") as directory:
        file = Path(directory) / "memoflow.db"
        upgrade(f"sqlite:///{file}")
        # The connection that migrated was the last one, and closing the last one moves the log into the file.
        return file.read_bytes()
