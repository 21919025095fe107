"""Causes: what is done descends from the record it is done for, also across activities and processes."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from memoflow import InvalidRequest, tool
from memoflow.ledger import schema as s
from memoflow.testing import call, text
from tests.turn import _worlds
from tests.turn._activities import make, start
from tests.turn._asks import BUDGET, loop, run
from tests.turn._worlds import MakeWorld, World

ledger, make_world, mode, world = _worlds.ledger, _worlds.make_world, _worlds.mode, _worlds.world


def causes(w: World, table: Any) -> list[str | None]:
    """What the rows of a table descend from, oldest first."""
    query = select(table.c.cause).where(table.c.namespace == w.rt.namespace).order_by(table.c.id)
    return list(w.read(lambda c: c.execute(query).scalars().all()))


def test_an_activity_is_the_cause_of_what_is_done_in_it(world: MakeWorld) -> None:
    """Its calls name no other cause, and one that nothing started descends from nothing."""
    w = world(text("hi"))
    seen: list[tuple[str, str]] = []
    w.ask(run(), complete=True)
    start(w, make(w, lambda: seen.append((w.rt.current().cause, w.rt.current().record.fence.activity_id))))
    assert seen[0][0] == seen[0][1]
    assert causes(w, s.activities) == [None, None]
    assert causes(w, s.invocations) == [None]


def test_what_a_tool_starts_descends_from_its_effect(world: MakeWorld) -> None:
    """An activity that a tool runs is the work of that very call."""
    w = world(call("delegate", {}), text("done"))
    seen: list[str] = []
    inner = w.rt.activity(version="v1", name="inner")(lambda: "inner")

    @tool(version="v1", effect="read_only")
    def delegate() -> str:
        """Hand work on."""
        seen.append(w.rt.current().cause)
        return str(inner.run(activity_id="inner"))

    w.ask(loop(delegate), complete=True).result  # noqa: B018 - raises what was raised
    (effect,) = w.effects()
    assert seen == [effect.id]
    assert causes(w, s.activities) == [None, effect.id]


def test_a_cause_is_taken_from_another_record(world: MakeWorld) -> None:
    """A call that follows from another record says so; an activity started then descends from it too."""
    w = world(text("hi"))
    inner = w.rt.activity(version="v1", name="inner")(lambda: w.rt.current().cause)

    def follow(llm: Any) -> Any:
        w.rt.current().cause = "ticket 42"
        seen.append(w.rt.current().cause)
        inner.run(activity_id="inner")
        return llm.run(w.api.spoken({"model": "gpt-test", "input": "Hello"}), budget=BUDGET, replay_key="k")

    seen: list[str] = []
    w.within(follow)
    assert seen == ["ticket 42"]
    assert causes(w, s.activities) == [None, "ticket 42"]
    assert causes(w, s.invocations) == ["ticket 42"]


def test_a_run_takes_its_cause_from_elsewhere(world: MakeWorld) -> None:
    """What another process gave away is the cause of the run's activities, and of nothing after it."""
    w = world()
    with w.rt.run(workflow_id="w", run_id="r", cause="given"):
        start(w, make(w, lambda: None))
    start(w, make(w, lambda: None), activity_id="after")
    assert causes(w, s.activities) == ["given", None]


def test_an_activity_keeps_the_cause_it_began_with(world: MakeWorld) -> None:
    """A retry from elsewhere is the same work, whoever asks for it."""
    w = world()
    fails = [ValueError("once")]

    def body() -> None:
        if fails:
            raise fails.pop()

    activity = make(w, body)
    with w.rt.run(workflow_id="w", run_id="r", cause="first"), pytest.raises(ValueError, match="once"):
        start(w, activity)
    with w.rt.run(workflow_id="w", run_id="r", cause="second"):
        start(w, activity)
    assert causes(w, s.activities) == ["first"]


@pytest.mark.parametrize("bad", ["", "a\0b", "x" * 257, 7])
def test_a_cause_is_an_id(world: MakeWorld, bad: Any) -> None:
    """What cannot be one is refused before anything is recorded."""
    w = world()
    with pytest.raises(InvalidRequest, match="cause must"):
        w.rt.run(workflow_id="w", cause=bad)

    def body() -> None:
        w.rt.current().cause = bad

    with pytest.raises(InvalidRequest, match="cause must"):
        start(w, make(w, body))
