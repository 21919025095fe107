"""What the campaign does to all workers at once: the clock, and the way of a commit."""

from __future__ import annotations

import random
import sqlite3
import time
from multiprocessing.context import BaseContext
from typing import Any

from sqlalchemy import Connection, Engine, event

from memoflow.ledger.dialect import database_now

__all__ = ["Weather"]

OFFSET_US, DELAY_MS, LOST_PERCENT, FULL = range(4)
NO_LIMIT = 1_073_741_823
SECOND_US = 1_000_000


class Weather:
    """A few numbers in shared memory, which no death of a process can leave locked."""

    def __init__(self, context: BaseContext) -> None:
        self._values: Any = context.RawArray("q", 4)

    # The campaign's side

    def step(self, seconds: float) -> None:
        """Let the ledger's clock step, forward or backward."""
        self._values[OFFSET_US] += round(seconds * SECOND_US)

    def slow(self, seconds: float) -> None:
        """Let every commit take so much longer."""
        self._values[DELAY_MS] = round(seconds * 1000)

    def lose(self, percent: int) -> None:
        """Let so many of the replies to a commit be lost."""
        self._values[LOST_PERCENT] = percent

    def fill(self, full: bool) -> None:
        """Let no SQLite database grow, where its disk cannot be filled."""
        self._values[FULL] = full

    def calm(self) -> None:
        """Nothing of this but the clock, which stays where it is."""
        self.slow(0)
        self.lose(0)
        self.fill(False)

    # The workers' side

    def clock(self, connection: Connection) -> int:
        """The ledger's clock."""
        return database_now(connection) + int(self._values[OFFSET_US])

    @property
    def delay(self) -> float:
        """Seconds that a commit takes longer."""
        return float(self._values[DELAY_MS] / 1000)

    def loses(self) -> bool:
        """Whether the reply to this commit is lost."""
        return random.randrange(100) < int(self._values[LOST_PERCENT])

    def install(self, engine: Engine, lost: Any) -> None:
        """Let commits to SQLite feel it; in front of PostgreSQL stands a proxy. ``lost`` counts."""
        dialect: Any = engine.dialect
        commit = dialect.do_commit

        def do_commit(connection: Any) -> None:
            time.sleep(self.delay)
            commit(connection)
            if self.loses():
                lost()
                error = sqlite3.OperationalError("the reply to this commit was lost")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR
                error.sqlite_errorname = "a lost reply"
                raise error

        dialect.do_commit = do_commit

        @event.listens_for(engine, "begin")
        def limit(connection: Connection) -> None:
            # A limit below the present size means the present size.
            connection.exec_driver_sql(f"PRAGMA max_page_count = {1 if self._values[FULL] else NO_LIMIT}")
