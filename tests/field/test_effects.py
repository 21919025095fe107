"""Cases about effects, replay and recovery."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from memoflow import (
    ActivityBusy,
    Budget,
    OutcomeUnknown,
    ReplayMismatch,
    Tool,
    ToolVersionMismatch,
    faults,
    tool,
)
from memoflow.canonical import Digester, canonical
from memoflow.errors import InvalidRequest, LeaseLost
from memoflow.ledger.activities import ClaimActivity
from memoflow.ledger.effects import BeginEffects, NewEffect
from memoflow.testing import SimulatedProvider, call, calls, status, text
from tests.field.conftest import REQUEST, Field

RAN: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    """Each case counts from zero."""
    RAN.clear()


def charging(effect: Any, version: str = "v1") -> Tool[..., Any]:
    """A tool that charges a card."""

    @tool(version=version, effect=effect, name="charge")
    def charge(order: str, cents: int) -> str:
        """Charge."""
        RAN.append((order, cents))
        return "charged"

    return charge


CHARGE = call("charge", {"order": "o1", "cents": 500})


def test_case_35_a_retry_after_a_failed_round(case: Field) -> None:
    """The first round is restored with its call id, not charged again; a later charge is its own effect."""
    provider = SimulatedProvider([calls(CHARGE), status(500), calls(CHARGE), text("ok")])
    first = case.play(provider, [charging("at_most_once")], run="r")
    assert isinstance(first.error, OutcomeUnknown)
    second = case.play(provider, [charging("at_most_once")], run="r")
    assert second.error is None
    assert RAN == [("o1", 500), ("o1", 500)]
    keys = [effect.idempotency_key for effect in case.effects]
    assert len(set(keys)) == 2
    assert [effect.round for effect in case.effects] == [0, 1]
    called, answered = second.sent[2]["input"][1:3]
    assert called["call_id"] == answered["call_id"] == case.effects[0].call_id


def _die_at(point: str, number: int = 1) -> None:
    """Stop as a killed process would, at the n-th time this point is reached."""
    seen = 0

    def hook(name: str) -> None:
        nonlocal seen
        seen += name == point
        if seen == number:
            raise faults.Stop

    faults.install(hook)


def _killed(case: Field, kill: Callable[[], None], tools: list[Tool[..., Any]]) -> None:
    kill()
    try:
        with pytest.raises(faults.Stop):
            case.play([calls(CHARGE)], tools, run="r", check=False)
    finally:
        faults.install(None)
    case.clock.advance(3600)


@pytest.mark.parametrize(
    ("point", "ran"), [("before:Launch", 0), ("after:Collect", 1)], ids=["before the call", "after the call"]
)
@pytest.mark.parametrize("effect", ["at_most_once", "idempotent"])
def test_case_36_death_between_an_effect_and_its_record(
    case: Field, point: str, ran: int, effect: str
) -> None:
    """Both deaths look alike: unknown for a tool that may not be repeated, the same key for one that may."""
    charge = charging(effect)
    _killed(case, lambda: _die_at(point), [charge])
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


def test_case_37_a_claim_is_exclusive_until_its_lease_ends(case: Field) -> None:
    """A running activity is busy; a lease that ran out leads to unknown, not straight to another run."""
    charge = charging("at_most_once")
    _killed(case, lambda: _die_at("before:Launch"), [charge])
    case.clock.advance(-0.0)
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


@pytest.mark.parametrize(
    ("change", "component"),
    [
        ({"request": {**REQUEST, "input": "Other."}}, "request"),
        ({"request": {**REQUEST, "model": "gpt-5"}}, "request"),
        ({"tools": [charging("at_most_once")]}, "request"),
    ],
)
def test_case_40_the_same_key_for_another_request(case: Field, change: Any, component: str) -> None:
    """Another request under a key is refused by digest, with nothing sent and nothing taken."""
    case.play([text("first")], run="r")
    used = case.account.used
    other = case.play([text("never")], run="other", check=False, **{**change, "replay_key": "turn"})
    assert other.error is None
    again = _second_call(case, change)
    assert isinstance(again, ReplayMismatch)
    assert again.component == component
    assert again.recorded.startswith("sha256:")
    assert case.account.used.model_calls == used.model_calls + 2


def _second_call(case: Field, change: Any) -> BaseException | None:
    """In one activity, use a key for one request and then for another."""
    from memoflow.openai import OpenAIResponses

    provider = SimulatedProvider([text("one")])
    llm = OpenAIResponses(provider.client())
    caught: list[BaseException] = []

    @case.runtime.activity(version="v1", budget="acme")
    def work() -> None:
        budget = Budget(total_tokens=4_000, tool_calls=1)
        llm.run(REQUEST, budget=budget, replay_key="k")
        try:
            if "tools" in change:
                llm.run_with_tools(REQUEST, change["tools"], budget=budget, replay_key="k")
            else:
                llm.run(change["request"], budget=budget, replay_key="k")
        except ReplayMismatch as mismatch:
            caught.append(mismatch)

    work.run()
    assert provider.wire_requests["POST /v1/responses"] == 1
    return caught[0] if caught else None


def test_case_41_digests_are_stable(tmp_path: Any) -> None:
    """The order of keys and the hash seed do not matter; types, text forms and the order of lists do."""
    digest = Digester().json
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert len({digest(value) for value in (1, "1", True, [1, 2], [2, 1], "caf\u00e9", "cafe\u0301")}) == 7
    with pytest.raises(InvalidRequest):
        canonical({1: "a"})
    program = (
        "from memoflow.canonical import Digester; print(Digester().json({k: 1 for k in {'a', 'b', 'c'}}))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


def test_case_42_a_tool_that_changed(case: Field) -> None:
    """An unfinished call is refused under another version; a finished one is a mismatch, and nothing runs."""
    _killed(case, lambda: _die_at("before:Launch"), [charging("idempotent")])
    unfinished = case.play([text("never")], [charging("idempotent", "v2")], run="r")
    assert isinstance(unfinished.error, ToolVersionMismatch)
    assert (unfinished.error.recorded, unfinished.error.registered) == ("v1", "v2")
    assert not unfinished.error.retryable
    case.play([calls(CHARGE), status(500)], [charging("idempotent")], run="done")
    finished = case.play([text("never")], [charging("idempotent", "v2")], run="done")
    assert isinstance(finished.error, ReplayMismatch)
    assert finished.error.component == "executors"
    assert RAN == [("o1", 500)]


@pytest.mark.parametrize(
    "value",
    [date(2026, 3, 1), Decimal("1.10"), b"\xff", {1, 2}, (n for n in (1, 2)), ValueError("two", "arguments")],
    ids=["date", "decimal", "bytes", "set", "generator", "object"],
)
def test_case_43_results_that_cannot_be_written(case: Field, value: Any) -> None:
    """What has an exact form is written, the rest is told to the model; the effect is done either way."""

    @tool(version="v1", effect="at_most_once")
    def give() -> Any:
        """Give."""
        RAN.append(1)
        return value

    played = case.play([calls(call("give")), status(500)], [give], run="r")
    assert isinstance(played.error, OutcomeUnknown)
    again = case.play([text("ok")], [give], run="r")
    assert again.error is None
    assert RAN == [1]
    assert [effect.state for effect in case.effects] == ["DONE"]
    written = isinstance(value, (date, Decimal))
    assert ("RESULT_NOT_ENCODABLE" in again.outputs[0]) is not written


def test_case_e8_digests_can_be_keyed() -> None:
    """A digest of a small domain can be guessed; with a key it cannot, and it says which key made it."""
    keyed = Digester(b"k" * 32, "k1")
    assert keyed.json({"approve": True}) != Digester().json({"approve": True})
    assert keyed.json({"approve": True}).startswith("hmac-sha256:k1:")


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
