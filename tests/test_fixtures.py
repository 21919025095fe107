"""The fixtures that other tests stand on: the network guard and the fresh databases."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, inspect, text
from sqlalchemy.exc import OperationalError

from memoflow.ledger.migrate import check
from tests import _network
from tests._databases import PostgresServer
from tests._network import NetworkForbidden

# Documentation addresses: nobody has them, so nothing is reached even where the guard is broken.
ABROAD = [("192.0.2.1", socket.AF_INET), ("2001:db8::1", socket.AF_INET6)]


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """A transaction on an engine of its own."""
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@pytest.fixture
def refusals() -> Iterator[list[str]]:
    """What the guard refused, forgiven afterwards because the test meant it."""
    yield _network.attempts
    _network.attempts.clear()


@pytest.mark.parametrize(("host", "family"), ABROAD)
def test_a_connection_beyond_this_machine_is_refused(
    refusals: list[str], host: str, family: socket.AddressFamily
) -> None:
    """Connecting a socket to another machine raises and is remembered."""
    with socket.socket(family) as sock:
        sock.setblocking(False)
        with pytest.raises(NetworkForbidden, match="simulated provider"):
            sock.connect((host, 443))
    assert refusals == [host]


def test_a_name_lookup_is_refused(refusals: list[str]) -> None:
    """Asking a resolver is already traffic."""
    with pytest.raises(NetworkForbidden):
        socket.getaddrinfo("api.example.com", 443)
    assert refusals == ["api.example.com"]


def test_an_event_loop_is_guarded_too(refusals: list[str]) -> None:
    """asyncio connects without blocking, and is refused all the same."""
    with pytest.raises(NetworkForbidden):
        asyncio.run(asyncio.open_connection("192.0.2.1", 443))
    assert refusals == ["192.0.2.1"]


def test_a_datagram_is_refused(refusals: list[str]) -> None:
    """Sending without connecting is no way out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, pytest.raises(NetworkForbidden):
        sock.sendto(b"", ("192.0.2.1", 53))
    assert refusals == ["192.0.2.1"]


def test_a_reserved_name_does_not_resolve(refusals: list[str]) -> None:
    """A name under .invalid fails as it would at a resolver, without asking one."""
    with pytest.raises(socket.gaierror):
        socket.getaddrinfo("provider.invalid", 443)
    assert refusals == []


def test_loopback_and_unix_sockets_are_open(tmp_path: Path, refusals: list[str]) -> None:
    """Servers on this machine can be talked to."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(("localhost", server.getsockname()[1])).close()
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as caller:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        caller.connect(str(tmp_path / "s"))
    assert refusals == []


def test_a_swallowed_refusal_still_fails_the_test(pytester: pytest.Pytester, refusals: list[str]) -> None:
    """Code that catches every exception cannot hide that it tried to leave the machine."""
    pytester.makeconftest("from tests.conftest import no_network, pytest_configure")
    pytester.makepyfile(
        """
        import socket

        def test_swallows():
            try:
                socket.getaddrinfo("api.example.com", 443)
            except Exception:
                pass
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:randomly")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*tried to reach api.example.com*"])
    assert refusals == ["api.example.com"]


@pytest.mark.parametrize("visit", ["first", "second"])
def test_a_migrated_database_is_fresh(database_url: str, visit: str) -> None:
    """A test gets the ledger's tables at the newest revision, and nothing that another test left."""
    assert check(database_url).current
    with connected(database_url) as connection:
        names = inspect(connection).get_table_names()
        assert "accounts" in names
        assert "left_over" not in names
        connection.execute(text("CREATE TABLE left_over (id INTEGER)"))


def test_an_empty_database_has_no_tables(empty_database_url: str) -> None:
    """Tests of migrations start from nothing."""
    with connected(empty_database_url) as connection:
        assert inspect(connection).get_table_names() == []


@pytest.mark.postgres
def test_a_database_is_dropped_while_someone_is_connected(postgres: PostgresServer) -> None:
    """A test that leaves a connection open does not keep its database alive."""
    url = postgres.create()
    engine = create_engine(url)
    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))
        postgres.drop(url)
        with pytest.raises(OperationalError):
            connection.execute(text("SELECT 1"))
    with pytest.raises(OperationalError):
        engine.connect()
    engine.dispose()
