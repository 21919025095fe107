"""A worker process under load: activities with one model call each, by many callers of one event loop.

As a program it takes one order a line, a JSON object, and answers with one::

    {"callers": 64, "total": 1000, "budgets": 1}   ->   {"seconds": 1.9, "cpu": 1.1}
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from certification.bench.provider import async_ready, request
from memoflow import Activity, Budget, KeyRing, Runtime

__all__ = ["ENOUGH", "Load", "account", "put_accounts", "unsynced"]

ENOUGH: Final = Budget(total_tokens=10**15)
PER_CALL: Final = Budget(total_tokens=2_000)


def account(number: int) -> str:
    """The account that the activities of a number are charged to; those of two numbers share nothing."""
    return f"team-{number}/agent"


def put_accounts(runtime: Runtime, count: int) -> None:
    """Budgets that no load uses up."""
    for number in range(count):
        runtime.budgets.put(account(number).partition("/")[0], ENOUGH)
        runtime.budgets.put(account(number), ENOUGH)


def unsynced(runtime: Runtime) -> None:
    """Let SQLite not wait for its disk, for figures of the processor alone."""
    from sqlalchemy import event

    engine = runtime.ledger.database.engine
    if engine.dialect.name == "sqlite":
        engine.dispose()
        event.listen(engine, "connect", lambda raw, _: raw.execute("PRAGMA synchronous = OFF"))


class Load:
    """Activities of a runtime, and callers that run them as fast as they can."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._llm = async_ready()
        self._activities: dict[int, Activity[[int], Any]] = {}

    def _activity(self, number: int) -> Activity[[int], Any]:
        if number not in self._activities:

            @self._runtime.activity(version="v1", name="answer", budget=account(number))
            async def answer(number: int) -> str:
                result = await self._llm.run(request(number), budget=PER_CALL, replay_key="call")
                return result.response.output_text

            self._activities[number] = answer
        return self._activities[number]

    async def run(self, callers: int, total: int, budgets: int = 1) -> Mapping[str, float]:
        """Run ``total`` activities, charged to ``budgets`` accounts in turn.

        Returns:
            ``seconds`` it took and ``cpu`` seconds of this process.
        """
        activities = [self._activity(number) for number in range(budgets)]
        numbers = iter(range(total))

        async def caller() -> None:
            for number in numbers:
                await activities[number % budgets].run(number, workflow_id="bench")

        wall, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*[caller() for _ in range(callers)])
        return {"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def main(arguments: list[str]) -> None:
    """Carry out the orders on standard input; with ``--once`` only the one that is given there."""
    parser = argparse.ArgumentParser(prog="python -m certification.bench.load", description=__doc__)
    parser.add_argument("--url", required=True, help="the ledger")
    parser.add_argument("--put", type=int, default=0, help="budgets to make first")
    parser.add_argument("--unsynced", action="store_true", help="do not wait for SQLite's disk")
    parser.add_argument("--once", type=json.loads, help="one order")
    chosen = parser.parse_args(arguments)
    with Runtime.open(chosen.url, keys=KeyRing.generate()) as runtime, asyncio.Runner() as runner:
        if chosen.unsynced:
            unsynced(runtime)
        put_accounts(runtime, chosen.put)
        load = Load(runtime)
        for order in [chosen.once] if chosen.once else map(json.loads, sys.stdin):
            print(json.dumps(runner.run(load.run(**order))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
