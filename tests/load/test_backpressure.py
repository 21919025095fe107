"""More callers than a ledger takes at once, a database that goes away, and a runtime that is closed."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy import func, select

from memoflow import Budget, KeyRing
from memoflow.errors import ConfigurationError, MemoflowError
from memoflow.ledger import schema as s
from memoflow.ledger.verify import verify
from memoflow.openai import AsyncOpenAIResponses
from memoflow.testing import SimulatedProvider, hold, temporary_runtime, text
from tests.ledger._notes import Line, Note, open_queue, trouble

CALLERS = 10_000
BYTES_A_CALLER = 8_000
REQUEST = {"model": "gpt-5-mini", "input": "Hello."}


def test_ten_thousand_callers_wait_in_bounded_memory(database_url: str) -> None:
    """The queue is as long as its callers are many, who waits costs little, and all is written in order."""
    subjects = [f"{number:05}" for number in range(CALLERS)]

    async def callers() -> tuple[int, int]:
        with queue.held():
            tracemalloc.start()
            futures = [queue.writer.asubmit(Note(subject)) for subject in subjects]
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            waiting = queue.writer.waiting
        for (future,) in futures:
            await future
        return waiting, peak

    with open_queue(database_url) as queue:
        waiting, peak = asyncio.run(callers())
        assert waiting == CALLERS
        assert peak < CALLERS * BYTES_A_CALLER
        assert queue.writer.waiting == 0
        assert queue.notes() == ["held", *subjects]


def test_closing_under_load_loses_nothing_that_was_acknowledged(database_url: str) -> None:
    """Callers hear either that their operation is recorded, and then it is, or that the runtime is closed."""
    acknowledged: list[list[str]] = []
    under_way = threading.Barrier(9)

    def caller(name: str) -> None:
        mine: list[str] = []
        acknowledged.append(mine)
        try:
            for number in range(100_000):
                mine.append(queue.writer.record(Note(f"{name}{number}")))
                if number == 2:
                    under_way.wait(60)
        except ConfigurationError:
            return

    with open_queue(database_url) as queue, ThreadPoolExecutor(8) as pool:
        done = [pool.submit(caller, letter) for letter in "abcdefgh"]
        under_way.wait(60)
        queue.writer.close()
        for future in done:
            future.result(60)
        assert sorted(queue.notes()) == sorted(subject for mine in acknowledged for subject in mine)


def test_a_database_that_is_away_delays_what_happened_and_stops_what_has_not(database_url: str) -> None:
    """A reply that arrives meanwhile is settled later; no request leaves before the database is back."""
    first = hold(text("early"))
    provider = SimulatedProvider([first, *[text("late")] * 3])
    llm = AsyncOpenAIResponses(provider.async_client())

    with temporary_runtime(database_url, keys=KeyRing.generate()) as runtime, trouble() as met:
        runtime.budgets.put("acme", Budget(total_tokens=100_000))
        line = Line(runtime.ledger.database)

        @runtime.activity(version="v1", budget="acme")
        async def answer(others: int) -> str:
            calls = [asyncio.create_task(_call(llm))]
            assert await asyncio.to_thread(first.gate.entered.wait, 30)
            line.down = True
            first.gate.released.set()
            assert await asyncio.to_thread(met.wait, 30)
            calls += [asyncio.create_task(_call(llm)) for _ in range(others)]
            # The settlement is being tried; now the others' reservations are behind it.
            while runtime.ledger.writer.waiting < others:
                await asyncio.sleep(0.01)
            assert len(provider.requests) == 1
            assert not any(call.done() for call in calls)
            line.down = False
            return " ".join(await asyncio.gather(*calls))

        assert asyncio.run(answer.run(3)) == "early late late late"
        shown = runtime.budgets.show("acme")
        assert (shown.held.total_tokens, shown.settled.model_calls) == (0, 4)
        assert len(provider.requests) == 4
        assert runtime.ledger.database.read(verify) == []


async def _call(llm: AsyncOpenAIResponses) -> str:
    result = await llm.run(REQUEST, budget=Budget(total_tokens=4_000))
    return result.response.output_text


def test_a_runtime_that_is_closed_under_its_activities(database_url: str) -> None:
    """Every activity ends; what was acknowledged is recorded, and the ledger proves itself."""
    provider = SimulatedProvider([text("ok")] * 400)
    llm = AsyncOpenAIResponses(provider.async_client())
    ended: list[Any] = []

    async def main() -> None:
        begun = asyncio.Event()

        @runtime.activity(version="v1", budget="acme")
        async def answer(number: int) -> str:
            if number == 20:
                begun.set()
            return await _call(llm)

        tasks = [asyncio.create_task(answer.run(number)) for number in range(100)]
        await begun.wait()
        await asyncio.to_thread(runtime.close)
        ended.extend(await asyncio.gather(*tasks, return_exceptions=True))

    with temporary_runtime(database_url, keys=KeyRing.generate()) as runtime:
        runtime.budgets.put("acme", Budget(total_tokens=1_000_000))
        asyncio.run(main())
        assert [one for one in ended if one != "ok" and not isinstance(one, MemoflowError)] == []
        completed = select(func.count()).select_from(s.activities).where(s.activities.c.state == "COMPLETED")
        recorded = runtime.ledger.database.read(lambda connection: connection.scalar(completed))
        assert recorded == sum(one == "ok" for one in ended)
        assert runtime.ledger.database.read(verify) == []
