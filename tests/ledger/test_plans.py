"""What the ledger's writes cost the server: each row is found by its key, however many there are."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from tests.ledger._calls import ask, effect, identity, open_ledger, output
from tests.ledger._postgres import wait_until_alone
from tests.ledger._support import connect

CALLS = 12
"""More than the executions after which the driver prepares a statement, and the server keeps a plan."""

_SCANS = text(
    "SELECT relname, seq_scan FROM pg_stat_user_tables WHERE relname IN "
    "('accounts', 'activities', 'attempts', 'balances', 'effects', 'invocations', 'journal', 'outputs', "
    "'reservations', 'turns') ORDER BY relname"
)


def scans(url: str) -> dict[str, int]:
    """How often each table was read from end to end."""
    with connect(url) as connection:
        return {row.relname: row.seq_scan for row in connection.execute(_SCANS)}


@pytest.mark.postgres
def test_a_write_reads_no_table_from_end_to_end(postgres_url: str) -> None:
    """Not even in a ledger so new that the server has no statistics, whose first plans are kept."""
    with open_ledger(postgres_url) as ledger:
        ledger.put("acme")
    wait_until_alone(postgres_url)
    before = scans(postgres_url)
    with open_ledger(postgres_url) as ledger:
        for number in range(CALLS):
            fence = ledger.claim(identity(run_id=f"run-{number}"))
            id = ledger.start(fence, ask(total_tokens=5, tool_calls=1), "acme")
            ledger.settle(fence, id, 1, 1, outputs=(output(id, "reply"),), effects=(effect(id),))
            ledger.end(fence)
    # The server counts what a session did when it ends.
    wait_until_alone(postgres_url)
    assert len(before) == 10
    assert scans(postgres_url) == before
