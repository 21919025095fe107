"""The outcome table on the other APIs: recorded, charged and told alike, in the words of each."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.providers._outcome_rows import ROWS
from tests.providers.conformance import API
from tests.turn._outcome_checks import KINDS, played
from tests.turn._worlds import MODES, MakeWorld


def cases() -> Iterator[Any]:
    """Every row whole and streamed on SQLite, by turns with either adapter; on PostgreSQL every other row.

    There the whole table is played with the Responses API, whose outcomes go to the database the same way.
    """
    for api, rows in ROWS.items():
        for number, name in enumerate(rows):
            for offset, kind in enumerate(KINDS):
                mode = MODES[(number + offset) % 2]
                yield pytest.param("sqlite", api, name, kind, mode, id=f"{api}-{name}-{kind}-{mode}-sqlite")
            if number % 2:
                continue
            kind, mode = list(KINDS)[number // 2 % 2], MODES[number // 4 % 2]
            id = f"{api}-{name}-{kind}-{mode}-postgresql"
            marks = pytest.mark.postgres
            yield pytest.param("postgresql", api, name, kind, mode, id=id, marks=marks)


@pytest.mark.parametrize(("ledger", "api", "name", "kind", "mode"), list(cases()), indirect=["ledger"])
def test_an_outcome_is_the_same_in_every_api(
    make_world: MakeWorld, api: str, name: str, kind: str, mode: str
) -> None:
    """State, reservation, reason, balances and exception of a row, then a retry."""
    played(partial(make_world, mode, api=API[api]), ROWS[api][name], kind)
