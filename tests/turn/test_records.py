"""What is on record stays what it is, whatever comes after it or has changed meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from memoflow import ReplayMismatch, Tool, ToolVersionMismatch, tool
from memoflow.testing import call, calls, items, status, text
from tests.turn._asks import loop
from tests.turn._tools import Bench
from tests.turn._worlds import MakeWorld


def nested(levels: int) -> Any:
    """Lists in lists."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("levels", [100, 140])
def test_a_reply_too_deep_to_be_sent_back_is_not_read(world: MakeWorld, levels: int) -> None:
    """Nothing of it runs: its continuation would have no digest, when the tool had long run."""
    bench = Bench()
    odd = {"type": "brand_new_call", "id": "x", "deep": nested(levels)}
    w = world(items([odd, call("note", {"n": 1})]), text("done"))
    got = w.ask(loop(bench.make("note")))
    if levels < 128:
        assert got.result.response.output_text == "done"
    else:
        assert (w.invocation.state, w.invocation.reason, bench.ran) == ("OUTCOME_UNKNOWN", "NOT_JSON", [])


class Amount(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def within_limit(cls, value: int) -> int:
        """A limit that is configuration, not code, so that no version tells of its change."""
        if value > LIMIT["n"]:
            raise ValueError("too much")
        return value


LIMIT = {"n": 100}


def test_a_call_that_ran_is_never_told_to_have_been_refused(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its arguments would be refused now, but it has happened: the model is not told otherwise."""
    ran: list[int] = []

    @tool(version="v1", effect="at_most_once", parameters=Amount)
    def pay(amount: Amount) -> str:
        """Pay."""
        ran.append(amount.n)
        return "paid"

    w = world(calls(call("pay", {"n": 50})), status(500), text("done"))
    assert w.ask(loop(pay)).error is not None
    monkeypatch.setitem(LIMIT, "n", 10)
    assert w.ask(loop(pay)).raised(ReplayMismatch).component == "arguments"
    monkeypatch.setitem(LIMIT, "n", 100)
    assert w.ask(loop(pay)).result.tool_results[0].output == "paid"
    assert (ran, w.sent) == ([50], 3)


def test_a_new_version_with_another_schema_is_a_version_mismatch(world: MakeWorld) -> None:
    """The request that offers the new schema differs too; what has to be said is which tool is needed."""

    @tool(version="v2", effect="at_most_once")
    def pay(n: int, currency: str) -> str:
        """Pay in a currency."""
        raise AssertionError("never run")

    first: Tool[..., Any] = Bench().failing("pay", OSError("gone"))
    w = world(calls(call("pay", {"n": 1})), text("never"))
    w.ask(loop(first)).raised(OSError)
    error = w.ask(loop(pay)).raised(ToolVersionMismatch)
    assert (error.tool, error.recorded, error.registered, w.sent) == ("pay", "v1", "v2", 1)
