"""Ledger databases that many tests share, each in namespaces of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, event, select

from memoflow.ledger import schema as s
from memoflow.ledger.database import Database
from memoflow.ledger.verify import verify

__all__ = ["shared_ledger"]


@contextmanager
def shared_ledger(url: str) -> Iterator[Database]:
    """An open, migrated database, which is verified at the end."""
    database = Database(url)
    try:
        if database.is_sqlite:
            # Nothing here is killed, and waiting for the disk would take most of the time.
            event.listen(database.engine, "connect", lambda made, _: made.execute("PRAGMA synchronous=OFF"))
            database.engine.dispose()
        yield database
        assert database.read(verify) == [], database.read(_blamed)
    finally:
        database.close()


def _blamed(connection: Connection) -> list[str]:
    """The namespaces, which are named after tests, in which something is wrong."""
    names = connection.scalars(select(s.accounts.c.namespace).distinct()).all()
    return [name for name in names if verify(connection, name)]
