"""What is on record stays what it is, whatever comes after it or has changed meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from memoflow import LedgerUnavailable, OutcomeUnknown, ReplayMismatch, Tool, ToolVersionMismatch, tool
from memoflow.ledger.effects import FinishEffects
from memoflow.ledger.invocations import SettleInvocation
from memoflow.testing import (
    call,
    calls,
    failed,
    hold,
    items,
    message,
    status,
    stream_ends_early,
    text,
    web_search,
)
from tests.turn._asks import BUDGET, LOOP, REQUEST, loop, run, stream
from tests.turn._stopping import meanwhile, stopped, stopping
from tests.turn._tools import Bench
from tests.turn._worlds import MakeWorld, World


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


def lose(w: World, kind: type) -> None:
    """The ledger is away whenever an operation of this kind is to be written."""
    writer = w.rt.ledger.writer
    persist = writer._persist

    def away(operations: list[Any]) -> Any:
        if any(isinstance(operation, kind) for operation in operations):
            raise LedgerUnavailable("away")
        return persist(operations)

    writer._persist = away  # type: ignore[method-assign]


@pytest.mark.parametrize("kind", [SettleInvocation, FinishEffects])
def test_what_could_not_be_recorded_is_unknown_to_the_same_attempt_too(
    make_world: MakeWorld, kind: type
) -> None:
    """Calling again under the same key says which outcome is not known, not that the key is in use."""
    bench = Bench()
    w = make_world("sync", calls(call("f", {"n": 1})), text("never"))
    lose(w, kind)
    seen: list[str] = []

    def twice(llm: Any) -> None:
        for _ in range(2):
            given = {"budget": LOOP, "continuation_budgets": [BUDGET], "on_unknown": "block"}
            try:
                llm.run_with_tools(REQUEST, [bench.make("f")], replay_key="k", **given)
            except (OutcomeUnknown, LedgerUnavailable) as error:
                seen.append(getattr(error, "reason", "away"))
        raise EOFError

    with pytest.raises(EOFError):
        w.within(twice)
    assert seen == (["NOT_RECORDED"] * 2 if kind is SettleInvocation else ["away", "NOT_RECORDED"])
    assert (w.sent, len(bench.ran)) == (1, int(kind is FinishEffects))


def test_a_stop_leaves_as_what_it_is_where_it_cannot_be_recorded(world: MakeWorld) -> None:
    """An interrupt or a cancelled task is not swallowed because the ledger is away."""
    held = hold(text("late"))
    w = world(held)
    lose(w, SettleInvocation)
    with stopping(w) as stop, meanwhile(held.wait_entered, stop):
        stopped(w, w.ask(run()))
    held.release()


def test_what_the_provider_ran_is_recorded_also_when_it_then_failed(world: MakeWorld) -> None:
    """A search of a failed reply has happened all the same."""
    w = world(failed(output=[web_search("x"), message("cut")]))
    assert w.ask(run()).error is not None
    assert [(effect.tool_name, effect.state) for effect in w.effects()] == [
        ("web_search_call", "PROVIDER_SIDE")
    ]


def test_the_id_of_a_reply_is_kept_also_when_the_queue_is_full(make_world: MakeWorld) -> None:
    """It is what an interrupted reply can be asked for by, and the event loop does not wait for room."""
    w = make_world("async", stream_ends_early(text("Because.")))
    submit = w.rt.ledger.writer.submit

    def full(*operations: Any, wait: bool = True) -> Any:
        return submit(*operations) if wait else None

    w.rt.ledger.writer.submit = full  # type: ignore[method-assign]
    w.ask(stream()).raised(OutcomeUnknown)
    assert w.invocation.retrievable
