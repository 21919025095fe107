"""First starts that meet: processes and threads on one fresh database, and on several (field case 45)."""

from __future__ import annotations

import multiprocessing
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import text

from memoflow.errors import LedgerUnavailable
from memoflow.ledger import migrate
from tests.ledger._support import connect

STARTERS = 4


@pytest.mark.slow
def test_processes_that_start_together_on_one_fresh_database_all_succeed(empty_database_url: str) -> None:
    """Four processes run the first upgrade of one database at once; each ends with a current schema."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(STARTERS)
    with ProcessPoolExecutor(STARTERS, mp_context=context, initializer=barrier.wait) as pool:
        futures = [pool.submit(migrate.upgrade, empty_database_url) for _ in range(STARTERS)]
        assert [future.result() for future in futures] == [migrate.HEAD] * STARTERS
    assert migrate.check(empty_database_url).current


def upgrade_together(urls: list[str]) -> list[str]:
    """Upgrade databases from as many threads, started at a barrier."""
    barrier = threading.Barrier(len(urls))

    def start(url: str) -> str:
        barrier.wait()
        return migrate.upgrade(url)

    with ThreadPoolExecutor(len(urls)) as pool:
        return list(pool.map(start, urls))


def test_threads_that_start_together_on_one_fresh_database_all_succeed(empty_database_url: str) -> None:
    """Four threads run the first upgrade of one database at once; each ends with a current schema."""
    assert upgrade_together([empty_database_url] * STARTERS) == [migrate.HEAD] * STARTERS


def test_threads_that_start_together_on_different_databases_all_succeed(tmp_path: Path) -> None:
    """Alembic's globals are shared by a process, so four threads on four databases take turns."""
    urls = [f"sqlite:///{tmp_path}/{number}.db" for number in range(STARTERS)]
    assert upgrade_together(urls) == [migrate.HEAD] * STARTERS
    assert all(migrate.check(url).current for url in urls)


def test_the_revision_is_read_again_under_the_lock(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever read "not migrated" before a peer's commit finds the peer's work, and does not repeat it."""
    stale = migrate.SchemaState(None, migrate.HEAD)
    monkeypatch.setattr(migrate, "_state", lambda engine: stale)
    assert migrate.upgrade(database_url) == migrate.HEAD


@contextmanager
def migration_lock(url: str) -> Iterator[None]:
    """Hold what an upgrade waits for, as a peer that is migrating does."""
    with connect(url) as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN EXCLUSIVE")
        else:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({migrate._ADVISORY_KEY})")
        yield
        connection.rollback()


def test_a_current_schema_takes_no_lock(database_url: str) -> None:
    """A start on a current schema goes through while a peer holds the migration lock."""
    with migration_lock(database_url):
        assert migrate.upgrade(database_url, timeout=0.05) == migrate.HEAD
        assert migrate.check(database_url).current


def test_waiting_for_a_peer_is_bounded(database_url: str) -> None:
    """A peer that never finishes is reported as unavailable, not waited for without end."""
    with connect(database_url) as connection:
        connection.execute(text(f"DELETE FROM {migrate.VERSION_TABLE}"))
    with (
        migration_lock(database_url),
        pytest.raises(LedgerUnavailable, match="held the ledger's lock"),
    ):
        migrate.upgrade(database_url, timeout=0.05)


def test_the_switch_to_wal_waits_for_a_peer_that_writes(
    empty_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite refuses the switch at once while a peer holds the write lock, so it is tried again."""
    path = migrate.parse_url(empty_sqlite_url).database
    with closing(sqlite3.connect(str(path), isolation_level=None)) as peer:
        peer.execute("BEGIN IMMEDIATE")
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            peer.rollback()

        clock = SimpleNamespace(sleep=pause, monotonic=lambda: 0.0)
        monkeypatch.setattr(migrate, "time", clock)
        assert migrate.upgrade(empty_sqlite_url) == migrate.HEAD
        assert pauses
        assert peer.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_the_wait_for_the_switch_to_wal_is_bounded(
    empty_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that keeps the write lock of a fresh file is reported, not waited for without end."""
    path = migrate.parse_url(empty_sqlite_url).database
    times = iter(range(100))
    monkeypatch.setattr(migrate, "time", SimpleNamespace(sleep=lambda s: None, monotonic=lambda: next(times)))
    with closing(sqlite3.connect(str(path), isolation_level=None)) as peer:
        peer.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerUnavailable):
            migrate.upgrade(empty_sqlite_url, timeout=0.05)
