"""Cases about effects, replay and recovery."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from memoflow import (
    ActivityBusy,
    ActivityMismatch,
    Budget,
    ConfigurationError,
    KeyRing,
    OutcomeUnknown,
    ReplayMismatch,
    Runtime,
    Tool,
    ToolVersionMismatch,
    faults,
    tool,
)
from memoflow.canonical import Digester, canonical
from memoflow.errors import InvalidRequest, LeaseLost
from memoflow.ledger.activities import ClaimActivity
from memoflow.ledger.effects import BeginEffects, NewEffect
from memoflow.testing import (
    ScriptEntry,
    SimulatedProvider,
    call,
    calls,
    hold,
    read_timeout,
    status,
    stream_ends_early,
    text,
)
from memoflow.testing.runtime import ManualClock, temporary_runtime
from tests.field._faces import FACES, Face
from tests.field.conftest import Field

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


@pytest.mark.parametrize("failure", [status(500), read_timeout(), stream_ends_early(text("x"), after=2)])
def test_case_35_a_retry_after_a_failed_round(each: Field, stream: bool, failure: ScriptEntry) -> None:
    """The first round is restored with its call id, not charged again; a later charge is its own effect."""
    provider = SimulatedProvider([calls(CHARGE), failure, calls(CHARGE), text("ok")])
    first = each.play(provider, [charging("at_most_once")], run="r", stream=stream)
    assert isinstance(first.error, OutcomeUnknown)
    second = each.play(provider, [charging("at_most_once")], run="r", stream=stream)
    assert second.error is None
    assert RAN == [("o1", 500), ("o1", 500)]
    keys = [effect.idempotency_key for effect in each.effects]
    assert len(set(keys)) == 2
    assert [effect.round for effect in each.effects] == [0, 1]
    assert second.sent[1] == second.sent[2]
    ((answered, _),) = each.face.answered(second.sent[2])
    assert answered == each.effects[0].call_id


def test_case_35_a_call_id_is_no_part_of_the_key(each: Field) -> None:
    """A model invents a new id each time it is asked, so that the key is made of the place and the call."""
    keys: list[str | None] = []
    for call_id in ("call_1", "call_2"):
        with temporary_runtime() as runtime:
            runtime.budgets.put("acme", Budget(total_tokens=100_000))
            asked = Field(runtime, each.clock, each.face)
            wanted = call("charge", {"order": "o1", "cents": 500}, call_id=call_id)
            asked.play([calls(wanted), text("ok")], [charging("idempotent")], run="r")
            keys += [effect.idempotency_key for effect in asked.effects]
    assert len(keys) == 2
    assert keys[0] == keys[1]


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


@pytest.mark.parametrize("face", FACES, ids=str)
@pytest.mark.parametrize(
    ("point", "number", "ran"), [("commit:before", 3, 0), ("commit:after", 4, 1)], ids=["before", "after"]
)
def test_case_36_death_before_and_after_what_is_in_doubt(
    sqlite_url: str, clock: ManualClock, face: Face, point: str, number: int, ran: int
) -> None:
    """Before its claim is durable a tool has not run and runs; after its result is, it is restored."""
    keys, charge = KeyRing.generate(), charging("at_most_once")
    with temporary_runtime(sqlite_url, keys=keys, clock=clock) as dying:
        dying.budgets.put("acme", Budget(total_tokens=100_000))
        # Putting an account was a commit of its own, before the points are counted.
        _killed(Field(dying, clock, face), lambda: _die_at(point, number), [charge])
    assert len(RAN) == ran
    script = [text("ok")] if ran else [calls(CHARGE), text("ok")]
    with temporary_runtime(sqlite_url, keys=keys, clock=clock) as runtime:
        again = Field(runtime, clock, face).play(script, [charge], run="r")
    assert again.text == "ok"
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
    _killed(case, lambda: _die_at("before:Launch"), [charge])
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


BUDGET = Budget(total_tokens=4_000, tool_calls=1)


@pytest.mark.parametrize(
    ("changed", "tools", "component"),
    [
        ({"prompt": "Other."}, [], "request"),
        ({"model": "m-2"}, [], "request"),
        ({"temperature": 0}, [], "request"),
        ({}, [charging("at_most_once")], "request"),
        ({"tools": []}, [charging("at_most_once")], "request"),
    ],
)
def test_case_40_the_same_key_for_another_request(
    each: Field, changed: dict[str, Any], tools: list[Tool[..., Any]], component: str
) -> None:
    """Another request under a key is refused by digest, with nothing sent and nothing taken."""
    provider = SimulatedProvider([text("first")])
    llm = each.face.over(provider)

    @each.runtime.activity(version="v1", budget="acme")
    def work() -> None:
        llm.run_with_tools(each.face.asking(), [], budget=BUDGET, replay_key="k")
        used = each.account.used
        with pytest.raises(ReplayMismatch) as mismatch:
            llm.run_with_tools(each.face.asking(**changed), tools, budget=BUDGET, replay_key="k")
        assert mismatch.value.component == component
        assert mismatch.value.recorded.startswith("sha256:")
        assert "Other." not in str(mismatch.value)
        assert each.account.used == used

    work.run()
    assert len(provider.requests) == 1


def test_case_40_another_api_under_the_same_key(each: Field) -> None:
    """A record of one API is not one of another, even of the same provider and with the same words."""
    provider = SimulatedProvider([text("first")])
    own = each.face.over(provider)
    others = [face for face in FACES if face is not each.face]

    @each.runtime.activity(version="v1", budget="acme")
    def work() -> None:
        own.run(each.face.asking(), budget=BUDGET, replay_key="k")
        for face in others:
            with pytest.raises(ReplayMismatch):
                face.over(provider).run(face.asking(), budget=BUDGET, replay_key="k")

    work.run()
    assert len(provider.requests) == 1


def test_case_40_a_mismatch_goes_before_being_in_progress(each: Field) -> None:
    """While the first is on its way, waiting would not help the second: it is told of the mismatch."""
    held = hold(text("first"))
    provider = SimulatedProvider([held])
    llm = each.face.over_async(provider)

    @each.runtime.activity(version="v1", budget="acme")
    async def work() -> None:
        first = asyncio.ensure_future(llm.run(each.face.asking(), budget=BUDGET, replay_key="k"))
        assert await asyncio.to_thread(held.gate.entered.wait, 10)
        with pytest.raises(ReplayMismatch):
            await llm.run(each.face.asking("Other."), budget=BUDGET, replay_key="k")
        held.release()
        await first

    asyncio.run(work.run())
    assert len(provider.requests) == 1


def test_case_40_an_activity_of_another_input(case: Field) -> None:
    """The same of activities: another input under one identity is a mismatch, running or completed."""
    heard: list[str] = []

    @case.runtime.activity(version="v1")
    def work(n: int) -> int:
        with pytest.raises(ActivityMismatch) as mismatch:
            work.run(n + 1, workflow_id="w", run_id="r")
        heard.append(mismatch.value.component)
        return n

    assert work.run(1, workflow_id="w", run_id="r") == 1
    assert work.run(1, workflow_id="w", run_id="r") == 1
    with pytest.raises(ActivityMismatch):
        work.run(2, workflow_id="w", run_id="r")
    assert heard == ["input"]


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


def test_case_41_the_order_of_tools_is_part_of_a_request(each: Field) -> None:
    """They are sent in their order. In another one the call is refused, never sent or charged again."""
    provider = SimulatedProvider([text("first")])
    llm = each.face.over(provider)
    one, two = charging("at_most_once"), tool(version="v1", effect="read_only", name="two")(lambda: None)

    @each.runtime.activity(version="v1", budget="acme")
    def work() -> None:
        llm.run_with_tools(each.face.asking(), [one, two], budget=BUDGET, replay_key="k")
        with pytest.raises(ReplayMismatch):
            llm.run_with_tools(each.face.asking(), [two, one], budget=BUDGET, replay_key="k")
        assert llm.run_with_tools(each.face.asking(), [one, two], budget=BUDGET, replay_key="k").restored

    work.run()
    assert len(provider.requests) == 1


def test_case_42_steps_are_found_by_name_and_not_by_their_order(each: Field) -> None:
    """Calls that ran side by side are restored each by its key, in whatever order they come again."""
    order = [["a", "b", "c"], ["c", "a", "b"]]
    provider = SimulatedProvider()
    llm = each.face.over_async(provider)
    seen: list[dict[str, str]] = []

    @each.runtime.activity(version="v1", budget="acme")
    async def work() -> None:
        keys = order.pop(0)
        asked = [llm.run(each.face.asking(f"step {key}"), budget=BUDGET, replay_key=key) for key in keys]
        results = await asyncio.gather(*asked)
        seen.append({key: each.face.said(one.response) for key, one in zip(keys, results, strict=True)})
        if order:
            raise ConnectionError("cut")

    with pytest.raises(ConnectionError):
        asyncio.run(work.run(workflow_id="w", run_id="r"))
    asyncio.run(work.run(workflow_id="w", run_id="r"))
    assert seen[0] == seen[1] == {key: f"echo: step {key}" for key in "abc"}
    assert len(provider.requests) == 3


def test_case_42_a_retry_that_brings_no_tools(each: Field) -> None:
    """It is told so, finally; the model is not asked without the tools that it was offered before."""
    each.play([calls(CHARGE), status(500)], [charging("at_most_once")], run="r")
    bare = each.play([text("never")], [], run="r")
    assert isinstance(bare.error, ReplayMismatch)
    assert not bare.error.retryable
    assert bare.wire == 0


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


class Receipt(BaseModel):
    """A result with a form of its own."""

    cents: int


def _looped() -> list[Any]:
    itself: list[Any] = []
    itself.append(itself)
    return itself


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (date(2026, 3, 1), True),
        (Decimal("1.10"), True),
        (Receipt(cents=5), True),
        (b"\xff", False),
        ({1, 2}, False),
        ((n for n in (1, 2)), False),
        (_looped(), False),
        ({1: "a"}, False),
        (ValueError("two", "arguments"), False),
    ],
    ids=["date", "decimal", "model", "bytes", "set", "generator", "loop", "keys", "object"],
)
def test_case_43_results_that_cannot_be_written(case: Field, value: Any, written: bool) -> None:
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
    assert ("RESULT_NOT_ENCODABLE" in again.outputs[0]) is not written


class TwoArguments(Exception):
    """An exception that cannot be made again from its text."""

    def __init__(self, code: int, secret: str) -> None:
        super().__init__(f"{code}: {secret}")
        self.code = code


def test_case_43_exceptions_that_cannot_be_made_again(each: Field) -> None:
    """The tool's own exception is raised when it happens; later it is an unknown outcome without its text."""

    @tool(version="v1", effect="at_most_once")
    def fail() -> str:
        """Fail."""
        RAN.append(1)
        raise TwoArguments(7, "secret-5f3a")

    first = each.play([calls(call("fail"))], [fail], run="r")
    assert isinstance(first.error, TwoArguments)
    assert first.error.code == 7
    again = each.play([text("never")], [fail], run="r")
    assert isinstance(again.error, OutcomeUnknown)
    assert again.error.kind == "effect"
    assert "secret" not in str(again.error)
    assert RAN == [1]
    assert again.wire == 0
    copied = pickle.loads(pickle.dumps(again.error))
    assert str(copied) == str(again.error)


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
