"""Cases about the database, clocks and the event loop."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from memoflow import Budget, InvalidRequest, KeyRing, OutcomeUnknown, Runtime
from memoflow.budget import Amounts
from memoflow.identity import ActivityIdentity
from memoflow.ledger.activities import ClaimActivity, Fence
from memoflow.ledger.migrate import HEAD, upgrade
from memoflow.ledger.verify import verify
from memoflow.periods import from_datetime, to_datetime, window
from memoflow.testing import SimulatedProvider, text, usage
from tests._processes import together
from tests.field._faces import FACES, Face
from tests.field._first_start import first_start
from tests.field.conftest import Field, starting
from tests.ledger._notes import Line


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


def test_case_45_first_start_from_many_processes(empty_database_url: str) -> None:
    """Four processes on one fresh database all end at the current schema; a later start changes nothing."""
    assert together(first_start, 4, empty_database_url) == [HEAD] * 4
    assert upgrade(empty_database_url) == HEAD


def test_case_45_the_switch_to_wal_while_a_peer_writes(empty_sqlite_url: str) -> None:
    """SQLite refuses it at once while another one holds the write lock of a fresh file; it is tried again."""
    path = empty_sqlite_url.removeprefix("sqlite:///")
    peer = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    peer.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.15, peer.rollback)
    release.start()
    assert upgrade(empty_sqlite_url) == HEAD
    release.join()
    assert peer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    peer.close()


@pytest.mark.postgres
def test_case_46_a_settlement_in_conflict_asks_the_provider_once(on_postgres: Field) -> None:
    """40001 and 40P01 repeat what is written and never the request that it is about."""
    import psycopg

    line = Line(on_postgres.runtime.ledger.database)

    def refused(state: str) -> Any:
        def failure(_commit: Any, dbapi: Any) -> None:
            dbapi.rollback()
            raise psycopg.errors.lookup(state)("injected")

        return failure

    def answer(_: Any) -> Any:
        line.commits = [refused("40001"), refused("40P01"), refused("40001")]
        return text("ok", usage=usage(10, 5))

    played = on_postgres.play(SimulatedProvider(answer))
    assert (played.text, played.wire, line.commits) == ("ok", 1, [])
    assert on_postgres.account.settled.total_tokens == 15


@pytest.mark.postgres
def test_case_46_a_settlement_that_never_gets_through_stays_held(on_postgres: Field) -> None:
    """When the bound is reached the hold is there to be reconciled: paid for, and not lost."""
    line = Line(on_postgres.runtime.ledger.database)
    on_postgres.runtime.ledger.writer._patience = 0.0

    def answer(_: Any) -> Any:
        line.down = True
        return text("ok")

    provider = SimulatedProvider(answer)
    played = on_postgres.play(provider, run="r")
    assert isinstance(played.error, OutcomeUnknown)
    line.down = False
    on_postgres.clock.advance(3_600)
    again = on_postgres.play([text("again")], run="r")
    assert again.text == "again"
    states = [(item.state, item.reservation_state) for item in on_postgres.invocations]
    assert states == [("OUTCOME_UNKNOWN", "RECONCILE"), ("SUCCEEDED", "SETTLED")]


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


@pytest.mark.parametrize("face", FACES, ids=str)
def test_case_49_the_event_loop_goes_on_while_the_ledger_is_locked(sqlite_url: str, face: Face) -> None:
    """A ticker makes progress while a call waits for a database that somebody else has locked."""
    provider = SimulatedProvider([text("ok")])
    llm = face.over_async(provider)
    lock = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    with Runtime.open(sqlite_url) as runtime:
        runtime.budgets.put("acme", Budget(total_tokens=10_000))

        @runtime.activity(version="v1", budget="acme")
        async def work() -> str:
            result = await llm.run(face.asking(), budget=Budget(total_tokens=4_000))
            return face.said(result.response)

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


@pytest.mark.parametrize("face", FACES, ids=str)
def test_case_49_a_call_that_is_cancelled_while_it_waits(sqlite_url: str, face: Face) -> None:
    """It leaves no commit half known: what was written is there to be seen, and nothing was sent."""
    provider = SimulatedProvider([text("never")])
    llm = face.over_async(provider)
    lock = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    with Runtime.open(sqlite_url) as runtime:
        runtime.budgets.put("acme", Budget(total_tokens=10_000))

        @runtime.activity(version="v1", budget="acme")
        async def work() -> None:
            lock.execute("BEGIN IMMEDIATE")
            await llm.run(face.asking(), budget=Budget(total_tokens=4_000))

        async def main() -> None:
            task = asyncio.ensure_future(work.run())
            await asyncio.sleep(0.1)
            task.cancel()
            await asyncio.sleep(0.02)
            lock.execute("ROLLBACK")
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        assert provider.requests == []
        assert runtime.budgets.show("acme").used == Amounts()
        assert runtime.ledger.database.read(verify) == []
    lock.close()


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Los_Angeles"])
def test_case_50_a_process_in_another_zone(case: Field, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases and periods do not depend on the zone of a process, nor on that of another one."""
    case.runtime.budgets.put("daily", Budget(total_tokens=10_000), period="day")
    case.play([text("ok")], account="daily")
    before = window("day", "UTC", case.clock.now)
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        assert window("day", "UTC", case.clock.now) == before
        assert case.play([text("ok")], account="daily").error is None
    time.tzset()
    assert case.runtime.budgets.show("daily").settled.model_calls == 2


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
