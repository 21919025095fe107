"""What the modules ``test_conformance_*`` share: which API they run on, on which adapter and database.

Each rule is played on every API with both kinds of adapter on SQLite. On PostgreSQL it is played with one of
them on the APIs that the tests of the turn do not already play there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests._apis import APIS, EMBEDDINGS
from tests.turn._worlds import MODES, MakeWorld, World

__all__ = ["API", "TALKING", "OnApi", "api_world", "combinations", "everywhere", "on"]

API = {api.name: api for api in (*APIS, EMBEDDINGS)}
TALKING = tuple(api.name for api in APIS)

OnApi = Callable[..., World]
_ON_POSTGRESQL = {"chat": "sync", "messages": "async", "embeddings": "async"}


def combinations(*apis: str, postgresql: bool = True) -> Iterator[Any]:
    """(database, API, kind of adapter) for the indirect parameters ``ledger`` and ``api_world``."""
    for api in apis:
        for mode in MODES:
            yield pytest.param("sqlite", (api, mode), id=f"{api}-{mode}-sqlite")
        if postgresql and api in _ON_POSTGRESQL:
            mode = _ON_POSTGRESQL[api]
            marks = pytest.mark.postgres
            yield pytest.param("postgresql", (api, mode), id=f"{api}-{mode}-postgresql", marks=marks)


def on(*apis: str, postgresql: bool = True) -> pytest.MarkDecorator:
    """Runs a test with the fixture ``api_world`` on these APIs.

    ``postgresql`` is turned off for what has nothing to do with the database.
    """
    combined = list(combinations(*apis, postgresql=postgresql))
    return pytest.mark.parametrize(("ledger", "api_world"), combined, indirect=True)


everywhere = on(*TALKING)


@pytest.fixture
def api_world(request: pytest.FixtureRequest, make_world: MakeWorld) -> OnApi:
    """Makes worlds of one API and one kind of adapter."""
    name, mode = request.param
    return partial(make_world, mode, api=API[name])
