"""How long the event loop stands still while somebody else has the database locked for a second."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from statistics import median

import psycopg
from sqlalchemy.engine import make_url

from certification.bench.load import Load, put_accounts
from certification.bench.report import Figure, at_most
from certification.bench.site import DatabaseKind, Site
from certification.bench.timing import Samples
from memoflow import KeyRing, Runtime

__all__ = ["measure"]

LOCKED_S = 1.0
CALLERS = 4


def measure(site: Site) -> Iterator[Figure]:
    """On each database; the longest gap between two turns of the loop."""
    for kind in site.kinds:
        with Runtime.open(site.ledger(kind), keys=KeyRing.generate()) as runtime:
            put_accounts(runtime, 1)
            samples = asyncio.run(_gaps(runtime, site.pick(3, 9)))
        yield _figure(kind, samples)


def _figure(kind: DatabaseKind, samples: Samples) -> Figure:
    return Figure(
        f"event_loop.{kind}",
        f"event loop gap while the database is locked for {LOCKED_S:g} s, {kind}",
        median(samples["locked"]),
        "ms",
        at_most(50),
        samples,
        "'alone' is the same loop with nothing else to do, on this machine at this time",
    )


async def _gaps(runtime: Runtime, runs: int) -> Samples:
    load = Load(runtime)
    await load.run(CALLERS, CALLERS)
    samples: Samples = {"alone": [], "locked": []}
    for _ in range(runs):
        samples["alone"].append(await _longest(asyncio.sleep(LOCKED_S)))
        samples["locked"].append(await _longest(_locked(runtime, load)))
    return samples


async def _longest(work: object) -> float:
    task = asyncio.ensure_future(work)  # type: ignore[call-overload]
    longest, last = 0.0, time.perf_counter()
    while not task.done():
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    await task
    return longest * 1e3


async def _locked(runtime: Runtime, load: Load) -> None:
    url = str(runtime.ledger.database.url.render_as_string(hide_password=False))
    taken = threading.Event()
    holder = threading.Thread(target=_hold, args=(url, taken))
    holder.start()
    await asyncio.to_thread(taken.wait)
    start = time.perf_counter()
    await load.run(CALLERS, CALLERS)
    if time.perf_counter() - start < LOCKED_S / 2:
        raise RuntimeError("The database was not locked while the activities ran.")
    await asyncio.to_thread(holder.join)


def _hold(url: str, taken: threading.Event) -> None:
    parsed = make_url(url)
    if parsed.drivername.startswith("sqlite"):
        with closing(sqlite3.connect(parsed.database or "", isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            taken.set()
            time.sleep(LOCKED_S)
            connection.execute("ROLLBACK")
        return
    plain = parsed.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain) as server:
        server.execute("LOCK TABLE writers IN ACCESS EXCLUSIVE MODE")
        taken.set()
        time.sleep(LOCKED_S)
        server.rollback()
