"""Plain connections for tests that look at a database past the package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, create_engine

from memoflow.ledger.migrate import parse_url

__all__ = ["connect"]


@contextmanager
def connect(url: str) -> Iterator[Connection]:
    """A transaction on a database, with the driver's own defaults and without the package's settings."""
    engine = create_engine(parse_url(url))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()
