"""Fencing and leases: a zombie cannot write, and no step of a clock lets two attempts in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memoflow.errors import ActivityBusy, LeaseLost
from memoflow.identity import ActivityIdentity, new_id
from memoflow.ledger import schema as s
from memoflow.ledger.activities import ClaimActivity, CompleteActivity, EndAttempt, ExtendLease, Fence
from memoflow.ledger.effects import BeginEffects, EffectResult, FinishEffects
from memoflow.ledger.invocations import KeepResponseId, SettleInvocation
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
    settle,
    start,
)
from tests.ledger._tables import changed, tables

LEASE = 60 * SECOND


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """A fresh ledger with one account on each kind of database."""
    with open_ledger(database_url) as opened:
        opened.put("acme")
        yield opened


def claim(who: ActivityIdentity | None = None) -> ClaimActivity:
    """The operation that claims an activity."""
    return ClaimActivity(who or identity(), "sha256:input", LEASE, "worker-1")


def complete(fence: Fence) -> CompleteActivity:
    """The operation that completes an activity."""
    return CompleteActivity(fence, "sha256:output", output(fence.activity_id, "output"))


# Fencing

Write = Callable[[Fence, str, str], Any]
WRITES: dict[str, tuple[Write, tuple[Any, ...]]] = {
    # What a zombie wants to write, and what is kept of it: event, state, tokens in and out, digest.
    "start": (lambda f, call, tool: start(f, ask(total_tokens=1)), ("start", None, None, None, None)),
    "settle": (
        lambda f, call, tool: settle(f, call, 3, 4, outputs=(output(call, "reply"),)),
        ("settle", "SUCCEEDED", 3, 4, "sha256:reply"),
    ),
    "unknown": (
        lambda f, call, tool: SettleInvocation(f, call, "OUTCOME_UNKNOWN", "unknown", "READ_TIMEOUT"),
        ("settle", "OUTCOME_UNKNOWN", None, None, None),
    ),
    "finish": (
        lambda f, call, tool: FinishEffects(f, (EffectResult(tool, "DONE", result_digest="sha256:r"),)),
        ("effect", "DONE", None, None, "sha256:r"),
    ),
    "complete": (lambda f, call, tool: complete(f), ("complete", None, None, None, "sha256:output")),
    "end": (lambda f, call, tool: EndAttempt(f, "FAILED", "Error"), ("end", "FAILED", None, None, None)),
    "begin": (lambda f, call, tool: BeginEffects(f, (effect(call, 7),)), ("begin", None, None, None, None)),
    "response id": (
        lambda f, call, tool: KeepResponseId(f, output(call, "response_id")),
        ("response_id", None, None, None, None),
    ),
    "extend": (lambda f, call, tool: ExtendLease(f, LEASE), ("extend", None, None, None, None)),
}


def zombie(ledger: Ledger, how: str) -> tuple[Fence, str, str, int]:
    """An attempt that lost its activity, its open call and effect, and the attempt that is current."""
    fence = ledger.claim()
    done = ledger.start(fence, ask())
    tool = effect(done)
    ledger.settle(fence, done, effects=(tool,))
    call = ledger.start(fence, ask(total_tokens=5))
    if how == "taken over":
        ledger.now += LEASE
        ledger.claim()
        return fence, call, tool.id, 2
    if how == "ended":
        ledger.end(fence)
        return fence, call, tool.id, 1
    ledger.do(FinishEffects(fence, (EffectResult(tool.id, "DONE", result_digest="sha256:first"),)))
    ledger.settle(fence, call)
    ledger.do(complete(fence))
    return fence, call, tool.id, 1


@pytest.mark.parametrize("how", ["taken over", "ended", "completed"])
@pytest.mark.parametrize("write", WRITES)
def test_a_zombie_cannot_write(ledger: Ledger, how: str, write: str) -> None:
    """Every write of an attempt that lost its activity is refused, and what it knew is kept as evidence;
    a heartbeat that only comes after its attempt's end knew nothing."""
    fence, call, tool, current = zombie(ledger, how)
    make, kept = WRITES[write]
    operation = make(fence, call, tool)
    before = tables(ledger)
    with pytest.raises(LeaseLost) as lost:
        ledger.do(operation)
    assert (lost.value.activity, lost.value.attempt) == (str(identity()), 1)
    assert lost.value.current == (2 if current == 2 else None)
    telling = write != "extend" or how == "taken over"
    assert changed(before, tables(ledger)) == ({"evidence"} if telling else set())
    found = [
        (row.event, row.state, row.input_tokens, row.output_tokens, row.digest)
        for row in ledger.rows(s.evidence)
    ]
    assert found == [kept] * telling
    assert ledger.read(verify) == []


def test_evidence_says_who_wrote_what_when(ledger: Ledger) -> None:
    """A late settlement can be found under its invocation, with its attempt and time."""
    fence, call, tool, _ = zombie(ledger, "taken over")
    ledger.now += SECOND
    results = [EffectResult(tool, "DONE", result_digest="sha256:r"), EffectResult("other", "FAILED")]
    errors = ledger.do_all(settle(fence, call, 3, 4), FinishEffects(fence, tuple(results)))
    assert [type(error) for error in errors] == [LeaseLost, LeaseLost]
    first, *rest = ledger.rows(s.evidence)
    assert (first.namespace, first.activity_id, first.attempt) == ("tests", fence.activity_id, 1)
    assert (first.subject_id, first.at) == (call, START + LEASE + SECOND)
    assert [(row.subject_id, row.state) for row in rest] == [(tool, "DONE"), ("other", "FAILED")]


def test_an_attempt_that_never_was_cannot_write(ledger: Ledger) -> None:
    """A fence of an activity or attempt that does not exist is as stale as any."""
    real = ledger.claim()
    for fence in (Fence("tests", "nobody", 1, "nobody"), replace(real, attempt=2), replace(real, attempt=0)):
        with pytest.raises(LeaseLost):
            ledger.do(start(fence, ask()))
    assert ledger.rows(s.invocations) == []


# Leases and clocks


def test_a_heartbeat_extends_the_lease(ledger: Ledger) -> None:
    """The lease then ends one lease after the heartbeat, and the next claim waits until then."""
    fence = ledger.claim()
    ledger.now += LEASE // 2
    assert ledger.do(ExtendLease(fence, LEASE)) == ledger.now + LEASE
    ledger.now += LEASE - 1
    with pytest.raises(ActivityBusy):
        ledger.do(claim())


def test_a_late_heartbeat_saves_an_attempt_nobody_took_over(ledger: Ledger) -> None:
    """Only another attempt ends a lease that ran out."""
    fence = ledger.claim()
    ledger.now += 10 * LEASE
    assert ledger.do(ExtendLease(fence, LEASE)) == ledger.now + LEASE
    ledger.start(fence, ask())
    with pytest.raises(ActivityBusy):
        ledger.do(claim())


def test_a_lease_never_moves_back(ledger: Ledger) -> None:
    """Neither a clock that was put back nor a shorter lease takes away what was granted."""
    fence = ledger.claim()
    ledger.now -= 10 * LEASE
    assert ledger.do(ExtendLease(fence, LEASE)) == START + LEASE
    ledger.now = START
    assert ledger.do(ExtendLease(fence, 1)) == START + LEASE
    with pytest.raises(ActivityBusy):
        ledger.do(claim())


def test_a_clock_put_back_keeps_others_out_for_longer_and_never_lets_two_in(ledger: Ledger) -> None:
    """After a step back the lease still ends at the instant that was granted."""
    ledger.claim()
    ledger.now -= LEASE
    with pytest.raises(ActivityBusy) as busy:
        ledger.do(claim())
    assert busy.value.lease_expires_at == to_datetime(START + LEASE)
    ledger.now = START + LEASE
    assert ledger.do(claim()).attempt == 2


def test_an_activity_claimed_after_a_step_back_has_its_whole_lease(ledger: Ledger) -> None:
    """A new attempt's lease counts from the clock as it is, also where that is before the last attempt."""
    fence = ledger.claim()
    ledger.end(fence)
    ledger.now -= 100 * LEASE
    assert ledger.do(claim()).lease_expires_at == ledger.now + LEASE
    assert ledger.read(verify) == []


STEPS = st.integers(-3 * LEASE, 3 * LEASE)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_step_of_the_clock_shortens_a_lease_or_lets_two_attempts_write(
    ledger: Ledger, data: st.DataObject
) -> None:
    """A granted lease is a whole one and never moves back, and one attempt owns the activity."""
    who = identity(run_id=new_id())
    ledger.now = START
    held: list[Fence] = []
    lease_ends = 0
    for step in data.draw(st.lists(STEPS, min_size=1, max_size=12)):
        ledger.now += step
        (got,) = ledger.do_all(claim(who))
        if isinstance(got, ActivityBusy):
            assert ledger.now < lease_ends
            assert got.lease_expires_at == to_datetime(lease_ends)
        else:
            assert not held or ledger.now >= lease_ends
            held.append(Fence("tests", got.activity_id, got.attempt, "label"))
            assert (got.attempt, got.lease_expires_at) == (len(held), ledger.now + LEASE)
            lease_ends = got.lease_expires_at
        *zombies, owner = held
        extended = ledger.do(ExtendLease(owner, LEASE))
        assert extended == max(lease_ends, ledger.now + LEASE)
        lease_ends = extended
        refused = ledger.do_all(*[ExtendLease(zombie, LEASE) for zombie in zombies])
        assert all(isinstance(error, LeaseLost) for error in refused)
