"""Activities: claims, attempts, and what a lost attempt leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection, select

from memoflow.budget import Amounts
from memoflow.errors import ActivityBusy, ActivityMismatch
from memoflow.identity import ActivityIdentity
from memoflow.ledger import schema as s
from memoflow.ledger.activities import Claim, ClaimActivity, CompleteActivity, EndAttempt, Fence
from memoflow.ledger.effects import EffectResult, FinishEffects
from memoflow.ledger.verify import verify
from memoflow.periods import to_datetime
from tests.ledger._calls import (
    SECOND,
    START,
    Ledger,
    ask,
    effect,
    identity,
    open_ledger,
    output,
    put,
    settle,
    start,
)
from tests.ledger._postgres import wait_for_lock
from tests.ledger._support import connect
from tests.ledger._tables import changed, tables

LEASE = 60 * SECOND


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """A fresh ledger with one account on each kind of database."""
    with open_ledger(database_url) as opened:
        opened.put("acme")
        yield opened


def claim(who: ActivityIdentity | None = None, digest: str = "sha256:input") -> ClaimActivity:
    """The operation that claims an activity."""
    return ClaimActivity(who or identity(), digest, LEASE, "worker-1")


def complete(fence: Fence) -> CompleteActivity:
    """The operation that completes an activity."""
    return CompleteActivity(fence, "sha256:output", output(fence.activity_id, "output"))


def test_what_nobody_asks_for_again_has_no_output(ledger: Ledger) -> None:
    """An activity may be completed with the digest of its output alone."""
    fence = ledger.claim()
    ledger.do(CompleteActivity(fence, "sha256:output", None))
    again = ledger.do(claim())
    assert (again.completed, again.output_digest) == (True, "sha256:output")
    assert ledger.read(verify) == []


# Claiming


def test_a_new_activity_is_claimed_as_attempt_one(ledger: Ledger) -> None:
    """The first claim makes the activity, and its lease counts from the database's clock."""
    got = ledger.do(claim())
    assert got == Claim(got.activity_id, 1, False, START + LEASE)
    row = ledger.row(s.activities, got.activity_id)
    assert (row.state, row.attempt, row.lease_expires_at, row.created_at) == (
        "RUNNING",
        1,
        START + LEASE,
        START,
    )
    assert (row.workflow_id, row.run_id, row.activity_id) == ("workflow-1", "run-1", "answer")
    assert (row.activity_type, row.activity_version, row.input_digest) == ("answer", "v1", "sha256:input")
    (attempt,) = ledger.rows(s.attempts)
    assert (attempt.number, attempt.state, attempt.worker) == (1, "RUNNING", "worker-1")
    assert (attempt.claimed_at, attempt.ended_at) == (START, None)


def test_a_running_activity_is_busy_until_its_lease_ends(ledger: Ledger) -> None:
    """A second claim hears which attempt runs and when its lease ends; nothing changes."""
    ledger.claim()
    before = tables(ledger)
    ledger.now += LEASE - 1
    with pytest.raises(ActivityBusy) as busy:
        ledger.do(claim())
    assert (busy.value.attempt, busy.value.lease_expires_at) == (1, to_datetime(START + LEASE))
    assert busy.value.activity == str(identity())
    assert changed(before, tables(ledger)) == set()


def test_an_expired_lease_is_taken_over_by_the_next_attempt(ledger: Ledger) -> None:
    """At the very instant at which the lease ends the old attempt is LOST and the next one runs."""
    first = ledger.claim()
    ledger.now += LEASE
    got = ledger.do(claim())
    assert (got.activity_id, got.attempt, got.lease_expires_at) == (first.activity_id, 2, START + 2 * LEASE)
    lost, running = ledger.rows(s.attempts)
    assert (lost.state, lost.ended_at) == ("LOST", START + LEASE)
    assert (running.number, running.state, running.claimed_at) == (2, "RUNNING", START + LEASE)


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED"])
def test_an_ended_attempt_frees_its_activity_at_once(ledger: Ledger, state: str) -> None:
    """The next attempt need not wait for a lease that nobody holds, and the last one says how it ended."""
    fence = ledger.claim()
    ledger.now += SECOND
    ledger.do(EndAttempt(fence, state, "ValueError"))
    assert ledger.row(s.activities, fence.activity_id).state == "FREE"
    assert ledger.do(claim()).attempt == 2
    ended, _ = ledger.rows(s.attempts)
    assert (ended.state, ended.error_type, ended.ended_at) == (state, "ValueError", START + SECOND)


def test_a_completed_activity_is_never_run_again(ledger: Ledger) -> None:
    """A claim gets the record, however late it comes; there is no further attempt."""
    fence = ledger.claim()
    ledger.do(complete(fence))
    before = tables(ledger)
    ledger.now += 1_000 * LEASE
    got = ledger.do(claim())
    assert (got.completed, got.attempt, got.output_digest) == (True, 1, "sha256:output")
    assert changed(before, tables(ledger)) == set()


def test_completing_records_state_attempt_and_output_together(ledger: Ledger) -> None:
    """One commit ends the attempt, completes the activity and keeps its protected output."""
    fence = ledger.claim()
    ledger.now += SECOND
    ledger.do(complete(fence))
    row = ledger.row(s.activities, fence.activity_id)
    assert (row.state, row.output_digest) == ("COMPLETED", "sha256:output")
    (attempt,) = ledger.rows(s.attempts)
    assert (attempt.state, attempt.ended_at) == ("COMPLETED", START + SECOND)
    (kept,) = ledger.rows(s.outputs)
    assert (kept.owner_id, kept.kind, kept.namespace) == (fence.activity_id, "output", "tests")
    assert ledger.read(verify) == []


def test_several_claims_in_one_batch_are_one_attempt(ledger: Ledger) -> None:
    """Whoever comes second in a batch is second."""
    results = ledger.do_all(claim(), claim(), claim(identity("other")))
    assert [type(result) for result in results] == [Claim, ActivityBusy, Claim]
    assert len(ledger.rows(s.activities)) == 2


@pytest.mark.parametrize(
    "other",
    [
        replace(identity(), namespace="others"),
        replace(identity(), workflow_id="workflow-2"),
        replace(identity(), run_id="run-2"),
        replace(identity(), activity_id="answer-2"),
    ],
)
def test_four_names_make_an_activity(ledger: Ledger, other: ActivityIdentity) -> None:
    """Namespace, workflow, run and activity id together: where one differs it is another activity."""
    first = ledger.claim()
    second = ledger.claim(other)
    assert (second.attempt, second.activity_id == first.activity_id) == (1, False)


@pytest.mark.parametrize(
    ("component", "changes", "recorded", "given_value"),
    [
        ("type", {"activity_type": "reply"}, "answer", "reply"),
        ("version", {"activity_version": "v2"}, "v1", "v2"),
        ("input", {}, "sha256:input", "sha256:another"),
    ],
)
@pytest.mark.parametrize("state", ["running", "lost", "free", "completed"])
def test_an_activity_called_with_something_else_is_refused(
    ledger: Ledger, component: str, changes: dict[str, str], recorded: str, given_value: str, state: str
) -> None:
    """The same identity with another type, version or input is a mismatch in every state."""
    fence = ledger.claim()
    if state == "lost":
        ledger.now += LEASE
    elif state == "free":
        ledger.end(fence)
    elif state == "completed":
        ledger.do(complete(fence))
    before = tables(ledger)
    digest = given_value if component == "input" else "sha256:input"
    with pytest.raises(ActivityMismatch) as mismatch:
        ledger.do(claim(replace(identity(), **changes), digest))
    assert (mismatch.value.component, mismatch.value.recorded, mismatch.value.given) == (
        component,
        recorded,
        given_value,
    )
    assert changed(before, tables(ledger)) == set()


# What a lost attempt leaves behind


@pytest.mark.parametrize("how", ["lost", "ended"])
def test_the_next_attempt_turns_what_was_left_open_into_unknowns(ledger: Ledger, how: str) -> None:
    """A STARTED invocation keeps its whole hold as unknown, whether its attempt died or gave up."""
    fence = ledger.claim()
    settled = ledger.start(fence, ask(total_tokens=10))
    ledger.settle(fence, settled, 1, 2)
    wanted = ask(total_tokens=10, input_tokens=4, output_tokens=6, tool_calls=1, cost=5, wall_clock_ms=9)
    left = ledger.start(fence, wanted)
    if how == "ended":
        ledger.end(fence)
    ledger.now += LEASE
    assert ledger.do(claim()).attempt == 2
    call = ledger.row(s.invocations, left)
    assert (call.state, call.reason, call.finished_at) == ("OUTCOME_UNKNOWN", "ATTEMPT_LOST", START + LEASE)
    hold = ledger.row(s.reservations, left)
    assert (hold.state, hold.reason, hold.resolved_at) == ("RECONCILE", "ATTEMPT_LOST", None)
    account = ledger.account("acme")
    assert (account.held, account.unknown) == (Amounts(), wanted.hold())
    assert account.settled == Amounts(3, 1, 2, 1)
    assert ledger.row(s.invocations, settled).state == "SUCCEEDED"
    assert ledger.read(verify) == []


@pytest.mark.postgres
@pytest.mark.parametrize("how", ["lost", "ended", "completed"])
def test_balances_of_what_is_left_open_are_locked_in_order_with_all_others(
    postgres_url: str, how: str
) -> None:
    """A batch that makes calls unknown holds no balance while it waits for a lower one."""
    with open_ledger(postgres_url) as ledger:
        ledger.do_all(put("low"), put("high"))
        leaver, other = ledger.claim(), ledger.claim(identity("other"))
        left = ledger.start(leaver, ask(total_tokens=10), "low")
        ending: dict[str, Any] = {
            "lost": claim(),
            "ended": EndAttempt(leaver, "FAILED", "Error", running=["a call"]),
            "completed": replace(complete(leaver), running=["a call"]),
        }
        if how == "lost":
            ledger.now += LEASE
        with connect(postgres_url) as busy:
            lock_balance(busy, "low")
            futures = ledger.writer.submit(ending[how], start(other, ask(), "high"))
            wait_for_lock(postgres_url)
            lock_balance(busy, "high")
        for future in futures:
            future.result(30)
        assert ledger.row(s.invocations, left).state == "OUTCOME_UNKNOWN"
        assert ledger.read(verify) == []


def lock_balance(connection: Connection, path: str) -> None:
    """Lock the balance of an account, or fail at once if it is locked."""
    of_account = select(s.accounts.c.id).where(s.accounts.c.path == path).scalar_subquery()
    query = select(s.balances.c.id).where(s.balances.c.account_id == of_account)
    connection.execute(query.with_for_update(nowait=True)).one()


def test_effects_left_open_are_unknown_unless_they_only_read(ledger: Ledger) -> None:
    """A read that was cut short is FAILED; anything else may have happened. Finished ones stay."""
    fence = ledger.claim()
    id = ledger.start(fence, ask())
    new = [
        effect(id, i, effect_class=of)
        for i, of in enumerate(["read_only", "idempotent", "at_most_once", "at_most_once"])
    ]
    ledger.settle(fence, id, effects=tuple(new))
    ledger.do(FinishEffects(fence, (EffectResult(new[3].id, "DONE", result_digest="sha256:r"),)))
    ledger.now += LEASE
    ledger.do(claim())
    found = [(row.state, row.reason) for row in (ledger.row(s.effects, one.id) for one in new)]
    assert found == [
        ("FAILED", "ATTEMPT_LOST"),
        ("OUTCOME_UNKNOWN", "ATTEMPT_LOST"),
        ("OUTCOME_UNKNOWN", "ATTEMPT_LOST"),
        ("DONE", None),
    ]
    assert ledger.read(verify) == []


def test_a_settlement_that_came_in_time_is_not_lost(ledger: Ledger) -> None:
    """A slow attempt settles just before another takes over, in one batch: what it settled stays settled."""
    fence = ledger.claim()
    id = ledger.start(fence, ask(total_tokens=10))
    other = ledger.start(fence, ask(total_tokens=10))
    elsewhere = ask(total_tokens=1_000, model_calls=9)
    ledger.start(ledger.claim(identity("elsewhere")), elsewhere)
    call = effect(other)
    ledger.now += LEASE
    results = ledger.do_all(settle(fence, id, 3, 4), settle(fence, other, 1, 1, effects=(call,)), claim())
    assert [result for result in results if isinstance(result, Exception)] == []
    assert ledger.row(s.reservations, id).state == "SETTLED"
    assert ledger.row(s.effects, call.id).state == "OUTCOME_UNKNOWN"
    account = ledger.account("acme")
    assert (account.held, account.unknown) == (elsewhere.hold(), Amounts())
    assert account.settled == Amounts(9, 4, 5, 2)
    assert ledger.read(verify) == []


def test_a_call_started_just_before_the_takeover_is_unknown(ledger: Ledger) -> None:
    """Started and taken over in one batch: nobody may settle it any more, so it must not stay held."""
    fence = ledger.claim()
    ledger.now += LEASE
    begin = start(fence, ask(total_tokens=10))
    ledger.do_all(begin, claim())
    assert ledger.row(s.invocations, begin.id).state == "OUTCOME_UNKNOWN"
    assert ledger.row(s.reservations, begin.id).state == "RECONCILE"
    assert ledger.account("acme").unknown.total_tokens == 10
    assert ledger.read(verify) == []


def test_a_call_started_ended_and_taken_over_in_one_batch(ledger: Ledger) -> None:
    """An attempt that gives up in the same batch leaves its open call to the next as well."""
    fence = ledger.claim()
    begin = start(fence, ask(total_tokens=10))
    ledger.do_all(begin, EndAttempt(fence, "CANCELLED", "CancelledError"), claim())
    assert ledger.row(s.invocations, begin.id).state == "OUTCOME_UNKNOWN"
    assert ledger.account("acme").held == Amounts()
    assert ledger.read(verify) == []
