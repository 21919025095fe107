"""What writes cost: each row is found by its key, and a batch makes few journeys to the server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from tests.ledger._calls import Ledger, ask, effect, identity, open_ledger, output
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


def journeys(ledger: Ledger, file: Path, work: Callable[[], Any]) -> tuple[Any, int]:
    """What some work returns, and how often its writer waited for the server: by the driver's own log."""
    with file.open("w", encoding="utf-8") as log:
        with ledger.database.write() as connection:
            line: Any = connection.connection.driver_connection
            line.pgconn.trace(log.fileno())
        found = work()
        line.pgconn.untrace()
    sent = [row.split("\t") for row in file.read_text(encoding="latin-1").splitlines()]
    return found, sum(row[1:2] == ["F"] and row[3] in ("Sync", "Query") for row in sent)


@pytest.mark.postgres
def test_a_batch_makes_few_journeys(postgres_url: str, tmp_path: Path) -> None:
    """What is asked for and what is written goes in groups: a server far away is waited for seldom."""
    with open_ledger(postgres_url) as ledger:
        ledger.put("acme")
        for number in range(CALLS):
            fence = ledger.claim(identity(run_id=f"run-{number}"))
            id, starting = journeys(
                ledger,
                tmp_path / "start",
                lambda fence=fence: ledger.start(fence, ask(total_tokens=5), "acme"),
            )
            _, settling = journeys(
                ledger, tmp_path / "settle", lambda fence=fence, id=id: ledger.settle(fence, id, 1, 1)
            )
    # Begin, the writer's own row, what was named, accounts, balances, their locks, all writes, commit; and
    # one more of what looks on here.
    assert 4 <= settling <= starting <= 9
