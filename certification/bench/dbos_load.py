"""One-step workflows of DBOS under load; runs where DBOS is installed and takes orders like `load`.

What DBOS documents as its way: asynchronous workflows and steps, called directly, launched inside the
event loop they run in, with its own pool and executor sizes. It logs errors only, so that printing
costs it nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.metadata
import json
import sqlite3
import sys
import time
from contextlib import closing
from typing import Any

__all__: list[str] = []


async def run(workflow: Any, callers: int, total: int) -> dict[str, float]:
    """Run ``total`` workflows by so many callers."""
    numbers = iter(range(total))

    async def caller() -> None:
        for number in numbers:
            await workflow(number)

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*[caller() for _ in range(callers)])
    return {"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def preset(url: str) -> None:
    """Put a new SQLite file into WAL mode, which it keeps, and every connection to FULL."""
    sqlalchemy: Any = importlib.import_module("sqlalchemy")
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.execute("PRAGMA journal_mode = WAL")

    def full(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA synchronous = FULL")

    sqlalchemy.event.listen(sqlalchemy.Engine, "connect", full)


async def call(number: int) -> str:
    """What a provider would say."""
    return "hello"


async def serve(url: str) -> None:
    """Launch DBOS and carry out the orders on standard input."""
    dbos: Any = importlib.import_module("dbos").DBOS
    dbos(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})
    step = dbos.step()(call)

    async def answer(number: int) -> str:
        said: str = await step(number)
        return said

    workflow = dbos.workflow()(answer)
    dbos.launch()
    print(json.dumps({"version": importlib.metadata.version("dbos")}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await run(workflow, **json.loads(line))), flush=True)
    dbos.destroy()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--preset", action="store_true", help="WAL and FULL on SQLite")
    chosen = parser.parse_args()
    if chosen.preset:
        preset(chosen.url)
    asyncio.run(serve(chosen.url))
