"""Cases about effects and recovery."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from memoflow import (
    ActivityBusy,
    CallCancelled,
    CancelSignal,
    ConfigurationError,
    KeyRing,
    OutcomeUnknown,
    Runtime,
    tool,
)
from memoflow.errors import LeaseLost
from memoflow.ledger.activities import ClaimActivity
from memoflow.ledger.effects import BeginEffects, NewEffect
from memoflow.testing import (
    ScriptEntry,
    SimulatedProvider,
    call,
    calls,
    read_timeout,
    status,
    stream_ends_early,
    text,
)
from memoflow.testing.runtime import ManualClock
from tests.field._charging import CHARGE, RAN, charging, die_at, killed
from tests.field._faces import FACES, Face
from tests.field.conftest import Field, playing


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    """Each case counts from zero."""
    RAN.clear()


FAILURES: list[ScriptEntry] = [status(500), read_timeout(), stream_ends_early(text("x"), after=2)]


def test_case_35_a_retry_after_a_failed_round(each: Field, stream: bool) -> None:
    """The first round is restored with its call id, not charged again; a later charge is its own effect."""
    for number, failure in enumerate(FAILURES):
        provider = SimulatedProvider([calls(CHARGE), failure, calls(CHARGE), text("ok")])
        given = {"tools": [charging("at_most_once")], "run": f"r{number}", "stream": stream}
        RAN.clear()
        first = each.play(provider, **given)
        assert isinstance(first.error, OutcomeUnknown)
        second = each.play(provider, **given)
        assert second.text == "ok"
        assert RAN == [("o1", 500), ("o1", 500)]
        assert second.sent[1] == second.sent[2]
    keys = {effect.idempotency_key for effect in each.effects}
    assert len(keys) == 2 * len(FAILURES)
    assert [effect.round for effect in each.effects] == [0, 1] * len(FAILURES)


def test_case_35_a_call_id_is_no_part_of_the_key(each: Field) -> None:
    """A model invents a new id each time it is asked, so that the key is made of the place and the call."""
    keys: list[str | None] = []
    for call_id in ("call_1", "call_2"):
        with playing(each.clock, each.face) as asked:
            wanted = call("charge", {"order": "o1", "cents": 500}, call_id=call_id)
            asked.play([calls(wanted), text("ok")], [charging("idempotent")], run="r")
            keys += [effect.idempotency_key for effect in asked.effects]
    assert len(keys) == 2
    assert keys[0] == keys[1]


@pytest.mark.parametrize(
    ("point", "ran"), [("before:Launch", 0), ("after:Collect", 1)], ids=["before the call", "after the call"]
)
@pytest.mark.parametrize("effect", ["at_most_once", "idempotent"])
def test_case_36_death_between_an_effect_and_its_record(
    case: Field, point: str, ran: int, effect: str
) -> None:
    """Both deaths look alike: unknown for a tool that may not be repeated, the same key for one that may."""
    charge = charging(effect)
    killed(case, lambda: die_at(point), [charge])
    assert len(RAN) == ran
    again = case.play([text("ok")], [charge], run="r")
    if effect == "at_most_once":
        assert isinstance(again.error, OutcomeUnknown)
        assert again.error.kind == "effect"
        assert len(RAN) == ran
    else:
        assert again.error is None
        assert len(RAN) == ran + 1
        assert len({row.idempotency_key for row in case.effects}) == 1
        assert [row.state for row in case.effects] == ["SUPERSEDED", "DONE"]


@pytest.mark.parametrize("face", FACES, ids=str)
@pytest.mark.parametrize(
    ("point", "number", "ran"), [("commit:before", 3, 0), ("commit:after", 4, 1)], ids=["before", "after"]
)
def test_case_36_death_before_and_after_what_is_in_doubt(
    sqlite_url: str, clock: ManualClock, face: Face, point: str, number: int, ran: int
) -> None:
    """Before its claim is durable a tool has not run and runs; after its result is, it is restored."""
    keys, charge = KeyRing.generate(), charging("at_most_once")
    with playing(clock, face, url=sqlite_url, keys=keys) as dying:
        killed(dying, lambda: die_at(point, number), [charge])
    assert len(RAN) == ran
    script = [text("ok")] if ran else [calls(CHARGE), text("ok")]
    with playing(clock, face, url=sqlite_url, keys=keys) as field:
        assert field.play(script, [charge], run="r").text == "ok"
    assert RAN == [("o1", 500)]


def test_case_37_one_of_eight_workers_runs_it(case: Field) -> None:
    """The others hear that it is busy and until when; none runs the body beside the first."""
    ready = threading.Barrier(8)
    go_on = threading.Event()
    busy: list[ActivityBusy] = []

    @case.runtime.activity(version="v1")
    def work() -> str:
        RAN.append(1)
        assert go_on.wait(10)
        return "done"

    def claim() -> None:
        ready.wait(10)
        try:
            work.run(workflow_id="w", run_id="r")
        except ActivityBusy as error:
            busy.append(error)
        if len(busy) == 7:
            go_on.set()

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert RAN == [1]
    assert len(busy) == 7
    assert {error.attempt for error in busy} == {1}


@pytest.mark.parametrize("lease", [0, -1, True, 86_401])
def test_case_37_a_lease_of_nothing_is_not_no_lease(sqlite_url: str, lease: Any) -> None:
    """Zero is not "not set": it is refused, and None is the default."""
    with pytest.raises(ConfigurationError):
        Runtime.open(sqlite_url, keys=KeyRing.generate(), lease_seconds=lease)
    with Runtime.open(sqlite_url, keys=KeyRing.generate(), lease_seconds=None) as runtime:
        assert runtime.lease_us == 60_000_000


def test_case_37_a_claim_is_exclusive_until_its_lease_ends(case: Field) -> None:
    """A running activity is busy; a lease that ran out leads to unknown, not straight to another run."""
    charge = charging("at_most_once")
    killed(case, lambda: die_at("before:Launch"), [charge])
    again = case.play([text("ok")], [charge], run="r")
    assert isinstance(again.error, OutcomeUnknown)
    assert RAN == []


def test_case_37_the_loser_is_told_when(case: Field) -> None:
    """Who comes second learns when the lease ends."""
    seen: dict[str, ActivityBusy] = {}

    @case.runtime.activity(version="v1")
    def outer() -> None:
        with pytest.raises(ActivityBusy) as busy:
            outer.run(workflow_id="w", run_id="r")
        seen["busy"] = busy.value

    outer.run(workflow_id="w", run_id="r")
    assert seen["busy"].attempt == 1


def test_case_e12_no_tool_starts_for_an_attempt_that_is_over(case: Field) -> None:
    """Beginning an effect checks the attempt; after another has taken over no claim succeeds."""

    @case.runtime.activity(version="v1")
    def work() -> None:
        fence = case.runtime.current().record.fence
        case.clock.advance(3600)
        identity = case.runtime.current().identity
        digest = case.runtime.digester.json([[], {}])
        case.runtime.commit(ClaimActivity(identity, digest, 1_000_000, "other"))
        effect = NewEffect(
            "e", "i", 0, 1, "c", "function", "", "t", "v1", "at_most_once", "k", "d", "STARTED"
        )
        case.runtime.commit(BeginEffects(fence, (effect,)))

    with pytest.raises(LeaseLost):
        work.run()
    assert case.effects == []


def test_case_e12_no_tool_starts_after_a_guard_tripped(each: Field, stream: bool) -> None:
    """A guard that stops the call while its tools run: what has not started does not start, now or later."""
    signal = CancelSignal()

    @tool(version="v1", effect="read_only")
    def guard() -> str:
        """Trip."""
        signal.cancel()
        return "tripped"

    script = [calls(call("guard"), CHARGE, CHARGE), text("never")]
    tools = [guard, charging("at_most_once")]
    played = each.play(script, tools, signal=signal, tool_concurrency=1, stream=stream, run="r")
    assert isinstance(played.error, CallCancelled)
    assert RAN == []
    assert played.wire == 1
    states = [effect.state for effect in each.effects]
    assert states[0] == "DONE"
    assert "DONE" not in states[1:]
    assert "OUTCOME_UNKNOWN" not in states
