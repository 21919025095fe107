"""Leases: extended while an attempt lives, lost to the next one; then nothing of the old one is written."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from sqlalchemy import select, update

from memoflow import LeaseLost, LedgerUnavailable, OutcomeUnknown, Runtime
from memoflow.budget import Amounts
from memoflow.identity import ActivityIdentity
from memoflow.ledger import schema as s
from memoflow.ledger.activities import Claim, ClaimActivity
from memoflow.ledger.database import Database
from memoflow.ledger.dialect import database_now
from memoflow.ledger.unknowns import EvidenceInfo, list_evidence
from memoflow.ledger.writer import Writer
from memoflow.testing import call, calls, temporary_runtime, text, usage
from tests.turn import _worlds
from tests.turn._activities import attempts, make, start
from tests.turn._asks import BUDGET, REQUEST, loop, run, stream
from tests.turn._stopping import at_commit
from tests.turn._tools import Bench
from tests.turn._worlds import MakeWorld, World

ledger, make_world, mode, world = _worlds.ledger, _worlds.make_world, _worlds.mode, _worlds.world

KINDS = {"whole": run, "streamed": stream}
LATER = 3_600_000_000  # microseconds: after every lease of these tests


@contextmanager
def at_another_time(w: World, offset: int) -> Iterator[Writer]:
    """A writer of another process, whose clock is ahead."""
    url = w.rt.ledger.database.url.render_as_string(hide_password=False)
    database = Database(url, clock=lambda connection: database_now(connection) + offset)
    with closing(database), closing(Writer(database)) as writer:
        yield writer


def steal(w: World) -> Claim:
    """Another process claims the running activity of this world, after its lease has run out."""
    activity = the_activity(w)
    identity = ActivityIdentity(
        activity.namespace,
        activity.workflow_id,
        activity.run_id,
        activity.activity_id,
        activity.activity_type,
        activity.activity_version,
    )
    with at_another_time(w, LATER) as writer:
        futures = writer.submit(ClaimActivity(identity, activity.input_digest, 60_000_000, "another"))
        claim: Claim = futures[0].result()
    return claim


def lease_ends(w: World) -> int:
    """When the lease of the only activity ends, in microseconds."""
    return int(the_activity(w).lease_expires_at)


def the_activity(w: World) -> Any:
    """The row of the only activity."""
    query = select(s.activities).where(s.activities.c.namespace == w.rt.namespace)
    return w.read(lambda c: c.execute(query).one())


def evidence(w: World, id: str) -> list[EvidenceInfo]:
    """What was refused about an invocation, an effect or an activity."""
    found: list[EvidenceInfo] = w.read(lambda c: list_evidence(c, w.rt.namespace, id))
    return found


# Taking over


def test_an_expired_lease_lets_the_next_attempt_in(world: MakeWorld) -> None:
    """The one before is LOST; what it left open becomes unknown in the same transaction."""
    w = world(lambda request: steal(w) and text("late", usage=usage(10, 5)), text("Hello."))
    w.ask(run()).raised(LeaseLost)
    assert [(number, state) for number, state, _ in attempts(w)] == [(1, "LOST"), (2, "RUNNING")]
    found = w.invocation
    assert (found.state, found.reservation_state, found.reason) == (
        "OUTCOME_UNKNOWN",
        "RECONCILE",
        "ATTEMPT_LOST",
    )
    assert w.balance() == (Amounts(), Amounts(), found.reserved)


# Zombies


def test_a_zombie_cannot_start_a_call(world: MakeWorld) -> None:
    """Its reservation is refused, nothing is sent, and the refusal is on record."""
    w = world(text("never"))

    def blocking(llm: Any) -> None:
        steal(w)
        llm.run(REQUEST, budget=BUDGET)

    async def together(llm: Any) -> None:
        steal(w)
        await llm.run(REQUEST, budget=BUDGET)

    with pytest.raises(LeaseLost) as lost:
        w.within(together if w.is_async else blocking)
    assert (lost.value.attempt, lost.value.current) == (1, 2)
    assert (w.provider.requests, w.invocations(), w.balance()) == ([], [], (Amounts(),) * 3)
    rows = w.read(
        lambda c: c.execute(select(s.evidence).where(s.evidence.c.namespace == w.rt.namespace)).all()
    )
    assert {row.event for row in rows} >= {"start"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_zombies_settlement_is_refused_and_kept_as_evidence(world: MakeWorld, kind: str) -> None:
    """With the usage it reports, which whoever decides about the unknown can use."""
    w = world(lambda request: steal(w) and text("late", usage=usage(10, 5)))
    error = w.ask(KINDS[kind]()).raised(LeaseLost)
    assert (error.attempt, error.current) == (1, 2)
    found = w.invocation
    assert (found.state, found.reason, found.response_digest) == ("OUTCOME_UNKNOWN", "ATTEMPT_LOST", None)
    (late,) = [e for e in evidence(w, found.id) if e.event == "settle"]
    assert (late.attempt, late.state, late.input_tokens, late.output_tokens) == (1, "SUCCEEDED", 10, 5)
    assert late.digest is not None
    assert late.digest.startswith("sha256:")
    assert w.balance()[2] == found.reserved


def test_a_zombies_tool_outcome_is_refused_and_kept_as_evidence(world: MakeWorld) -> None:
    """The effect stays unknown; the digest of its result may tell what happened."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1})), text("never"))
    w.ask(loop(bench.make("f", lambda n: steal(w) and n))).raised(LeaseLost)
    (effect,) = w.effects()
    assert (effect.state, effect.reason) == ("OUTCOME_UNKNOWN", "ATTEMPT_LOST")
    late = [e for e in evidence(w, effect.id) if e.event == "effect"]
    assert [(e.attempt, e.state, e.digest is not None) for e in late] == [(1, "DONE", True)]
    assert w.sent == 1


def test_a_zombie_cannot_complete(world: MakeWorld) -> None:
    """Its output is not kept; the attempt that took over is the one that counts."""
    w = world()
    activity = make(w, lambda: steal(w).attempt)
    with pytest.raises(LeaseLost):
        start(w, activity)
    row = the_activity(w)
    assert (row.state, row.attempt, row.output_digest) == ("RUNNING", 2, None)
    assert [(e.event, e.attempt) for e in evidence(w, row.id)] == [("complete", 1)]


def test_a_zombies_own_exception_leaves_as_it_is(world: MakeWorld) -> None:
    """That its end could not be recorded is no news for its caller."""
    w = world()

    def body() -> None:
        steal(w)
        raise LookupError

    with pytest.raises(LookupError):
        start(w, make(w, body))
    assert [state for _, state, _ in attempts(w)] == ["LOST", "RUNNING"]


def test_a_zombies_heartbeat_is_refused(world: MakeWorld) -> None:
    """It learns there that it is one."""
    w = world()

    def body() -> None:
        steal(w)
        w.rt.current().heartbeat()

    with pytest.raises(LeaseLost):
        start(w, make(w, body))
    assert lease_ends(w) > LATER


def test_what_an_attempt_recorded_before_it_was_lost_is_restored(world: MakeWorld) -> None:
    """The next attempt begins where the lost one's record ends."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1})), lambda request: steal(w) and text("late"), text("Done."))
    w.ask(loop(bench.make("f"))).raised(LeaseLost)
    free(w)
    result = w.ask(loop(bench.make("f"))).result
    assert [i.restored for i in result.invocations] == [True, False]
    assert (len(bench.ran), w.sent) == (1, 3)


def test_an_unknown_that_was_lost_blocks_where_it_is_to(world: MakeWorld) -> None:
    """As any other unknown outcome."""
    w = world(lambda request: steal(w) and text("late"), text("Hello."))
    w.ask(run()).raised(LeaseLost)
    free(w)
    assert w.ask(run(on_unknown="block")).raised(OutcomeUnknown).reason == "ATTEMPT_LOST"
    assert w.ask(run()).result.response.output_text == "Hello."


def free(w: World) -> None:
    """The attempt that took over gives up."""
    with w.rt.ledger.database.write() as connection:
        mine = s.activities.c.namespace == w.rt.namespace
        ids = select(s.activities.c.id).where(mine)
        running = (s.attempts.c.activity_id.in_(ids), s.attempts.c.state == "RUNNING")
        connection.execute(update(s.attempts).where(*running).values(state="FAILED", ended_at=1))
        connection.execute(update(s.activities).where(mine).values(state="FREE"))


# Heartbeats


def test_a_heartbeat_extends_the_lease(world: MakeWorld) -> None:
    """From the time it comes; never backwards, also when a clock is."""
    w = world()
    seen: list[int] = []

    def body() -> None:
        seen.append(lease_ends(w))
        w.rt.current().heartbeat()
        seen.append(lease_ends(w))

    start(w, make(w, body))
    assert seen[1] > seen[0]
    assert seen[1] - seen[0] < 60_000_000


def until(true: Callable[[], bool]) -> bool:
    """Wait for something that another thread does; False if it takes far too long."""
    pause = threading.Event()
    return any(true() or pause.wait(0.02) for _ in range(1_000))


def test_leases_are_extended_while_attempts_run(world: MakeWorld) -> None:
    """By the runtime, without the activity's doing anything; and not afterwards."""
    w = world(lease_seconds=1)
    seen: list[int] = []

    def body() -> None:
        seen.append(lease_ends(w))
        assert until(lambda: lease_ends(w) > seen[0])

    start(w, make(w, body))
    assert w.rt._leases._watched == set()


def test_an_activity_that_lost_its_lease_is_told_at_its_next_call(make_world: MakeWorld) -> None:
    """A blocking one cannot be cancelled: whatever it asks of the runtime next says so."""
    w = make_world("sync", text("never"), lease_seconds=1)

    def body(llm: Any) -> None:
        me = w.rt.current()
        steal(w)
        assert until(lambda: me.lost is not None)
        for ask in (me.check, me.heartbeat, me.remaining_budget, lambda: llm.run(REQUEST, budget=BUDGET)):
            with pytest.raises(LeaseLost):
                ask()

    with pytest.raises(LeaseLost):
        w.within(body)
    assert w.provider.requests == []


def test_an_async_activity_that_lost_its_lease_is_cancelled(make_world: MakeWorld) -> None:
    """Where it waits; LeaseLost is what leaves, and the task goes on uncancelled."""
    w = make_world("async", lease_seconds=1)
    after: list[Any] = []

    async def body(llm: Any) -> None:
        steal(w)
        await asyncio.Event().wait()

    async def drive(work: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(LeaseLost):
            await work
        await asyncio.sleep(0)
        after.append(task.cancelling())

    w.within_async(body, drive)
    assert after == [0]


def test_a_cancellation_of_the_caller_is_not_taken_for_a_lost_lease(make_world: MakeWorld) -> None:
    """Both at once: the caller's own goes on."""
    w = make_world("async", lease_seconds=1)

    async def body(llm: Any) -> None:
        me = w.rt.current()
        steal(w)
        task = asyncio.current_task()
        assert task is not None
        while me.lost is None:
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                break
        task.cancel()
        await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        w.within_async(body, lambda work: work)


def test_one_bad_heartbeat_is_a_warning(make_world: MakeWorld, caplog: pytest.LogCaptureFixture) -> None:
    """The lease is still there, and the next beat may work."""
    w = make_world("sync", lease_seconds=1)

    def unavailable() -> None:
        raise LedgerUnavailable("away")

    def body() -> None:
        first = lease_ends(w)
        with at_commit(1, unavailable):
            assert until(lambda: "could not be written" in caplog.text)
        assert until(lambda: lease_ends(w) > first)

    with caplog.at_level(logging.WARNING, "memoflow.leases"):
        start(w, make(w, body))
    assert "LedgerUnavailable" in caplog.text


def take_over(runtime: Runtime) -> None:
    """Another attempt owns every activity now."""
    with runtime.ledger.database.write() as connection:
        connection.execute(update(s.activities).values(attempt=s.activities.c.attempt + 1))


async def outlast(seconds: float) -> None:
    """Work that a cancellation has to wait for, as a commit or a thread does."""
    work = asyncio.ensure_future(asyncio.sleep(seconds))
    while not work.done():
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            continue


def test_an_attempt_that_is_slow_to_end_is_cancelled_once(caplog: pytest.LogCaptureFixture) -> None:
    """However many beats pass meanwhile, LeaseLost leaves, and nothing is left of the cancellation."""

    async def main(runtime: Runtime) -> int:
        @runtime.activity(version="v1")
        async def slow() -> None:
            take_over(runtime)
            await outlast(1.5)  # four beats
            await asyncio.sleep(10)

        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(LeaseLost):
            await slow.run()
        return task.cancelling()

    with caplog.at_level(logging.WARNING, "memoflow.leases"), temporary_runtime(lease_seconds=1) as runtime:
        assert asyncio.run(main(runtime)) == 0
    assert [record.message.rpartition("/")[2] for record in caplog.records] == ["slow lost its lease"]
