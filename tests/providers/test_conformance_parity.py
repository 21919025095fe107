"""Every scenario of the turn on the other APIs: the blocking and the async adapter do the same.

Some of them have things that an API has no words for; then both refuse them alike, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.providers.conformance import API
from tests.turn._parity import check_parity
from tests.turn._scenarios import SCENARIOS
from tests.turn._worlds import MakeWorld


def cases() -> Iterator[Any]:
    """All of them on SQLite with both APIs, and on PostgreSQL with either by turns."""
    for number, name in enumerate(SCENARIOS):
        for api in ("chat", "messages"):
            yield pytest.param("sqlite", api, name, id=f"{api}-{name}-sqlite")
        if number % 2:
            api = ("chat", "messages")[number // 2 % 2]
            marks = pytest.mark.postgres
            yield pytest.param("postgresql", api, name, id=f"{api}-{name}-postgresql", marks=marks)


@pytest.mark.parametrize(("ledger", "api", "name"), list(cases()), indirect=["ledger"])
def test_both_kinds_of_adapter_do_the_same_in_every_api(make_world: MakeWorld, api: str, name: str) -> None:
    """Rows, requests on the wire, results, events and exceptions of a scenario are equal, sync and async."""
    check_parity(make_world, name, api=API[api])
