"""One hot budget on PostgreSQL beside the same done plainly: 16 connections, two transactions on one row."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg

from certification.bench.peers import load_peer
from certification.bench.report import Figure, at_least
from certification.bench.site import Site
from certification.bench.timing import interleave, ratio, seconds_of

__all__ = ["measure"]

CONNECTIONS = 16
CALLERS = 64
_TABLES = """
CREATE TABLE balance (id int PRIMARY KEY, hard bigint, settled bigint, held bigint);
CREATE TABLE hold (id bigserial PRIMARY KEY, amount bigint, actual bigint);
INSERT INTO balance VALUES (1, 1000000000000000, 0, 0)
"""
_HOLD = "INSERT INTO hold (amount) VALUES (2000) RETURNING id"
_RESERVE = "UPDATE balance SET held = held + 2000 WHERE id = 1 AND settled + held + 2000 <= hard"
_SETTLE = "UPDATE balance SET held = held - 2000, settled = settled + 15 WHERE id = 1"
_END = "UPDATE hold SET actual = 15 WHERE id = %s"


class RowLock:
    """Connections that reserve and settle on one row, each in a transaction of its own."""

    def __init__(self, url: str) -> None:
        with psycopg.connect(url) as connection:
            connection.execute(_TABLES)
        self._connections = [psycopg.connect(url) for _ in range(CONNECTIONS)]

    def run(self, pairs: int) -> None:
        """So many reservations and settlements in all."""
        numbers = iter(range(pairs))
        threads = [threading.Thread(target=self._work, args=(c, numbers)) for c in self._connections]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self, connection: psycopg.Connection, numbers: Iterator[int]) -> None:
        for _ in numbers:
            row = connection.execute(_HOLD).fetchone()
            # The hot row last, so that its lock is held for as short as can be.
            connection.execute(_RESERVE)
            connection.commit()
            connection.execute(_END, row)
            connection.execute(_SETTLE)
            connection.commit()

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            connection.close()


def measure(site: Site) -> Iterator[Figure]:
    """Activities a second over pairs a second."""
    total, pairs = site.pick(300, 3_000), site.pick(200, 1_000)
    plain = RowLock(site.server.create())
    with load_peer(site.ledger("postgresql"), "--put", "1") as peer:
        plain.run(CONNECTIONS)
        samples = interleave(
            site.pick(3, 9),
            {
                "activities": lambda: total / peer.ask(callers=CALLERS, total=total)["seconds"],
                "pairs": lambda: pairs / seconds_of(lambda: plain.run(pairs)),
            },
        )
    plain.close()
    yield Figure(
        "row_lock.postgresql",
        f"one hot budget, {CALLERS} callers: activities / reserve+settle pairs of {CONNECTIONS} connections",
        ratio(samples, "activities", "pairs"),
        "",
        at_least(3),
        samples,
        "a second; an activity has 4 commits, a pair 2",
    )
