"""llmock, a provider nobody here wrote, on loopback; asked through each API, blocking and async."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from llmock.journal import RequestRecord
from llmock.testing import LLMockServer

from memoflow.ledger.database import Database
from memoflow.ledger.verify import verify
from tests._apis import APIS, MESSAGES, Api
from tests._databases import SqliteFiles
from tests._wiretap import Wiretap, connector
from tests.turn._worlds import World, mode

__all__ = ["Foreign", "Meet", "mode"]


class Foreign(World):
    """A world whose provider is llmock."""

    def __init__(self, database: Database, mode: str, api: Api, server: LLMockServer) -> None:
        self.server, self.tap = server, Wiretap()
        base = server.base_url("anthropic" if api is MESSAGES else "openai")
        super().__init__(database, mode, api=api, connect=connector(base, self.tap))

    @property
    def seen(self) -> list[RequestRecord]:
        """The server's own journal."""
        return list(self.server.state.journal.records(wait=10))

    def check_journal(self) -> None:
        """One invocation is one request that the server saw, and none is an SDK's repetition."""
        records, invocations = self.seen, self.invocations()
        assert len(records) == len(invocations) == len(self.tap.exchanges)
        assert [record.sdk_retry_count for record in records] == [0] * len(invocations)
        assert sum(amounts.model_calls for amounts in self.balance()) == len(records)

    def check_counts(self) -> None:
        """Everything settled, with the figures that the server reported."""
        reported = [exchange.reported(self.api) for exchange in self.tap.exchanges]
        found = [(one.input_tokens, one.output_tokens) for one in self.invocations()]
        assert found == reported
        settled, held, unknown = self.balance()
        assert (settled.total_tokens, any(held), any(unknown)) == (sum(map(sum, reported)), False, False)


@pytest.fixture(scope="session")
def llmock_server() -> Iterator[LLMockServer]:
    """One server for all tests."""
    with LLMockServer() as server:
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


Meet = Callable[..., Foreign]


@pytest.fixture
def meet(books: Database, mode: str, api: Api, llmock_server: LLMockServer) -> Iterator[Meet]:
    """Makes a world whose provider behaves as given; afterwards its journal must agree with the ledger."""
    llmock_server.state.scenarios.clear()
    llmock_server.state.journal.clear()
    worlds = []

    def made(*behaviours: Any) -> Foreign:
        llmock_server.state.scenarios.add(*behaviours)
        worlds.append(Foreign(books, mode, api, llmock_server))
        return worlds[-1]

    yield made
    for world in worlds:
        world.check_journal()
        world.close()
