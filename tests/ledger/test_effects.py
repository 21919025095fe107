"""Tool effects: begun before a tool runs, finished once, and run again only where that is allowed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memoflow.errors import LeaseLost, ReservationConflict
from memoflow.ledger import schema as s
from memoflow.ledger.activities import Fence
from memoflow.ledger.decisions import DecideEffect
from memoflow.ledger.effects import BeginEffects, EffectResult, FinishEffects, NewEffect
from memoflow.ledger.verify import verify
from tests.ledger._calls import SECOND, START, Ledger, ask, effect, identity, open_ledger, output
from tests.ledger._tables import changed, tables

DECISION = "00000000-0000-4000-8000-000000000001"


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """A fresh ledger with one account on each kind of database."""
    with open_ledger(database_url) as opened:
        opened.put("acme")
        yield opened


@pytest.fixture
def fence(ledger: Ledger) -> Fence:
    """A running attempt."""
    return ledger.claim()


def called(ledger: Ledger, fence: Fence, *classes: str) -> list[NewEffect]:
    """A settled reply that asked for tools of these effect classes; their executions have begun."""
    id = ledger.start(fence, ask())
    new = [effect(id, i, effect_class=of) for i, of in enumerate(classes)]
    ledger.settle(fence, id, effects=tuple(new))
    return new


def done(one: NewEffect, digest: str = "sha256:result", **changes: object) -> EffectResult:
    """The result of an execution."""
    values = {"result_digest": digest, "result_bytes": 7, "output": output(one.id, "result")} | changes
    return EffectResult(one.id, "DONE", **values)  # type: ignore[arg-type]


def again(one: NewEffect, execution: int = 2) -> NewEffect:
    """A further execution of the same call."""
    return effect(
        one.invocation_id,
        one.ordinal,
        execution=execution,
        effect_class=one.effect_class,
        supersedes=one.id,
    )


def states(ledger: Ledger) -> list[tuple[int, int, str]]:
    """Ordinal, execution and state of every execution."""
    return sorted((row.ordinal, row.execution, row.state) for row in ledger.rows(s.effects))


# Beginning and finishing


def test_an_execution_is_on_record_before_it_runs(ledger: Ledger, fence: Fence) -> None:
    """Who, which call, which tool and version, which arguments: all by name and digest."""
    (new,) = called(ledger, fence, "idempotent")
    row = ledger.row(s.effects, new.id)
    assert (row.namespace, row.activity_id, row.attempt) == ("tests", fence.activity_id, 1)
    assert (row.invocation_id, row.ordinal, row.execution) == (new.invocation_id, 0, 1)
    assert (row.call_id, row.kind, row.tool_namespace) == ("call_0", "function", "")
    assert (row.tool_name, row.tool_version, row.effect_class) == ("refund", "v1", "idempotent")
    assert (row.idempotency_key, row.arguments_digest) == (new.idempotency_key, "sha256:arguments")
    assert (row.state, row.started_at, row.finished_at) == ("STARTED", START, None)


@pytest.mark.parametrize("state", ["REFUSED", "PROVIDER_SIDE"])
def test_a_call_that_is_not_run_is_finished_at_once(ledger: Ledger, fence: Fence, state: str) -> None:
    """Refused calls and what the provider ran itself are on record with the reply."""
    id = ledger.start(fence, ask())
    new = effect(id, state=state, reason="UNKNOWN_TOOL", idempotency_key=None)
    ledger.settle(fence, id, effects=(new,))
    row = ledger.row(s.effects, new.id)
    assert (row.state, row.reason, row.finished_at) == (state, "UNKNOWN_TOOL", START)
    assert ledger.read(verify) == []


def test_executions_are_finished_with_their_results(ledger: Ledger, fence: Fence) -> None:
    """State, digest, size and protected result are written together, each execution for itself."""
    first, second, third = called(ledger, fence, "at_most_once", "at_most_once", "read_only")
    ledger.now += SECOND
    failed = EffectResult(second.id, "OUTCOME_UNKNOWN", "TOOL_ERROR", error_type="ValueError")
    ledger.do(FinishEffects(fence, (done(first), failed)))
    row = ledger.row(s.effects, first.id)
    assert (row.state, row.result_digest, row.result_bytes) == ("DONE", "sha256:result", 7)
    assert row.finished_at == START + SECOND
    row = ledger.row(s.effects, second.id)
    assert (row.state, row.reason, row.error_type) == ("OUTCOME_UNKNOWN", "TOOL_ERROR", "ValueError")
    assert ledger.row(s.effects, third.id).state == "STARTED"
    (kept,) = ledger.rows(s.outputs)
    assert (kept.owner_id, kept.kind, kept.namespace) == (first.id, "result", "tests")


@pytest.mark.parametrize("together", [True, False])
def test_finishing_the_same_way_again_is_a_no_op(ledger: Ledger, fence: Fence, together: bool) -> None:
    """A repeated result keeps nothing twice and disturbs no sibling that is new."""
    first, second = called(ledger, fence, "at_most_once", "at_most_once")
    once, both = FinishEffects(fence, (done(first),)), FinishEffects(fence, (done(first), done(second)))
    if together:
        assert ledger.do_all(once, both) == [None, None]
    else:
        ledger.do(once)
        assert ledger.do(both) is None
    assert states(ledger) == [(0, 1, "DONE"), (1, 1, "DONE")]
    assert len(ledger.rows(s.outputs)) == 2


@pytest.mark.parametrize(
    "other",
    [
        lambda one: done(one, "sha256:another"),
        lambda one: EffectResult(one.id, "FAILED", "KNOWN_FAILURE"),
        lambda one: EffectResult(one.id, "OUTCOME_UNKNOWN", "TOOL_ERROR"),
    ],
)
def test_finishing_in_another_way_is_a_conflict(ledger: Ledger, fence: Fence, other: object) -> None:
    """What happened, happened: another result or state is refused, and its siblings with it."""
    first, second = called(ledger, fence, "at_most_once", "at_most_once")
    ledger.do(FinishEffects(fence, (done(first),)))
    before = tables(ledger)
    (error,) = ledger.do_all(FinishEffects(fence, (done(second), other(first))))  # type: ignore[operator]
    assert isinstance(error, ReservationConflict)
    assert (error.what, error.id, error.state) == ("effect", first.id, "DONE")
    assert changed(before, tables(ledger)) == set()


def test_what_was_never_begun_cannot_be_finished(ledger: Ledger, fence: Fence) -> None:
    """Nobody may say afterwards that a tool had run which was not on record."""
    (error,) = ledger.do_all(FinishEffects(fence, (EffectResult("nobody", "DONE", result_digest="d"),)))
    assert isinstance(error, ReservationConflict)
    assert (error.id, error.state) == ("nobody", "missing")


def test_an_attempt_cannot_finish_the_effect_of_another_activity(ledger: Ledger, fence: Fence) -> None:
    """A fence is good for its own activity's rows alone."""
    (new,) = called(ledger, fence, "at_most_once")
    other = ledger.claim(identity("other"))
    (error,) = ledger.do_all(FinishEffects(other, (done(new),)))
    assert isinstance(error, ReservationConflict)
    assert states(ledger) == [(0, 1, "STARTED")]


def test_finishing_nothing_is_nothing(ledger: Ledger, fence: Fence) -> None:
    """An empty operation is accepted, and changes nothing."""
    before = tables(ledger)
    assert ledger.do(FinishEffects(fence, ())) is None
    assert changed(before, tables(ledger)) == set()


# Running again


def lost(ledger: Ledger, fence: Fence) -> Fence:
    """The next attempt, after this one died."""
    ledger.now += 3_600 * SECOND
    return ledger.claim()


@pytest.mark.parametrize(("effect_class", "left"), [("read_only", "FAILED"), ("idempotent", "SUPERSEDED")])
def test_a_call_that_may_run_again_is_a_further_row(
    ledger: Ledger, fence: Fence, effect_class: str, left: str
) -> None:
    """The open execution is superseded by its successor, which has the same key and the next number."""
    (new,) = called(ledger, fence, effect_class)
    successor = lost(ledger, fence)
    second = again(new)
    ledger.do(BeginEffects(successor, (second,)))
    assert states(ledger) == [(0, 1, left), (0, 2, "STARTED")]
    row = ledger.row(s.effects, second.id)
    assert (row.attempt, row.idempotency_key, row.execution) == (2, new.idempotency_key, 2)
    ledger.do(FinishEffects(successor, (done(second),)))
    assert states(ledger) == [(0, 1, left), (0, 2, "DONE")]
    assert ledger.read(verify) == []


def test_a_call_may_be_lost_and_run_again_several_times(ledger: Ledger, fence: Fence) -> None:
    """Each execution is on record; the last one decides."""
    (new,) = called(ledger, fence, "idempotent")
    for execution in (2, 3, 4):
        fence = lost(ledger, fence)
        new = again(new, execution)
        ledger.do(BeginEffects(fence, (new,)))
    assert states(ledger) == [
        (0, 1, "SUPERSEDED"),
        (0, 2, "SUPERSEDED"),
        (0, 3, "SUPERSEDED"),
        (0, 4, "STARTED"),
    ]
    assert ledger.read(verify) == []


def test_a_call_that_must_not_run_twice_does_not(ledger: Ledger, fence: Fence) -> None:
    """An unknown of an at-most-once tool is not superseded, whoever asks; a decision comes first."""
    (new,) = called(ledger, fence, "at_most_once")
    successor = lost(ledger, fence)
    before = tables(ledger)
    (error,) = ledger.do_all(BeginEffects(successor, (again(new),)))
    assert isinstance(error, ReservationConflict)
    assert (error.id, error.state) == (new.id, "OUTCOME_UNKNOWN")
    assert changed(before, tables(ledger)) == set()
    ledger.do(DecideEffect(DECISION, "tests", new.id, "did_not_happen", "ann", "asked the shop", "sha256:e"))
    ledger.do(BeginEffects(successor, (again(new),)))
    assert states(ledger) == [(0, 1, "FAILED"), (0, 2, "STARTED")]
    assert ledger.read(verify) == []


@pytest.mark.parametrize("effect_class", ["idempotent", "at_most_once"])
def test_a_call_decided_as_happened_is_not_run_again(ledger: Ledger, fence: Fence, effect_class: str) -> None:
    """A decision made while an attempt was about to run the call again comes first."""
    (new,) = called(ledger, fence, effect_class)
    successor = lost(ledger, fence)
    decision = DecideEffect(DECISION, "tests", new.id, "happened", "ann", "seen", result_digest="sha256:r")
    ledger.do(decision)
    before = tables(ledger)
    (error,) = ledger.do_all(BeginEffects(successor, (again(new),)))
    assert isinstance(error, ReservationConflict)
    assert (error.id, error.state) == (new.id, "DONE")
    assert changed(before, tables(ledger)) == set()
    assert ledger.read(verify) == []


@pytest.mark.parametrize("state", ["STARTED", "DONE", "REFUSED", "SUPERSEDED", "missing"])
def test_nothing_else_is_run_again(ledger: Ledger, fence: Fence, state: str) -> None:
    """Not what is running, is done, was refused, has a successor, or never was; and no sibling with it."""
    (new,) = called(ledger, fence, "idempotent")
    asked = again(new)
    if state == "DONE":
        ledger.do(FinishEffects(fence, (done(new),)))
    elif state == "REFUSED":
        id = ledger.start(fence, ask())
        refused = effect(id, state="REFUSED", effect_class="idempotent")
        ledger.settle(fence, id, effects=(refused,))
        asked = again(refused)
    elif state == "SUPERSEDED":
        fence = lost(ledger, fence)
        ledger.do(BeginEffects(fence, (asked,)))
        asked = again(new, 3)
    elif state == "missing":
        asked = effect(new.invocation_id, 5, execution=2, supersedes="nobody")
    before = tables(ledger)
    (error,) = ledger.do_all(BeginEffects(fence, (effect(new.invocation_id, 9), asked)))
    assert isinstance(error, ReservationConflict)
    assert error.state == state
    assert changed(before, tables(ledger)) == set()


def test_a_stale_attempt_begins_nothing(ledger: Ledger, fence: Fence) -> None:
    """Whoever lost the activity must not run its tools again."""
    (new,) = called(ledger, fence, "idempotent")
    lost(ledger, fence)
    before = tables(ledger)
    (error,) = ledger.do_all(BeginEffects(fence, (again(new),)))
    assert isinstance(error, LeaseLost)
    assert changed(before, tables(ledger)) == {"evidence"}
