"""Using approvals: an effect begins once, under the approval that it was given, or does not begin."""

from __future__ import annotations

import time
from typing import Any

import pytest
from sqlalchemy import text

from memoflow.errors import (
    ApprovalInvalid,
    ConfigurationError,
    LeaseLost,
    OutcomeUnknown,
    ReservationConflict,
)
from memoflow.ledger import guards
from memoflow.ledger import schema as s
from memoflow.ledger.activities import Fence
from memoflow.ledger.approvals import ContinueEffects
from memoflow.ledger.effects import BeginEffects, EffectResult, FinishEffects, NewEffect
from tests.ledger import _approvals
from tests.ledger._approvals import (
    HOUR,
    LAPSES,
    allow,
    asked,
    deny,
    go_on,
    parked,
    resumption,
    shown,
    state,
    to_the_present,
    waits,
)
from tests.ledger._calls import Ledger, effect, identity, open_ledger
from tests.ledger._support import connect

ledger = _approvals.ledger

# Using


def test_an_approved_effect_begins_with_the_use_of_its_approval(ledger: Ledger) -> None:
    """In one transaction, by the attempt that runs it and at its time; the request stays as it was."""
    fence, new = parked(ledger)
    ledger.do(allow(new.id))
    ledger.now += 1
    assert [one.state for one in go_on(ledger, fence, new)] == ["STARTED"]
    row, use = ledger.row(s.effects, new.id), ledger.row(s.approval_uses, new.id)
    assert (row.state, row.attempt, row.started_at) == ("STARTED", 2, ledger.now)
    assert (use.attempt, use.used_at) == (2, ledger.now)
    assert use.binding_digest == ledger.row(s.approval_decisions, new.id).binding_digest
    assert shown(ledger, new.id).state == "used"


def test_an_approval_begins_one_effect_once(ledger: Ledger) -> None:
    """Coming back to an effect that has begun begins nothing."""
    fence, new = parked(ledger)
    ledger.do(allow(new.id))
    go_on(ledger, fence, new)
    with pytest.raises(ReservationConflict, match="STARTED"):
        go_on(ledger, fence, new)
    assert len(ledger.rows(s.approval_uses)) == 1


def test_what_nobody_decided_goes_on_waiting(ledger: Ledger) -> None:
    """Nothing is written, and it may be asked about again and again."""
    fence, new = parked(ledger)
    assert [one.state for one in go_on(ledger, fence, new)] == ["AWAITING_APPROVAL"]
    assert state(ledger, new.id) == ("AWAITING_APPROVAL", None)
    assert shown(ledger, new.id).state == "pending"


@pytest.mark.parametrize("shared", [False, True])
def test_a_denied_effect_ends(ledger: Ledger, shared: bool) -> None:
    """It is DENIED and used nothing; the reason goes on only where the approver shared it."""
    fence, new = parked(ledger)
    ledger.do(deny(new.id, shared=shared))
    (resumed,) = go_on(ledger, fence, new)
    assert (resumed.state, resumed.told) == ("DENIED", "too much" if shared else None)
    assert state(ledger, new.id) == ("DENIED", "APPROVAL_DENIED")
    assert ledger.rows(s.approval_uses) == []
    assert shown(ledger, new.id).state == "denied"


def test_what_lapsed_or_expired_ends(ledger: Ledger) -> None:
    """By the ledger's clock: a request that nobody decided in time, an approval that nobody used in time."""
    first = ledger.claim()
    undecided, unused = asked(ledger, first, "at_most_once", "at_most_once")
    ledger.end(first, "PARKED")
    ledger.do(allow(unused.id, valid_us=1))
    ledger.now += LAPSES
    assert [shown(ledger, one.id).state for one in (undecided, unused)] == ["expired", "expired"]
    fence = ledger.claim()
    assert [one.reason for one in go_on(ledger, fence, undecided, unused)] == ["APPROVAL_EXPIRED"] * 2
    for one in (undecided, unused):
        assert state(ledger, one.id) == ("DENIED", "APPROVAL_EXPIRED")
        assert shown(ledger, one.id).state == "expired"


def test_an_approval_is_good_until_its_last_microsecond(ledger: Ledger) -> None:
    """Just before its end it is used, at its end it is not."""
    for left, wanted in ((1, "STARTED"), (0, "DENIED")):
        fence = ledger.claim(identity(run_id=wanted))
        (new,) = asked(ledger, fence)
        decision = ledger.do(allow(new.id))
        assert decision.expires_at is not None
        ledger.now = decision.expires_at - left
        assert [one.state for one in go_on(ledger, fence, new)] == [wanted]


def test_an_approval_that_expires_while_it_is_written_is_not_used(ledger: Ledger) -> None:
    """Seen in time and written too late by the database's own clock: looked at again, it has expired."""
    fence, new = parked(ledger)
    to_the_present(ledger)
    until = ledger.do(allow(new.id, valid_us=1000)).expires_at
    assert until is not None
    while time.time_ns() // 1000 <= until + 2000:
        time.sleep(0.001)
    moments = [until - 1]
    ledger.database.clock = lambda connection: moments.pop() if moments else until + 2000
    assert [one.reason for one in go_on(ledger, fence, new)] == ["APPROVAL_EXPIRED"]
    assert moments == []


def test_a_clock_behind_the_databases_uses_nothing_too_late(ledger: Ledger) -> None:
    """What is over by the database's clock is not used by another one's; the refusal names the clocks."""
    fence, new = parked(ledger)
    ledger.do(allow(new.id, valid_us=1))
    with pytest.raises(ConfigurationError, match=r"clock of the database .* has expired"):
        go_on(ledger, fence, new)
    assert state(ledger, new.id) == ("AWAITING_APPROVAL", None)


def test_each_of_several_calls_goes_its_own_way(ledger: Ledger) -> None:
    """Approved, denied and undecided calls of one reply begin, end and wait beside each other."""
    first = ledger.claim()
    new = asked(ledger, first, "idempotent", "idempotent", "idempotent")
    ledger.do(allow(new[0].id))
    ledger.do(deny(new[1].id))
    assert [one.state for one in go_on(ledger, first, *new)] == ["STARTED", "DENIED", "AWAITING_APPROVAL"]


@pytest.mark.parametrize("given", [{"arguments_digest": "sha256:820"}, {"idempotency_key": "mf1_other"}])
def test_allowed_82_does_not_run_820(ledger: Ledger, given: dict[str, Any]) -> None:
    """A call with other arguments than were allowed does not begin, and uses nothing."""
    fence, new = parked(ledger)
    ledger.do(allow(new.id))
    with pytest.raises(ApprovalInvalid) as caught:
        ledger.do(ContinueEffects(fence, (resumption(new, **given),)))
    assert caught.value.component == next(iter(given))
    assert (state(ledger, new.id)[0], ledger.rows(s.approval_uses)) == ("AWAITING_APPROVAL", [])


def test_where_one_call_is_refused_none_begins(ledger: Ledger) -> None:
    """What is to be begun together is begun together or not at all."""
    fence = ledger.claim()
    good, bad = asked(ledger, fence, "idempotent", "idempotent")
    ledger.do(allow(good.id))
    ledger.do(allow(bad.id))
    waiting = (resumption(good), resumption(bad, arguments_digest="sha256:820"))
    with pytest.raises(ApprovalInvalid):
        ledger.do(ContinueEffects(fence, waiting, (effect(good.invocation_id, 5),)))
    assert {row.state for row in ledger.rows(s.effects)} == {"AWAITING_APPROVAL"}


def test_a_zombie_uses_no_approval(ledger: Ledger) -> None:
    """An attempt that lost its lease begins nothing; what it wanted is kept as evidence."""
    fence, new = parked(ledger)
    ledger.do(allow(new.id, valid_us=10 * HOUR))
    ledger.now += HOUR
    ledger.claim()
    with pytest.raises(LeaseLost):
        go_on(ledger, fence, new)
    assert [row.event for row in ledger.rows(s.evidence)] == ["begin"]
    assert ledger.rows(s.approval_uses) == []


def test_an_effect_of_another_activity_is_not_begun(ledger: Ledger) -> None:
    """A fence is good for its own activity only, whoever allowed what."""
    _, new = parked(ledger)
    ledger.do(allow(new.id))
    other = ledger.claim(identity("other"))
    with pytest.raises(ReservationConflict, match="missing"):
        go_on(ledger, other, new)


# Altered records; the guards are taken away, as a superuser could


ALTERED = {
    "arguments_digest": "UPDATE approval_requests SET arguments_digest = 'sha256:820'",
    "tool_version": "UPDATE approval_requests SET tool_version = 'v2'",
    "requester": "UPDATE approval_decisions SET requester = 'agent:other'",
    "approver": "UPDATE approval_requests SET requester = 'Bob'; "
    "UPDATE approval_decisions SET requester = 'Bob', approver = 'human:BO\u200bB '",
    "binding_digest": "UPDATE approval_decisions SET expires_at = expires_at + 1",
    "request": "DELETE FROM approval_decisions; DELETE FROM approval_requests",
}


@pytest.mark.parametrize("component", ALTERED)
def test_an_altered_approval_begins_nothing(database_url: str, component: str) -> None:
    """Whatever of it was changed afterwards: what differs is named, and nothing runs."""
    with open_ledger(database_url) as ledger:
        to_the_present(ledger)
        ledger.put("acme")
        fence, new = parked(ledger)
        ledger.do(allow(new.id))
        with connect(database_url) as connection:
            guards.uninstall(connection)
            for statement in ALTERED[component].split("; "):
                connection.execute(text(statement))
            guards.install(connection)
        with pytest.raises(ApprovalInvalid) as caught:
            go_on(ledger, fence, new)
        assert caught.value.component == component
        assert state(ledger, new.id)[0] == "AWAITING_APPROVAL"


# Running again


def again(one: NewEffect, execution: int = 2, **changes: Any) -> NewEffect:
    """A further execution of a call that a person has to allow."""
    given = {"effect_class": one.effect_class, "idempotency_key": one.idempotency_key, **changes}
    return waits(one.invocation_id, one.ordinal, execution=execution, supersedes=one.id, **given)


def lost(ledger: Ledger, effect_class: str, valid_us: int = 10 * HOUR) -> tuple[Fence, NewEffect]:
    """An approved call that was begun by a worker that died, and the attempt after it."""
    fence, new = parked(ledger, effect_class)
    ledger.do(allow(new.id, valid_us=valid_us))
    go_on(ledger, fence, new)
    ledger.now += HOUR
    return ledger.claim(), new


def test_a_lost_execution_runs_again_under_its_approval(ledger: Ledger) -> None:
    """The same effect under the same idempotency key is what was allowed; nobody is asked once more."""
    fence, new = lost(ledger, "idempotent")
    second = again(new)
    assert ledger.do(BeginEffects(fence, (second,))) == ("STARTED",)
    assert (state(ledger, new.id)[0], state(ledger, second.id)[0]) == ("SUPERSEDED", "STARTED")
    assert len(ledger.rows(s.approval_requests)) == len(ledger.rows(s.approval_uses)) == 1
    ledger.do(FinishEffects(fence, (EffectResult(second.id, "FAILED", "NOT_STARTED"),)))
    assert ledger.do(BeginEffects(fence, (again(second, 3),))) == ("STARTED",)


def test_an_unknown_is_decided_before_anybody_is_asked_again(ledger: Ledger) -> None:
    """Once its approval has expired, an effect that may have happened is not put down as one that waits."""
    fence, new = lost(ledger, "idempotent", valid_us=HOUR)
    with pytest.raises(OutcomeUnknown) as caught:
        ledger.do(BeginEffects(fence, (again(new),)))
    assert (caught.value.id, caught.value.reason) == (new.id, "ATTEMPT_LOST")
    assert state(ledger, new.id)[0] == "OUTCOME_UNKNOWN"


def test_what_certainly_did_not_happen_is_asked_about_again(ledger: Ledger) -> None:
    """A failed execution whose approval has expired is followed by one that waits."""
    fence, new = lost(ledger, "read_only", valid_us=HOUR)
    second = again(new)
    assert ledger.do(BeginEffects(fence, (second,))) == ("AWAITING_APPROVAL",)
    assert (state(ledger, new.id), state(ledger, second.id)[0]) == (
        ("FAILED", "ATTEMPT_LOST"),
        "AWAITING_APPROVAL",
    )
    ledger.do(allow(second.id))
    assert [one.state for one in go_on(ledger, fence, second)] == ["STARTED"]


def test_a_denied_execution_does_not_follow_an_unknown(ledger: Ledger) -> None:
    """A judge that came later cannot make the model believe that nothing has happened."""
    fence, new = lost(ledger, "idempotent")
    refused = again(new, state="DENIED", request=None, reason="JUDGED")
    with pytest.raises(OutcomeUnknown):
        ledger.do(BeginEffects(fence, (refused,)))
