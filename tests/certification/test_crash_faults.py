"""The faults of the crash campaign do what they say: one without them is not taken for one with them."""

from __future__ import annotations

import multiprocessing
import socket
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import OperationalError

from certification.crash import disk as disk_module
from certification.crash.disk import Disk
from certification.crash.proxy import Proxy
from certification.crash.weather import Weather


@pytest.fixture
def weather() -> Weather:
    """Calm weather."""
    return Weather(multiprocessing.get_context("spawn"))


def insert(engine: Engine, size: int = 200_000) -> None:
    """Write a row."""
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO notes VALUES (:note)"), {"note": "x" * size})


def ledger(path: Path, weather: Weather) -> Engine:
    """A database like a worker's."""
    engine = create_engine(f"sqlite:///{path / 'ledger.db'}")
    weather.install(engine, lambda: None)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE notes (note TEXT)"))
    return engine


@pytest.mark.parametrize("kind", ["tmpfs", "max_page_count"])
def test_a_full_disk_is_sqlite_full(
    kind: str, weather: Weather, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either way SQLite itself says that the disk is full, and goes on when it no longer is."""
    if kind == "max_page_count":
        monkeypatch.setattr(disk_module, "_mount", lambda *_: False)
    with Disk(tmp_path / "disk", weather) as disk:
        if disk.kind != kind:
            pytest.skip("no file system may be mounted here")
        engine = ledger(disk.path, weather)
        disk.fill(0.0)
        with pytest.raises(OperationalError) as raised:
            insert(engine)
        assert raised.value.orig is not None
        assert getattr(raised.value.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        disk.free()
        insert(engine)
        engine.dispose()


def test_a_lost_reply_is_that_of_a_commit_that_arrived(weather: Weather, tmp_path: Path) -> None:
    """The caller hears of an error, and the row is there."""
    engine = ledger(tmp_path, weather)
    weather.lose(100)
    with pytest.raises(OperationalError):
        insert(engine, 1)
    weather.calm()
    with engine.begin() as connection:
        assert connection.execute(text("SELECT count(*) FROM notes")).scalar() == 1
    engine.dispose()


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[bytes]]]:
    """A server that answers everything as PostgreSQL answers a commit, and what it was asked."""
    # The path of a Unix socket may have 107 bytes.
    path = tmp_path_factory.mktemp("s") / "s"
    seen: list[bytes] = []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            while data := connection.recv(100):
                seen.append(data)
                connection.sendall(b"C\0\0\0\x0bCOMMIT\0")

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        yield path, seen
        thread.join()


def test_the_proxy_loses_replies_and_sees_commits(server: tuple[Path, list[bytes]], weather: Weather) -> None:
    """A commit reaches the server, whoever waits for it is told once, and its reply may never arrive."""
    path, seen = server
    told: list[str] = []
    with Proxy(path, weather) as proxy, socket.create_connection(("127.0.0.1", proxy.port)) as client:
        client.sendall(b"COMMIT")
        assert client.recv(100).endswith(b"COMMIT\0")
        proxy.at_next_commit(lambda: told.append("now"))
        weather.lose(100)
        client.sendall(b"COMMIT")
        assert client.recv(100) == b""
        assert (proxy.lost, told, len(seen)) == (1, ["now"], 2)
