"""Cases about the database, clocks and the event loop."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from memoflow import Budget, InvalidRequest, KeyRing, Runtime
from memoflow.identity import ActivityIdentity
from memoflow.ledger.activities import ClaimActivity, Fence
from memoflow.ledger.migrate import HEAD, upgrade
from memoflow.openai import AsyncOpenAIResponses
from memoflow.periods import from_datetime, to_datetime, window
from memoflow.testing import SimulatedProvider, text
from tests.field.conftest import REQUEST, Field, starting


def test_case_45_first_start_from_many_threads(empty_database_url: str, tmp_path: Path) -> None:
    """Four threads on one fresh database and four on databases of their own all end at the current schema."""
    urls = [empty_database_url] * 4 + [f"sqlite:///{tmp_path / f'{n}.db'}" for n in range(4)]
    ready = threading.Barrier(len(urls))
    reached: list[str] = []

    def start(url: str) -> None:
        ready.wait()
        reached.append(upgrade(url))

    threads = [threading.Thread(target=start, args=(url,)) for url in urls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reached == [HEAD] * len(urls)


def test_case_46_serialization_failures_and_deadlocks(postgres_url: str) -> None:
    """Reservations that lock budgets in opposite order all succeed: the batch is retried, not the call."""
    fence: dict[int, Fence] = {}
    runtimes = [Runtime.open(postgres_url, keys=KeyRing.generate()) for _ in range(6)]
    for path in ("a", "b"):
        runtimes[0].budgets.put(path, Budget(model_calls=1_000))
    ready = threading.Barrier(len(runtimes))
    done: list[str] = []

    def reserve(number: int, runtime: Runtime) -> None:
        identity = ActivityIdentity("default", "w", "r", f"a{number}", "t", "v1")
        claim = runtime.commit(ClaimActivity(identity, "sha256:0", 60_000_000, "w"))
        fence[number] = Fence("default", claim.activity_id, 1, str(identity))
        ready.wait()
        for _ in range(10):
            accounts = ("a", "b") if number % 2 else ("b", "a")
            done.append(runtime.commit(starting(fence[number], accounts, 0)).invocation_id)

    threads = [threading.Thread(target=reserve, args=pair) for pair in enumerate(runtimes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    held = [runtimes[0].budgets.show(path).held.model_calls for path in ("a", "b")]
    for runtime in runtimes:
        runtime.close()
    assert len(set(done)) == 60
    assert held == [60, 60]


def test_case_49_the_event_loop_goes_on_while_the_ledger_is_locked(sqlite_url: str) -> None:
    """A ticker makes progress while a call waits for a database that somebody else has locked."""
    provider = SimulatedProvider([text("ok")])
    llm = AsyncOpenAIResponses(provider.async_client())
    lock = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    with Runtime.open(sqlite_url) as runtime:
        runtime.budgets.put("acme", Budget(total_tokens=10_000))

        @runtime.activity(version="v1", budget="acme")
        async def work() -> str:
            result = await llm.run(REQUEST, budget=Budget(total_tokens=4_000))
            return result.response.output_text

        async def main() -> str:
            lock.execute("BEGIN IMMEDIATE")
            task = asyncio.ensure_future(work.run())
            for _ in range(20):
                await asyncio.sleep(0.005)
                assert not task.done()
            lock.execute("ROLLBACK")
            return await task

        assert asyncio.run(main()) == "ok"
    lock.close()


def test_case_50_instants_not_wall_clocks(case: Field) -> None:
    """Times are UTC microseconds: offsets do not shift an instant, and naive times are refused."""
    pacific = datetime(2026, 3, 1, 13, tzinfo=timezone(timedelta(hours=-8)))
    assert to_datetime(from_datetime(pacific)) == datetime(2026, 3, 1, 21, tzinfo=UTC)
    with pytest.raises(InvalidRequest):
        from_datetime(datetime(2026, 3, 1, 13))
    day = window("day", "America/New_York", from_datetime(datetime(2026, 3, 8, 12, tzinfo=UTC)))
    assert day.end_us is not None
    assert day.end_us - day.start_us == 23 * 3_600_000_000


def test_case_50_a_clock_that_steps_back(case: Field) -> None:
    """After a step back of an hour a budget period and a lease are still there, and neither is negative."""
    case.runtime.budgets.put("hourly", Budget(total_tokens=10_000), period="hour")
    case.play([text("ok")], account="hourly")
    case.clock._now -= 3_600_000_000
    played = case.play([text("ok")], account="hourly")
    assert played.error is None
    assert case.runtime.budgets.show("hourly").settled.model_calls == 1
