"""What is compared with: commits of one small row, without anything of memoflow."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg

from certification.bench.site import DatabaseKind, Site

__all__ = ["bare_commits"]

Commits = Callable[[int], None]


@contextmanager
def bare_commits(site: Site, kind: DatabaseKind) -> Iterator[Commits]:
    """A function that makes so many durable commits, each of one small row, on a database of its own."""
    if kind == "sqlite":
        with _sqlite(site.file()) as commits:
            yield commits
    else:
        with _postgresql(site.server.create()) as commits:
            yield commits


@contextmanager
def _sqlite(file: Path) -> Iterator[Commits]:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE small (id INTEGER PRIMARY KEY, n INTEGER)")

        def commits(count: int) -> None:
            for n in range(count):
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("INSERT INTO small (n) VALUES (?)", (n,))
                connection.execute("COMMIT")

        yield commits


@contextmanager
def _postgresql(url: str) -> Iterator[Commits]:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE small (id bigserial PRIMARY KEY, n bigint)")
        connection.commit()

        def commits(count: int) -> None:
            for n in range(count):
                connection.execute("INSERT INTO small (n) VALUES (%s)", (n,))
                connection.commit()

        yield commits
