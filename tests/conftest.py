"""Fixtures for all tests: no network beyond loopback, and fresh databases of both kinds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from hypothesis import is_hypothesis_test, settings

from tests import _network
from tests._databases import SERVER_VARIABLE, PostgresServer, SqliteFiles, postgres_server

if TYPE_CHECKING:
    from memoflow.ledger.database import Database

BACKENDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]

# A slow machine is no defect, so an example has no time limit of its own. On a CI service hypothesis would
# settle for the same examples every time; these profiles keep looking.
settings.register_profile("usual", deadline=None, derandomize=False, print_blob=True)
settings.register_profile("thorough", settings.get_profile("usual"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "usual"))


# They play once more, from outside, on another API or at random, what the others test.
WIDE = ("certification", "crash", "field", "llmock", "model", "races", "real_model")
WIDE_FILES = ("test_architecture", "test_conformance")
# What others test lies above the ledger. Of their tests on PostgreSQL, which run on SQLite too, one in eight
# is played, of those that every API has alike one in three, and of deaths at any point and further cases of
# one test every other; HYPOTHESIS_PROFILE=thorough plays them all.
WHOLE = ("certification", "crash", "field", "ledger", "model", "races")
TWINS_ONE_IN = 8
FILES_ONE_IN = {"test_conformance": 3, "test_every_point": 2}
CASES_ONE_IN = 2


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark as ``wide`` what covers no code that is not covered without it, and play a part of the twins."""
    kept, left_out = [], []
    for item in items:
        place = item.path.relative_to(Path(__file__).parent)
        elsewhere = item.get_closest_marker("postgres") is not None
        wide = elsewhere or place.parts[0] in WIDE or place.name.startswith(WIDE_FILES) or _is_property(item)
        if wide or _is_variant(item):
            item.add_marker(pytest.mark.wide)
        one_in = _one_in(place, item, elsewhere=elsewhere) if not _asked_for(config) else 1
        (left_out if _digest(item) // 2 % one_in else kept).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def _one_in(place: Path, item: pytest.Item, *, elsewhere: bool) -> int:
    """Of how many tests like this one a usual run plays one."""
    of_file = next((one_in for name, one_in in FILES_ONE_IN.items() if place.name.startswith(name)), None)
    if elsewhere and place.parts[0] not in WHOLE:
        return TWINS_ONE_IN
    if of_file is not None:
        return of_file
    return CASES_ONE_IN if _is_variant(item) and place.parts[0] not in WHOLE else 1


def _is_variant(item: pytest.Item) -> bool:
    """Every other case of a test that has several: what one does not cover its siblings do."""
    return hasattr(item, "callspec") and bool(_digest(item) % 2)


def _digest(item: pytest.Item) -> int:
    """Of the name, so that it is the same tests in every process and every time."""
    return crc32(item.nodeid.encode())


def _is_property(item: pytest.Item) -> bool:
    return is_hypothesis_test(getattr(item, "obj", None))


def _asked_for(config: pytest.Config) -> bool:
    """Whether everything is to be played: by the profile, or because tests are named one by one."""
    thorough = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
    return thorough or any("::" in argument for argument in config.args)


def pytest_configure(config: pytest.Config) -> None:
    """Guard the process and forget settings of the person who runs the tests."""
    _network.install()
    for name in list(os.environ):
        if name.startswith("MEMOFLOW_") and name != SERVER_VARIABLE:
            del os.environ[name]


@pytest.fixture(autouse=True)
def no_network() -> Iterator[None]:
    """Fail a test that tried to leave the machine, even where the refusal was swallowed."""
    _network.attempts.clear()
    yield
    if _network.attempts:
        pytest.fail(f"This test tried to reach {', '.join(sorted(set(_network.attempts)))}.", pytrace=False)


@pytest.fixture(scope="session")
def sqlite_files(tmp_path_factory: pytest.TempPathFactory) -> SqliteFiles:
    """Maker of SQLite databases."""
    return SqliteFiles(tmp_path_factory.mktemp("sqlite-template"))


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """Maker of PostgreSQL databases. Each worker process of a parallel run has a server of its own."""
    with postgres_server(tmp_path_factory.mktemp("postgres-runtime")) as server:
        yield server
        server.close()


@pytest.fixture(scope="session")
def sqlite_ledger(sqlite_files: SqliteFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A database on SQLite for all tests that keep to namespaces of their own."""
    from tests._ledgers import shared_ledger

    with shared_ledger(sqlite_files.create(tmp_path_factory.mktemp("ledger"))) as database:
        yield database


@pytest.fixture(scope="session")
def postgresql_ledger(postgres: PostgresServer) -> Iterator[Database]:
    """The same on PostgreSQL. Each worker process of a parallel run has its own of both."""
    from tests._ledgers import shared_ledger

    url = postgres.create()
    with shared_ledger(url) as database:
        yield database
    postgres.drop(url)


@pytest.fixture
def sqlite_url(sqlite_files: SqliteFiles, tmp_path: Path) -> str:
    """URL of a fresh, migrated SQLite database."""
    return sqlite_files.create(tmp_path)


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """URL of a fresh, migrated PostgreSQL database. Mark the test ``postgres``."""
    url = postgres.create()
    yield url
    postgres.drop(url)


@pytest.fixture(params=BACKENDS)
def database_url(request: pytest.FixtureRequest) -> str:
    """URL of a fresh, migrated database: the test runs on SQLite and on PostgreSQL."""
    url: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")
    return url


@pytest.fixture
def empty_sqlite_url(sqlite_files: SqliteFiles, tmp_path: Path) -> str:
    """URL of a SQLite database that does not exist yet."""
    return sqlite_files.create(tmp_path, migrated=False)


@pytest.fixture
def empty_postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """URL of a PostgreSQL database without tables. Mark the test ``postgres``."""
    url = postgres.create(migrated=False)
    yield url
    postgres.drop(url)


@pytest.fixture(params=BACKENDS)
def empty_database_url(request: pytest.FixtureRequest) -> str:
    """URL of a database without tables, of both kinds: for tests of migrations."""
    name = "empty_sqlite_url" if request.param == "sqlite" else "empty_postgres_url"
    url: str = request.getfixturevalue(name)
    return url
