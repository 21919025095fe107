"""The outcome table, row by row: what is recorded, what is charged, what is raised, what happens next."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.turn._outcome_checks import KINDS, played
from tests.turn._outcomes import OUTCOMES
from tests.turn._worlds import MODES, MakeWorld


def cases() -> Iterator[Any]:
    """Every row with a whole and a streamed reply on SQLite, and with one of them by turns on PostgreSQL."""
    for number, name in enumerate(OUTCOMES):
        for kind in KINDS:
            yield pytest.param("sqlite", name, kind, id=f"{name}-{kind}-sqlite")
        kind = list(KINDS)[number % 2]
        marks = pytest.mark.postgres
        yield pytest.param("postgresql", name, kind, id=f"{name}-{kind}-postgresql", marks=marks)


@pytest.mark.parametrize(("ledger", "name", "kind"), list(cases()), indirect=["ledger"])
def test_an_outcome_is_recorded_charged_and_told_as_the_table_says(
    make_world: MakeWorld, name: str, kind: str
) -> None:
    """State, reservation, reason, balances and exception of a row, then a retry: sync and async alike."""
    rows = [played(partial(make_world, mode), OUTCOMES[name], kind) for mode in MODES]
    assert rows[0] == rows[1]
