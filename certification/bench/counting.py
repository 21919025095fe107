"""Counting durable commits where they cannot be mistaken: in the write-ahead log of the database itself."""

from __future__ import annotations

import sqlite3
import struct
import time
from pathlib import Path
from typing import Any, Final, Protocol

import psycopg
from sqlalchemy.engine import make_url

__all__ = ["Counter", "PostgresCounter", "SqliteCounter", "counter", "wal_commits"]

# https://www.sqlite.org/fileformat2.html#the_write_ahead_log
_HEADER: Final = struct.Struct(">IIIIII")
_HEADER_SIZE: Final = 32
_FRAME: Final = struct.Struct(">IIII")
_FRAME_SIZE: Final = 24
_PATIENCE_S: Final = 10.0


class Counter(Protocol):
    """Durable commits of a database since it was marked."""

    def mark(self) -> None:
        """Count from here."""

    def count(self) -> int:
        """How many commits have been written since."""

    def close(self) -> None:
        """Stop counting."""


def counter(url: str) -> Counter:
    """The counter of a database."""
    parsed = make_url(url)
    if parsed.drivername.startswith("sqlite"):
        return SqliteCounter(Path(parsed.database or ""))
    return PostgresCounter(url)


def wal_commits(log: Path) -> tuple[bytes, int]:
    """The salt of a SQLite write-ahead log and how many commits are in it."""
    data = log.read_bytes() if log.exists() else b""
    if len(data) < _HEADER_SIZE:
        return b"", 0
    page_size, salt = _HEADER.unpack_from(data)[2], data[16:24]
    commits = 0
    for at in range(_HEADER_SIZE, len(data) - _FRAME_SIZE + 1, _FRAME_SIZE + page_size):
        # The last frame of a commit bears the size of the database; frames of another salt are left over.
        commits += data[at + 8 : at + 16] == salt and _FRAME.unpack_from(data, at)[1] != 0
    return salt, commits


class SqliteCounter:
    """Commit frames in the log of a SQLite file.

    While it counts it keeps a read transaction open, so that the log grows and is not written over: a
    log that had been copied into the file before is started anew by the first write, and none after.
    """

    def __init__(self, file: Path) -> None:
        self._log = file.with_name(f"{file.name}-wal")
        self._connection = sqlite3.connect(file, isolation_level=None)
        self.mark()

    def mark(self) -> None:
        """Count from here."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        self._connection.execute("BEGIN")
        self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        self._salt, self._before = wal_commits(self._log)

    def count(self) -> int:
        """How many commits have been written since."""
        salt, commits = wal_commits(self._log)
        return commits - self._before if salt == self._salt else commits

    def close(self) -> None:
        """Stop counting."""
        self._connection.close()


_CONNECTIONS: Final = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
_TRANSACTIONS: Final = "SELECT xact_commit FROM pg_stat_database WHERE datname = %s"
_COMMITS: Final = """
SELECT count(*) FROM pg_get_wal_records_info(%s, %s)
WHERE resource_manager = 'Transaction' AND record_type LIKE 'COMMIT%%'
"""


class PostgresCounter:
    """Commit records in the log of a PostgreSQL server on which nothing else happens."""

    def __init__(self, url: str) -> None:
        parsed = make_url(url).set(drivername="postgresql")
        self._database = parsed.database
        # From another database, so that asking does not count.
        asking = parsed.set(database="postgres").render_as_string(hide_password=False)
        self._connection = psycopg.connect(asking, autocommit=True)
        self._connection.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
        self.mark()

    def mark(self) -> None:
        """Count from here."""
        self._from = self._one("SELECT pg_current_wal_insert_lsn()")

    def count(self) -> int:
        """How many commits have been written since."""
        to = self._one("SELECT pg_current_wal_insert_lsn()")
        # Nothing can be read where nothing was written.
        return 0 if to == self._from else int(self._one(_COMMITS, self._from, to))

    def transactions(self) -> int:
        """How many transactions the server has counted in this database, those that only read included.

        A connection tells what it did when it closes, so all have to be closed.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while self._one(_CONNECTIONS, self._database) and time.monotonic() < deadline:
            time.sleep(0.01)
        return int(self._one(_TRANSACTIONS, self._database))

    def close(self) -> None:
        """Close the connection that asks."""
        self._connection.close()

    def _one(self, statement: str, *parameters: object) -> Any:
        row = self._connection.execute(statement.encode(), parameters or None).fetchone()
        assert row is not None
        return row[0]
