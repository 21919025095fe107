"""The commit counters count commits, and nothing else."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from certification.bench.counting import PostgresCounter, SqliteCounter, counter
from certification.bench.figures.commits import Calls, nothing, plain
from memoflow.testing import text
from tests._databases import SERVER_VARIABLE

ALONE = pytest.mark.skipif(
    SERVER_VARIABLE in os.environ, reason="others may write to a server that was named"
)


def sqlite_writes(file: Path, commits: int) -> None:
    """So many commits of several pages, with reads and a rollback between them."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS small (n INTEGER, padding BLOB)")
        for n in range(commits):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO small VALUES (?, zeroblob(20000))", (n,))
            connection.execute("COMMIT")
            connection.execute("SELECT count(*) FROM small").fetchone()
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO small VALUES (?, zeroblob(20000))", (n,))
            connection.execute("ROLLBACK")


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("commits", [1, 7, 300])
def test_sqlite_commits_are_counted_in_its_log(sqlite_url: str, commits: int, copied: bool) -> None:
    """However many pages they wrote, and not what was rolled back or read.

    Also where SQLite had copied the log into the file before, and would again after a thousand pages.
    """
    file = Path(make_url(sqlite_url).database or "")
    with closing(sqlite3.connect(file)) as keeps_the_log:
        keeps_the_log.execute("SELECT count(*) FROM writers").fetchone()
        sqlite_writes(file, 2)
        if copied:
            keeps_the_log.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
        count = counter(sqlite_url)
        assert isinstance(count, SqliteCounter)
        sqlite_writes(file, commits)
        assert count.count() == commits
        count.mark()
        assert count.count() == 0
        count.close()


@ALONE
@pytest.mark.postgres
@pytest.mark.parametrize("commits", [1, 7])
def test_postgresql_commits_are_counted_in_its_log(postgres_url: str, commits: int) -> None:
    """Transactions that only read are in the server's own figure, and not in ours."""
    count = counter(postgres_url)
    assert isinstance(count, PostgresCounter)
    url = make_url(postgres_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE small (n bigint)")
    before = count.transactions()
    count.mark()
    assert count.count() == 0
    with psycopg.connect(url) as connection:
        for n in range(commits):
            connection.execute("INSERT INTO small VALUES (%s)", (n,))
            connection.commit()
            connection.execute("SELECT count(*) FROM small")
            connection.commit()
            connection.execute("INSERT INTO small VALUES (%s)", (n,))
            connection.rollback()
    assert count.count() == commits
    assert count.transactions() - before >= 2 * commits
    count.close()


@ALONE
def test_an_activity_with_a_call_has_four_commits(database_url: str) -> None:
    """Claim, reserve, settle, complete: as the figure counts them, on each database."""
    ledger, count = Calls(database_url), counter(database_url)
    assert ledger.commits(count, 3, nothing) == 3 * 2
    assert ledger.commits(count, 3, plain, text("a")) == 3 * 4
    count.close()
