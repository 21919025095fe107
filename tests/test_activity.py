"""Activities: claimed once, recorded, and restored as what they were."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel
from sqlalchemy import select

from memoflow import (
    ActivityBusy,
    ActivityMismatch,
    Budget,
    ConfigurationError,
    Digester,
    InvalidRequest,
    NoActivityContext,
    ResultNotEncodable,
    ResultNotRetained,
)
from memoflow.errors import DigestKeyMismatch
from memoflow.ledger import schema as s
from memoflow.ledger.activities import ClaimActivity
from memoflow.ledger.outputs import purge_expired
from memoflow.testing import text
from tests.turn import _worlds
from tests.turn._activities import Counting, attempts, make, start
from tests.turn._asks import BUDGET
from tests.turn._worlds import MakeWorld

ledger, make_world, mode, world = _worlds.ledger, _worlds.make_world, _worlds.mode, _worlds.world

# Claims


def test_a_completed_activity_returns_what_it_returned(world: MakeWorld) -> None:
    """The function is not called again, by this process or another one."""
    w, body = world(), Counting()
    activity = make(w, lambda: body())
    assert (start(w, activity), start(w, activity), body.calls) == (1, 1, 1)
    other = w.again()
    assert start(other, make(other, lambda: body())) == 1
    assert attempts(w) == [(1, "COMPLETED", None)]


def test_an_activity_that_failed_is_free_for_the_next_attempt(world: MakeWorld) -> None:
    """Its exception leaves as it is; its type is on record and its text is not."""
    w, error = world(), ValueError("the secret text")
    body = Counting(error)
    activity = make(w, lambda: body())
    with pytest.raises(ValueError, match="secret") as raised:
        start(w, activity)
    assert raised.value is error
    assert start(w, activity) == 2
    assert attempts(w) == [(1, "FAILED", "ValueError"), (2, "COMPLETED", None)]


def test_a_running_activity_is_busy(world: MakeWorld) -> None:
    """Whoever comes meanwhile is told which attempt runs and until when its lease lasts."""
    w = world()
    seen: list[ActivityBusy] = []

    def body() -> str:
        me = w.rt.current()
        query = select(s.activities.c.input_digest).where(s.activities.c.id == me.record.fence.activity_id)
        digest = w.read(lambda c: c.execute(query).scalar_one())
        with pytest.raises(ActivityBusy) as busy:
            w.rt.commit(ClaimActivity(me.identity, digest, 1_000_000, "somebody else"))
        seen.append(busy.value)
        return "done"

    assert start(w, make(w, body)) == "done"
    assert (seen[0].attempt, seen[0].activity) == (1, f"{w.rt.namespace}/w/r/a")
    ends = seen[0].lease_expires_at
    assert ends.tzinfo is not None
    assert ends > datetime.now(UTC)


@pytest.mark.parametrize(
    ("change", "component"), [("input", "input"), ("version", "version"), ("type", "type")]
)
@pytest.mark.parametrize("completed", [True, False])
def test_other_work_under_an_identity_is_refused(
    world: MakeWorld, change: str, component: str, completed: bool
) -> None:
    """Another input, version or type is a mismatch, and the function is not called."""
    w = world()
    called: list[int] = []

    def body(n: int) -> int:
        called.append(n)
        if not completed and len(called) == 1:
            raise LookupError
        return n

    first = make(w, body)
    try:
        start(w, first, 1, activity_id="x")
    except LookupError:
        assert not completed
    options = {"version": {"version": "v2"}, "type": {"name": "b"}}.get(change, {})
    with pytest.raises(ActivityMismatch) as mismatch:
        start(w, make(w, body, **options), 2 if change == "input" else 1, activity_id="x")
    assert mismatch.value.component == component
    assert mismatch.value.recorded != mismatch.value.given
    assert called == [1]
    assert start(w, first, 1, activity_id="x") == 1


KEYED = [Digester(), Digester(b"k" * 32, "d1"), Digester(b"k" * 32, "d2")]


@pytest.mark.parametrize("then", KEYED, ids=repr)
@pytest.mark.parametrize("now", KEYED, ids=repr)
def test_another_digest_key_is_told_as_such(world: MakeWorld, then: Digester, now: Digester) -> None:
    """Turned on, off or changed over a record: not that the input is another, which nobody can tell."""
    w = world(digester=then)
    assert start(w, make(w, lambda: 1), activity_id="x") == 1
    w = w.again(digester=now)
    activity = make(w, lambda: 1)
    if then is now:
        assert start(w, activity, activity_id="x") == 1
        return
    with pytest.raises(DigestKeyMismatch, match="MEMOFLOW_DIGEST_KEY") as mismatch:
        start(w, activity, activity_id="x")
    assert (mismatch.value.recorded, mismatch.value.given) == (then.key_id, now.key_id)
    assert start(w, activity, activity_id="new") == 1


def test_another_digest_key_under_the_same_id_is_suspected(world: MakeWorld) -> None:
    """It cannot be told from another input, so the refusal mentions it."""
    w = world(digester=Digester(b"k" * 32, "d1"))
    start(w, make(w, lambda: 1), activity_id="x")
    w = w.again(digester=Digester(b"l" * 32, "d1"))
    with pytest.raises(ActivityMismatch, match="MEMOFLOW_DIGEST_KEY another key of the same id"):
        start(w, make(w, lambda: 1), activity_id="x")


def test_inputs_are_the_same_however_they_are_passed(world: MakeWorld) -> None:
    """By position, by name or by default, and as a model or the data it is written as."""
    w, called = world(), []

    def body(n: int, text: str = "x") -> int:
        called.append(n)
        return n

    activity = make(w, body)
    assert start(w, activity, 1) == start(w, activity, n=1) == start(w, activity, 1, text="x") == 1
    assert called == [1]


@pytest.mark.parametrize("given", [object(), float("nan"), b"x", "\ud83d", {1: 2}])
def test_an_input_that_cannot_be_recorded_does_not_start(world: MakeWorld, given: Any) -> None:
    """The activity would never be found again by it."""
    w, called = world(), []
    with pytest.raises(InvalidRequest, match="The input of activity 'a'"):
        start(w, make(w, lambda given: called.append(given)), given)
    assert (called, attempts(w)) == ([], [])


def test_what_does_not_fit_the_function_is_pythons_own_error(world: MakeWorld) -> None:
    """Like a plain call; nothing is claimed."""
    w = world()
    with pytest.raises(TypeError):
        start(w, make(w, lambda n: n), 1, 2)
    assert attempts(w) == []


# Outputs


class Colour(Enum):
    RED = "red"


class Model(BaseModel):
    at: datetime
    price: Decimal
    parts: list[tuple[int, str]] = []


@dataclass(frozen=True)
class Record:
    id: UUID
    day: date
    colour: Colour
    inner: Model | None = None


MODEL = Model(at=datetime(2026, 3, 1, 13, tzinfo=UTC), price=Decimal("1.10"), parts=[(1, "a")])
OUTPUTS: list[tuple[Any, Any]] = [
    (Model, MODEL),
    (Record, Record(UUID(int=5), date(2026, 2, 28), Colour.RED, MODEL)),
    (list[Model], [MODEL, MODEL]),
    (dict[str, Decimal], {"a": Decimal("0.1")}),
    (tuple[int, ...], (1, 2)),
    (set[int], {1, 2}),
    (Colour, Colour.RED),
    (datetime, MODEL.at),
    (str, "text \u2713"),
    (bytes, b"plain"),
    (int | None, None),
    (None, None),
    (Any, {"a": [1, 0.5, None]}),
]


@pytest.mark.parametrize(("annotation", "value"), OUTPUTS)
def test_outputs_are_restored_by_their_annotation(world: MakeWorld, annotation: Any, value: Any) -> None:
    """An equal value of the same type."""
    w = world()

    def body() -> Any:
        return value

    body.__annotations__["return"] = annotation
    activity = make(w, body)
    assert start(w, activity) is value
    restored = start(w, activity)
    assert restored == value
    assert type(restored) is type(value)


@pytest.mark.parametrize(
    ("annotation", "value"), [(int, "x"), (Model, {"at": 1}), (Any, {1, 2}), (Any, object())]
)
def test_an_output_that_cannot_be_recorded_does_not_complete(
    world: MakeWorld, annotation: Any, value: Any
) -> None:
    """The attempt fails; the activity can be run again, and its calls are restored then."""
    w, values = world(text("Hello.")), [value]

    def body() -> Any:
        return values[0]

    body.__annotations__["return"] = annotation
    with pytest.raises(ResultNotEncodable):
        start(w, make(w, body))
    assert attempts(w) == [(1, "FAILED", "ResultNotEncodable")]
    values[0] = MODEL if annotation is Model else 5
    assert start(w, make(w, body)) == values[0]


def test_a_purged_output_is_reported_and_not_made_again(world: MakeWorld) -> None:
    """A completed activity is never run again because its output is gone."""
    w, body = world(), Counting()
    start(w, make(w, lambda: body()))
    with w.rt.ledger.database.write() as connection:
        purge_expired(connection, w.rt.namespace, 10**18)
    with pytest.raises(ResultNotRetained):
        start(w, make(w, lambda: body()))
    assert body.calls == 1


# Identity


def test_without_a_run_id_every_run_is_new(world: MakeWorld) -> None:
    """Nothing is found again; the workflow is named after the activity."""
    w, body = world(), Counting()
    activity = make(w, lambda: body())
    new = {"workflow_id": None, "run_id": None}
    assert [start(w, activity, **new), start(w, activity, **new)] == [1, 2]
    rows = w.read(
        lambda c: c.execute(select(s.activities).where(s.activities.c.namespace == w.rt.namespace)).all()
    )
    assert {row.workflow_id for row in rows} == {"a"}
    assert len({row.run_id for row in rows}) == 2


def test_an_activity_can_run_twice_in_a_run_under_ids_of_its_own(world: MakeWorld) -> None:
    """`activity_id` tells them apart."""
    w, body = world(), Counting()
    activity = make(w, lambda: body())
    ids = ["one", "two", "one"]
    assert [start(w, activity, activity_id=id) for id in ids] == [1, 2, 1]


def test_the_current_attempt_is_known_inside_and_nowhere_else(world: MakeWorld) -> None:
    """Identity, number, accounts and what may still be spent."""
    w = world(limits=Budget(total_tokens=900, model_calls=3))
    seen: list[Any] = []

    def body() -> None:
        me = w.rt.current()
        me.heartbeat()
        seen.append((str(me.identity), me.attempt, me.accounts, me.remaining_budget()))

    start(w, make(w, body))
    assert seen == [
        (f"{w.rt.namespace}/w/r/a", 1, ("acme/support",), Budget(total_tokens=900, model_calls=3))
    ]
    with pytest.raises(NoActivityContext, match=r"rt\.current\(\)"):
        w.rt.current()


def test_nested_activities_belong_to_the_same_run(world: MakeWorld) -> None:
    """An activity that starts another one gives it its run and its accounts; each has its own records."""
    w = world(text("inner"), text("outer"))
    w.rt.budgets.put("research", Budget(total_tokens=100_000))

    def inner(llm: Any) -> Any:
        return llm.run({"model": "gpt-test", "input": "x"}, budget=BUDGET, replay_key="k")

    def blocking(llm: Any) -> None:
        w.rt.activity(version="v1", name="inner", budget="research")(lambda: _text(inner(llm))).run()
        inner(llm)

    async def together(llm: Any) -> None:
        @w.rt.activity(version="v1", name="inner", budget="research")
        async def made() -> str:
            return _text(await inner(llm))

        await made.run()
        await inner(llm)

    w.within(together if w.is_async else blocking)
    first, second = w.invocations()
    assert [(i.activity_id, i.workflow_id, i.run_id) for i in (first, second)] == [
        ("inner", "w", "r"),
        ("body", "w", "r"),
    ]
    assert (set(first.accounts), second.accounts) == ({"acme/support", "research"}, ("acme/support",))
    assert [i.replay_key for i in (first, second)] == ["k", "k"]


def _text(result: Any) -> str:
    said: str = result.response.output_text
    return said


def test_an_activity_of_another_run_is_not_nested(world: MakeWorld) -> None:
    """Ids that differ from the enclosing run's make a run of its own, with its own accounts only."""
    w = world()
    seen: list[Any] = []

    def look() -> None:
        seen.append((str(w.rt.current().identity), w.rt.current().accounts))

    other = w.rt.activity(version="v1", name="other", budget="acme")(look)
    start(w, make(w, lambda: other.run(run_id="elsewhere")))
    assert seen == [(f"{w.rt.namespace}/other/elsewhere/other", ("acme",))]


@pytest.mark.parametrize("name", ["workflow_id", "run_id", "activity_id"])
def test_parameters_that_name_the_run_are_refused(make_world: MakeWorld, name: str) -> None:
    """They would take the place of what `run` takes itself."""
    w = make_world("sync")
    function = eval(f"lambda {name}: 1")
    with pytest.raises(ConfigurationError, match=name):
        w.rt.activity(version="v1", name="a")(function)


def test_an_activitys_budget_is_an_account(make_world: MakeWorld) -> None:
    """A limit is none; the error says where limits go."""
    w = make_world("sync")
    with pytest.raises(ConfigurationError, match="path of an account"):
        w.rt.activity(version="v1", budget=Budget(total_tokens=1))  # type: ignore[arg-type]
