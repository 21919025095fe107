"""What tests do to a PostgreSQL server behind the ledger's back."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import create_engine, make_url, text

from tests.ledger._support import connect

__all__ = ["alter_database", "terminate", "terminate_all", "wait_for_lock", "wait_until_alone"]

PATIENCE_S = 30


def terminate(url: str, pid: int) -> None:
    """End a backend, and wait until it is gone."""
    _run(url, f"SELECT pg_terminate_backend({pid})")
    _wait(url, f"SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = {pid}")


def terminate_all(url: str) -> None:
    """End all backends of a database, and wait until they are gone."""
    others = f"FROM pg_stat_activity WHERE datname = '{make_url(url).database}'"
    _run(_maintenance(url), f"SELECT pg_terminate_backend(pid) {others}")
    _wait(_maintenance(url), f"SELECT count(*) = 0 {others}")


def alter_database(url: str, change: str) -> None:
    """``ALTER DATABASE`` this one, from another; for connections made from now on."""
    engine = create_engine(_maintenance(url), isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.execute(text(f'ALTER DATABASE "{make_url(url).database}" {change}'))
    finally:
        engine.dispose()


def wait_for_lock(url: str) -> None:
    """Wait until a backend of this database waits for a lock."""
    _wait(
        url,
        "SELECT count(*) > 0 FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'",
    )


def wait_until_alone(url: str) -> None:
    """Wait until this database has no connection but the one that asks."""
    _wait(url, "SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database()")


def _maintenance(url: str) -> str:
    return make_url(url).set(database="postgres").render_as_string(hide_password=False)


def _run(url: str, statement: str) -> Any:
    with connect(url) as connection:
        return connection.execute(text(statement)).scalar_one()


def _wait(url: str, question: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not _run(url, question):
        assert time.monotonic() < deadline, question
        time.sleep(0.01)
