"""The blocking and the async adapter record, send and return the same, whatever happens."""

from __future__ import annotations

import pytest

from tests.turn._parity import check_parity
from tests.turn._scenarios import SCENARIOS
from tests.turn._worlds import MakeWorld


@pytest.mark.parametrize("name", SCENARIOS)
def test_both_kinds_of_adapter_do_the_same(make_world: MakeWorld, name: str) -> None:
    """Rows, requests on the wire, results, events and exceptions of a scenario are equal, sync and async."""
    check_parity(make_world, name)
