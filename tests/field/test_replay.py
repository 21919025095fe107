"""Cases about replay, digests and what does not survive recording."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from memoflow import (
    ActivityMismatch,
    Budget,
    KeyRing,
    OutcomeUnknown,
    ReplayMismatch,
    Tool,
    ToolVersionMismatch,
    tool,
)
from memoflow.canonical import Digester, canonical
from memoflow.errors import InvalidRequest
from memoflow.testing import (
    ScriptEntry,
    SimulatedProvider,
    call,
    calls,
    hold,
    status,
    text,
)
from memoflow.testing.runtime import ManualClock
from tests.field._charging import CHARGE, RAN, charging, die_at, killed
from tests.field._faces import CHAT, FACES
from tests.field.conftest import Field, playing


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    """Each case counts from zero."""
    RAN.clear()


BUDGET = Budget(total_tokens=4_000, tool_calls=1)


CHANGES: list[tuple[dict[str, Any], list[Tool[..., Any]]]] = [
    ({"prompt": "Other."}, []),
    ({"model": "m-2"}, []),
    ({"temperature": 0}, []),
    ({}, [charging("at_most_once")]),
    ({"tools": []}, [charging("at_most_once")]),
]


def test_case_40_the_same_key_for_another_request(each: Field) -> None:
    """Another request under a key is refused by digest, with nothing sent and nothing taken."""
    provider = SimulatedProvider([text("first")])
    llm = each.face.over(provider)

    @each.runtime.activity(version="v1", budget="acme")
    def work() -> None:
        llm.run_with_tools(each.face.asking(), [], budget=BUDGET, replay_key="k")
        used = each.account.used
        for changed, tools in CHANGES:
            with pytest.raises(ReplayMismatch) as mismatch:
                llm.run_with_tools(each.face.asking(**changed), tools, budget=BUDGET, replay_key="k")
            assert mismatch.value.component == "request"
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
    killed(case, lambda: die_at("before:Launch"), [charging("idempotent")])
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


SECRETS = {name: f"secret-{name}-7d1" for name in ("prompt", "argument", "result", "reply", "thought")}


def test_case_e8_no_raw_value_is_in_the_ledger_or_in_what_is_said(
    sqlite_url: str, clock: ManualClock, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A digest is not secrecy, and the rest is not there: no file, log line, repr or sentence has a text."""

    @tool(version="v1", effect="at_most_once")
    def ask(word: str) -> str:
        """Ask."""
        return SECRETS["result"]

    wanted = call("ask", {"word": SECRETS["argument"]})
    bad = call("ask", {SECRETS["argument"]: 1})
    caplog.set_level(0)
    told: list[str] = []
    with playing(clock, url=sqlite_url, keys=KeyRing.generate()) as field:
        for face in FACES:
            field.face = face
            thought = None if face is CHAT else SECRETS["thought"]
            ended: list[ScriptEntry] = [text(SECRETS["reply"]), status(400, message=SECRETS["reply"])]
            for number, last in enumerate(ended):
                played = field.play(
                    [calls(wanted, bad, thought=thought), last],
                    [ask],
                    request=face.asking(SECRETS["prompt"]),
                    run=f"{face}-{number}",
                    stream=stream,
                )
                told += [repr(played.error), str(played.error), repr(played.result)]
            told.append(repr(field.invocations) + repr(field.effects))
    files = Path(sqlite_url.removeprefix("sqlite:///")).parent.glob("memoflow.db*")
    stored = b"".join(file.read_bytes() for file in files)
    ours = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("memoflow"))
    for secret in SECRETS.values():
        assert secret.encode() not in stored
        assert secret not in "\n".join([*told, ours])
