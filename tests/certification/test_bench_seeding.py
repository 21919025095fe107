"""A ledger that was filled for a benchmark is a ledger like any other."""

from __future__ import annotations

import asyncio
from functools import partial

from sqlalchemy import Connection, Table, func, select

from certification.bench.load import Load, put_accounts
from certification.bench.seeding import seed
from memoflow import KeyRing, Runtime
from memoflow.ledger import schema as s
from memoflow.ledger.verify import verify


def test_verify_finds_nothing_wrong_with_a_seeded_ledger(database_url: str) -> None:
    """Right after it was filled, filled again, and after real activities went on from there."""
    keys = KeyRing.generate()
    with Runtime.open(database_url, keys=keys) as runtime:
        put_accounts(runtime, 1)
        asyncio.run(Load(runtime).run(1, 1))
    seed(database_url, 20)
    seed(database_url, 3)
    with Runtime.open(database_url, keys=keys) as runtime:
        database = runtime.ledger.database
        assert database.read(verify) == []
        asyncio.run(Load(runtime).run(3, 6))
        assert database.read(verify) == []
        calls = 1 + 20 + 3 + 6
        for table in (s.activities, s.attempts, s.invocations, s.reservations):
            assert database.read(partial(_rows, table)) == calls, table.name
        balances = database.read(lambda c: c.execute(select(s.balances)).all())
        spent = {(b.settled_model_calls, b.settled_total_tokens, b.held_total_tokens) for b in balances}
        assert spent == {(calls, calls * 15, 0)}


def _rows(table: Table, connection: Connection) -> int:
    return int(connection.execute(select(func.count()).select_from(table)).scalar_one())
