"""Invocations and reservations: started together, resolved together, once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from memoflow.budget import DIMENSIONS, Amounts, Budget
from memoflow.errors import LeaseLost, NotFound, ReplayMismatch, ReservationConflict
from memoflow.ledger import schema as s
from memoflow.ledger.activities import Fence
from memoflow.ledger.invocations import KeepResponseId, SettleInvocation, Started, TokenUse
from memoflow.ledger.verify import verify
from tests.ledger._calls import (
    SECOND,
    START,
    Ledger,
    ask,
    bound,
    effect,
    identity,
    open_ledger,
    output,
    settle,
    start,
)
from tests.ledger._tables import changed, tables

EVERYTHING = ask(
    total_tokens=70, input_tokens=40, output_tokens=30, tool_calls=2, cost=9_000_000, wall_clock_ms=500
)
HELD = EVERYTHING.hold()


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """A fresh ledger with a small tree of accounts on each kind of database."""
    with open_ledger(database_url) as opened:
        for path in ("acme", "acme/a", "acme/a/x", "acme/b", "other"):
            opened.put(path)
        yield opened


@pytest.fixture
def fence(ledger: Ledger) -> Fence:
    """A running attempt."""
    return ledger.claim()


def release(fence: Fence, id: str) -> SettleInvocation:
    """The operation that returns a hold: nothing was sent."""
    return SettleInvocation(fence, id, "FAILED", "release", "PROVIDER_CALL_NOT_STARTED")


def unknown(fence: Fence, id: str) -> SettleInvocation:
    """The operation that keeps a hold: nobody knows what happened."""
    return SettleInvocation(fence, id, "OUTCOME_UNKNOWN", "unknown", "READ_TIMEOUT")


# Starting


def test_a_start_is_a_hold_and_a_started_invocation(ledger: Ledger, fence: Fence) -> None:
    """The reservation bears the id of its invocation, which names the attempt; both are there before I/O."""
    operation = start(
        fence,
        EVERYTHING,
        "acme/a",
        round=3,
        input_basis="estimate",
        input_measured=40,
        output_cap=30,
        price_version="sha256:prices",
        metadata='{"k":1}',
    )
    assert ledger.do(operation) == Started(operation.id, None, ())
    call = ledger.row(s.invocations, operation.id)
    assert (call.namespace, call.activity_id, call.attempt) == ("tests", fence.activity_id, 1)
    assert (call.state, call.reason, call.started_at, call.finished_at) == ("STARTED", None, START, None)
    assert (call.provider, call.api, call.model, call.round) == ("openai", "responses", "model-1", 3)
    assert (call.request_digest, call.turn_id) == ("sha256:request", None)
    assert (call.input_basis, call.input_measured, call.output_cap) == ("estimate", 40, 30)
    assert (call.price_version, call.metadata) == ("sha256:prices", '{"k":1}')
    hold = ledger.row(s.reservations, operation.id)
    assert (hold.state, hold.account, hold.namespace, hold.created_at) == ("HELD", "acme/a", "tests", START)
    assert s.read_amounts(hold, "reserved") == HELD
    assert hold.actual_cost is None


def test_a_hold_is_on_the_account_and_all_above_it(ledger: Ledger, fence: Fence) -> None:
    """Every dimension is held on every account of the branch, and nowhere else."""
    id = ledger.start(fence, EVERYTHING, "acme/a/x")
    for path in ("acme", "acme/a", "acme/a/x"):
        assert ledger.account(path).held == HELD
    for path in ("acme/b", "other"):
        assert ledger.account(path).held == Amounts()
    assert [row.event for row in ledger.rows(s.journal, reservation_id=id)] == ["reserve"] * 3


def test_an_account_shared_by_several_is_charged_once(ledger: Ledger, fence: Fence) -> None:
    """A call on several accounts holds on each account of their branches once."""
    id = ledger.start(fence, EVERYTHING, "acme/a/x", "acme/b", "acme", "other")
    for path in ("acme", "acme/a", "acme/a/x", "acme/b", "other"):
        assert ledger.account(path).held == HELD
    assert len(ledger.rows(s.journal, reservation_id=id)) == 5
    assert ledger.row(s.reservations, id).account == "acme/a/x\nacme/b\nacme\nother"
    ledger.settle(fence, id, 1, 2)
    assert ledger.account("acme").settled == Amounts(3, 1, 2, 1)
    assert ledger.read(verify) == []


def test_starting_the_same_invocation_again_changes_nothing(ledger: Ledger, fence: Fence) -> None:
    """A start is idempotent by its id, before and after the invocation has ended."""
    operation = start(fence, EVERYTHING, "acme/a", binding=bound())
    first = ledger.do(operation)
    for then in (None, settle(fence, operation.id, 1, 1)):
        if then is not None:
            ledger.do(then)
        before = tables(ledger)
        assert ledger.do(operation) == first
        assert changed(before, tables(ledger)) == set()
    other = start(fence, ask())
    results = ledger.do_all(other, other)
    assert results[0] == results[1]
    assert len(ledger.rows(s.invocations)) == 2


# The binding of a replay key


def test_a_replay_key_is_bound_by_its_first_start(ledger: Ledger, fence: Fence) -> None:
    """The binding is written with the reservation, and later rounds belong to the same turn."""
    binding = bound("key")
    first = ledger.do(start(fence, ask(), binding=binding))
    again = ledger.do(start(fence, ask(), binding=bound("key"), round=1))
    assert isinstance(first, Started)
    assert isinstance(again, Started)
    assert first.turn_id == again.turn_id == binding.turn_id
    (turn,) = ledger.rows(s.turns)
    assert (turn.id, turn.namespace, turn.activity_id) == (binding.turn_id, "tests", fence.activity_id)
    assert (turn.replay_key, turn.api) == ("key", "openai/responses")
    assert (turn.request_digest, turn.executors_digest) == ("sha256:request", "sha256:executors")
    assert {row.turn_id for row in ledger.rows(s.invocations)} == {binding.turn_id}


@pytest.mark.parametrize(
    ("component", "changes"),
    [
        ("api", {"api": "other"}),
        ("request", {"request_digest": "other"}),
        ("executors", {"executors_digest": "other"}),
        ("api", {"api": "other", "request_digest": "x", "executors_digest": "y"}),
    ],
)
@pytest.mark.parametrize("progress", ["in progress", "settled", "same batch"])
def test_another_request_under_a_bound_key_is_refused_before_any_budget(
    ledger: Ledger, fence: Fence, component: str, changes: dict[str, str], progress: str
) -> None:
    """The first component that differs is named, by digest, also while the first call is still running."""
    first = start(fence, EVERYTHING, "acme/a", binding=bound("key"))
    other = start(fence, EVERYTHING, "acme/a", binding=replace(bound("key"), **changes))
    if progress == "same batch":
        _, error = ledger.do_all(first, other)
    else:
        ledger.do(first)
        if progress == "settled":
            ledger.settle(fence, first.id, 1, 1)
        before = tables(ledger)
        (error,) = ledger.do_all(other)
        assert changed(before, tables(ledger)) == set()
    assert isinstance(error, ReplayMismatch)
    recorded = getattr(bound(), component if component == "api" else f"{component}_digest")
    assert (error.replay_key, error.component) == ("key", component)
    assert (error.recorded, error.given) == (recorded, "other")
    assert len(ledger.rows(s.invocations)) == 1


def test_a_refused_start_binds_nothing(ledger: Ledger, fence: Fence) -> None:
    """A key is not bound by a call that could not be paid for."""
    ledger.put("acme", Budget(total_tokens=10))
    before = tables(ledger)
    (error,) = ledger.do_all(start(fence, EVERYTHING, "acme/a", binding=bound("key")))
    assert type(error).__name__ == "BudgetDenied"
    assert changed(before, tables(ledger)) == set()


def test_keys_of_different_activities_are_different(ledger: Ledger, fence: Fence) -> None:
    """A replay key means something in its activity alone."""
    ledger.start(fence, ask(), binding=bound("key"))
    other = ledger.claim(identity("other"))
    ledger.start(other, ask(), binding=replace(bound("key"), request_digest="sha256:another"))
    assert len(ledger.rows(s.turns)) == 2


# Settling

USE = TokenUse(30, 10, 5, 20, 15, 7_000)


def test_a_settlement_replaces_the_hold_by_what_was_used(ledger: Ledger, fence: Fence) -> None:
    """The hold is gone on every account, the usage is there, and the rest is free again."""
    id = ledger.start(fence, EVERYTHING, "acme/a")
    ledger.now += SECOND
    used = Amounts(50, 30, 20, 1, 2, 7_000, 450)
    ledger.do(
        settle(
            fence,
            id,
            usage=USE,
            actual=used,
            finish_reason="stop",
            http_status=200,
            response_digest="sha256:reply",
            reply_model="model-1-2026",
            service_tier="flex",
            outputs=(output(id, "reply"), output(id, "response_id")),
            effects=(effect(id, 0), effect(id, 1, state="REFUSED", reason="UNKNOWN_TOOL")),
        )
    )
    for path in ("acme", "acme/a"):
        account = ledger.account(path)
        assert (account.settled, account.held, account.unknown) == (used, Amounts(), Amounts())
    call = ledger.row(s.invocations, id)
    assert (call.state, call.reason, call.finish_reason, call.http_status) == ("SUCCEEDED", None, "stop", 200)
    assert (call.input_tokens, call.cached_input_tokens, call.cache_write_tokens) == (30, 10, 5)
    assert (call.output_tokens, call.reasoning_tokens, call.cost) == (20, 15, 7_000)
    assert (call.response_digest, call.reply_model, call.service_tier) == (
        "sha256:reply",
        "model-1-2026",
        "flex",
    )
    assert call.finished_at == START + SECOND
    hold = ledger.row(s.reservations, id)
    assert (hold.state, hold.resolved_at) == ("SETTLED", START + SECOND)
    assert s.read_amounts(hold, "actual") == used
    assert s.read_amounts(hold, "reserved") == HELD
    assert [(row.ordinal, row.state) for row in ledger.rows(s.effects)] == [(0, "STARTED"), (1, "REFUSED")]
    assert {row.kind for row in ledger.rows(s.outputs)} == {"reply", "response_id"}
    assert ledger.read(verify) == []


def test_a_release_returns_the_whole_hold(ledger: Ledger, fence: Fence) -> None:
    """With proof that nothing was sent, nothing is charged, not even a model call."""
    id = ledger.start(fence, EVERYTHING, "acme/a")
    ledger.do(release(fence, id))
    assert ledger.account("acme").used == Amounts()
    assert (ledger.row(s.invocations, id).state, ledger.row(s.reservations, id).state) == (
        "FAILED",
        "RELEASED",
    )
    assert ledger.row(s.reservations, id).reason == "PROVIDER_CALL_NOT_STARTED"
    assert ledger.row(s.reservations, id).resolved_at == START
    assert ledger.row(s.reservations, id).actual_model_calls is None
    assert ledger.read(verify) == []


def test_an_unknown_outcome_keeps_the_whole_hold(ledger: Ledger, fence: Fence) -> None:
    """Held becomes unknown, still counts against every limit, and waits for a decision."""
    id = ledger.start(fence, EVERYTHING, "acme/a")
    ledger.do(unknown(fence, id))
    for path in ("acme", "acme/a"):
        account = ledger.account(path)
        assert (account.settled, account.held, account.unknown) == (Amounts(), Amounts(), HELD)
    assert ledger.row(s.invocations, id).state == "OUTCOME_UNKNOWN"
    hold = ledger.row(s.reservations, id)
    assert (hold.state, hold.reason, hold.resolved_at) == ("RECONCILE", "READ_TIMEOUT", None)
    assert ledger.read(verify) == []


def test_time_alone_never_frees_an_unknown(ledger: Ledger, fence: Fence) -> None:
    """Years later, after other attempts and settlements, the hold is still there."""
    id = ledger.start(fence, EVERYTHING, "acme")
    ledger.do(unknown(fence, id))
    ledger.now += 10 * 365 * 86_400 * SECOND
    again = ledger.claim()
    ledger.settle(again, ledger.start(again, EVERYTHING, "acme"), 1, 1)
    assert ledger.account("acme").unknown == HELD
    assert ledger.row(s.reservations, id).state == "RECONCILE"


def test_a_reply_without_usage_is_recorded_and_its_hold_kept(ledger: Ledger, fence: Fence) -> None:
    """The reply counts as a reply, and is never settled at zero."""
    id = ledger.start(fence, EVERYTHING, "acme")
    ledger.do(
        settle(
            fence,
            id,
            resolution="unknown",
            reason="USAGE_MISSING",
            usage=None,
            actual=Amounts(),
            outputs=(output(id, "reply"),),
        )
    )
    assert ledger.row(s.invocations, id).state == "SUCCEEDED"
    assert ledger.row(s.reservations, id).state == "RECONCILE"
    assert ledger.account("acme").unknown == HELD
    assert len(ledger.rows(s.outputs)) == 1
    assert ledger.read(verify) == []


RESOLUTIONS = {
    "settle": lambda fence, id: settle(fence, id, 3, 4),
    "settle otherwise": lambda fence, id: settle(fence, id, 3, 5),
    "release": release,
    "unknown": unknown,
}
STATES = {"settle": "SETTLED", "settle otherwise": "SETTLED", "release": "RELEASED", "unknown": "RECONCILE"}


@pytest.mark.parametrize("second", RESOLUTIONS)
@pytest.mark.parametrize("first", RESOLUTIONS)
@pytest.mark.parametrize("together", [True, False])
def test_a_reservation_is_resolved_once(
    ledger: Ledger, fence: Fence, first: str, second: str, together: bool
) -> None:
    """Repeating the same resolution is a no-op, a different one a conflict; in one batch or in several."""
    id = ledger.start(fence, EVERYTHING, "acme/a")
    operations = [RESOLUTIONS[first](fence, id), RESOLUTIONS[second](fence, id)]
    if together:
        _, error = ledger.do_all(*operations)
    else:
        ledger.do(operations[0])
        before = tables(ledger)
        (error,) = ledger.do_all(operations[1])
        assert changed(before, tables(ledger)) == set()
    if first == second:
        assert error is None
    else:
        assert isinstance(error, ReservationConflict)
        assert (error.id, error.state, error.asked) == (id, STATES[first], STATES[second])
    assert ledger.row(s.reservations, id).state == STATES[first]
    assert len(ledger.rows(s.journal, reservation_id=id)) == 4
    assert ledger.read(verify) == []


def test_a_repeated_settlement_keeps_nothing_twice(ledger: Ledger, fence: Fence) -> None:
    """Its reply and effects are there from the first time."""
    id = ledger.start(fence, EVERYTHING, "acme")
    done = settle(fence, id, 3, 4, outputs=(output(id, "reply"),), effects=(effect(id),))
    assert ledger.do_all(done, done) == [None, None]
    assert ledger.do(done) is None
    assert len(ledger.rows(s.outputs)) == len(ledger.rows(s.effects)) == 1


@pytest.mark.parametrize("resolve", RESOLUTIONS)
def test_what_was_never_reserved_cannot_be_resolved(ledger: Ledger, fence: Fence, resolve: str) -> None:
    """A settlement of nothing is a conflict, and moves nothing."""
    before = tables(ledger)
    (error,) = ledger.do_all(RESOLUTIONS[resolve](fence, "nobody"))
    assert isinstance(error, ReservationConflict)
    assert (error.id, error.state) == ("nobody", "missing")
    assert changed(before, tables(ledger)) == set()


def test_an_attempt_cannot_resolve_the_invocation_of_another_activity(ledger: Ledger, fence: Fence) -> None:
    """A fence is good for its own activity's rows alone."""
    id = ledger.start(fence, EVERYTHING, "acme")
    other = ledger.claim(identity("other"))
    before = tables(ledger)
    for resolve in RESOLUTIONS.values():
        (error,) = ledger.do_all(resolve(other, id))
        assert isinstance(error, (LeaseLost, NotFound, ReservationConflict))
    assert changed(before, tables(ledger)) <= {"evidence"}
    ledger.settle(fence, id, 3, 4)


def test_dimensions_that_are_not_named_hold_nothing(ledger: Ledger, fence: Fence) -> None:
    """A dimension without a bound and without a limit is not held, and is settled all the same."""
    wanted = replace(EVERYTHING, amounts=(None,) * len(DIMENSIONS))
    id = ledger.start(fence, wanted, "acme")
    assert ledger.account("acme").held == Amounts()
    ledger.settle(fence, id, 30, 40)
    assert ledger.account("acme").settled == Amounts(70, 30, 40, 1)
    assert ledger.read(verify) == []


# The provider's id of a reply that is being streamed


def test_the_id_of_a_streamed_reply_is_kept_before_the_reply_ends(ledger: Ledger, fence: Fence) -> None:
    """It is in the protected store while the call is running, and stays when its outcome is lost."""
    id = ledger.start(fence, EVERYTHING, "acme")
    ledger.do(KeepResponseId(fence, output(id, "response_id")))
    ledger.do(unknown(fence, id))
    (kept,) = ledger.rows(s.outputs)
    assert (kept.owner_id, kept.kind, kept.namespace) == (id, "response_id", "tests")
