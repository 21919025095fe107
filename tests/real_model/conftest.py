"""A real model for a session of tests; without its wheels they are skipped, and say how to get them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from certification.estimate.server import MODEL, Llama, NoModel, find
from memoflow.ledger.database import Database
from memoflow.ledger.verify import verify
from tests._apis import APIS, MESSAGES, Api
from tests._databases import SqliteFiles
from tests._wiretap import Exchange, Wiretap, connector
from tests.turn._worlds import World, mode

__all__ = ["MODEL", "RealWorld", "mode"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this directory talks to the model."""
    for item in items:
        if "real_model" in item.path.parts:
            item.add_marker(pytest.mark.real_model)


class RealWorld(World):
    """A world whose provider is the model; what went over the wire is kept."""

    def __init__(self, database: Database, mode: str, api: Api, llama: Llama, **options: Any) -> None:
        self.tap = Wiretap()
        base = llama.url if api is MESSAGES else f"{llama.url}/v1"
        super().__init__(database, mode, api=api, connect=connector(base, self.tap), **options)

    @property
    def exchanges(self) -> list[Exchange]:
        """Requests that asked for tokens, in order."""
        return [exchange for exchange in self.tap.exchanges if exchange.path == self.api.path]


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    """The model's server."""
    try:
        parts = find()
    except NoModel as error:
        pytest.skip(str(error))
    with (tmp_path_factory.mktemp("llama") / "log").open("wb") as log, Llama(parts, log) as server:
        yield server


@pytest.fixture(scope="session")
def books(sqlite_files: SqliteFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A ledger that these tests share, each in a namespace of its own; verified at the end."""
    database = Database(sqlite_files.create(tmp_path_factory.mktemp("books")))
    yield database
    assert database.read(verify) == []
    database.close()


@pytest.fixture(params=APIS, ids=str)
def api(request: pytest.FixtureRequest) -> Api:
    """Which API is asked."""
    chosen: Api = request.param
    return chosen


@pytest.fixture
def real(books: Database, mode: str, api: Api, llama: Llama) -> Iterator[RealWorld]:
    """A world for each API, blocking and async."""
    world = RealWorld(books, mode, api, llama)
    yield world
    world.close()
