"""Opening a ledger, runs with budgets of their own, and what a runtime keeps apart."""

from __future__ import annotations

import asyncio
import logging
import stat
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from memoflow import (
    Budget,
    BudgetDenied,
    BudgetNotConfigured,
    ConfigurationError,
    Digester,
    InvalidRequest,
    KeyRing,
    LedgerUnavailable,
    NoActivityContext,
    Runtime,
    SchemaOutdated,
)
from memoflow.context import current_run
from memoflow.errors import InvalidBudget
from memoflow.keyring import KeyNotFound
from memoflow.ledger import schema as s
from memoflow.openai import OpenAIResponses
from memoflow.testing import SimulatedProvider, text, usage
from tests.turn import _worlds
from tests.turn._activities import make, start
from tests.turn._asks import BUDGET, REQUEST, run
from tests.turn._worlds import KEYS, MakeWorld

ledger, make_world, mode, world = _worlds.ledger, _worlds.make_world, _worlds.mode, _worlds.world

# Opening


def answer_of(rt: Runtime, provider: SimulatedProvider, run_id: str = "r") -> str:
    """The text of one call in an activity that does not complete."""
    rt.budgets.put("acme", Budget(total_tokens=100_000))
    said: list[str] = []

    @rt.activity(version="v1", budget="acme", name="answer")
    def answer() -> None:
        with provider.client() as client:
            result = OpenAIResponses(client).run(REQUEST, budget=BUDGET, replay_key="k")
        said.append(result.response.output_text)
        raise LookupError

    with pytest.raises(LookupError):
        answer.run(workflow_id="w", run_id=run_id)
    return said[0]


def test_a_new_sqlite_file_is_created_with_its_key(
    empty_sqlite_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The schema, a key file that only its owner may read, and a warning that names it."""
    provider = SimulatedProvider([text("Hello.")])
    with caplog.at_level(logging.WARNING, "memoflow"), Runtime.open(empty_sqlite_url) as rt:
        assert answer_of(rt, provider) == "Hello."
    key = tmp_path / "memoflow.db.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert "memoflow.db.key" in caplog.text
    assert key.read_text().strip() not in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, "memoflow"), Runtime.open(empty_sqlite_url) as rt:
        assert answer_of(rt, provider) == "Hello."
    assert caplog.text == ""
    assert provider.performed == 1


def test_a_key_file_that_is_lost_is_not_replaced(empty_sqlite_url: str, tmp_path: Path) -> None:
    """Nothing sealed with a new key could be read with the old one, nor the other way round."""
    Runtime.open(empty_sqlite_url).close()
    key = tmp_path / "memoflow.db.key"
    key.unlink()
    with Runtime.open(empty_sqlite_url) as rt:
        assert answer_of(rt, SimulatedProvider([text("Hello.")])) == "Hello."
    held = key.read_text()
    key.rename(tmp_path / "backup")
    with pytest.raises(KeyNotFound, match=r"key file '.*memoflow.db.key' does not exist") as lost:
        Runtime.open(empty_sqlite_url)
    assert (lost.value.key_id, isinstance(lost.value, ConfigurationError)) == (held.partition(":")[0], True)
    assert not key.exists()
    with Runtime.open(empty_sqlite_url, keys=KeyRing.generate()):
        pass
    (tmp_path / "backup").rename(key)
    with Runtime.open(empty_sqlite_url) as rt:
        assert answer_of(rt, SimulatedProvider()) == "Hello."


def test_what_is_not_given_comes_from_the_environment(
    empty_sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Database, namespace and keys; arguments go first."""
    monkeypatch.setenv("MEMOFLOW_DATABASE_URL", empty_sqlite_url)
    monkeypatch.setenv("MEMOFLOW_NAMESPACE", "tenant")
    monkeypatch.setenv("MEMOFLOW_OUTPUT_KEYS", "k1:" + "MTEx" * 10 + "MTE=")
    with Runtime.open() as rt:
        assert rt.namespace == "tenant"
    with Runtime.open(namespace="other") as rt:
        assert rt.namespace == "other"
    assert not (tmp_path / "memoflow.db.key").exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"keys": "k1:AAAA"}, "a KeyRing as keys, not str. KeyRing.parse"),
        ({"keys": {}}, "a KeyRing as keys, not dict"),
        ({"prices": {"m": 1}}, "a PriceBook as prices, not dict"),
        ({"digester": b"key"}, "a Digester as digester, not bytes"),
    ],
)
def test_what_cannot_seal_or_price_is_refused_before_anything_is_paid(
    sqlite_url: str, given: dict[str, Any], says: str
) -> None:
    """It would show only when a reply has come."""
    with pytest.raises(ConfigurationError, match=says):
        Runtime.open(sqlite_url, **given)


def test_an_activity_s_budget_is_a_path(sqlite_url: str) -> None:
    """What cannot name an account is refused where it is written."""
    with Runtime.open(sqlite_url, keys=KeyRing.generate()) as runtime, pytest.raises(InvalidBudget):
        runtime.activity(version="v1", budget="acme/\0")


def test_without_a_database_there_is_nothing_to_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error names both ways to say which."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match="MEMOFLOW_DATABASE_URL"):
        Runtime.open()


@pytest.mark.postgres
def test_another_database_needs_a_key(postgres_url: str) -> None:
    """Nobody makes one up for it."""
    with pytest.raises(ConfigurationError, match="MEMOFLOW_OUTPUT_KEYS"):
        Runtime.open(postgres_url)
    Runtime.open(postgres_url, keys=KEYS).close()


@pytest.mark.postgres
def test_another_database_is_never_changed(empty_postgres_url: str) -> None:
    """Without a schema it is the operator's, who is told the command."""
    for _ in range(2):
        with pytest.raises(SchemaOutdated, match="memoflow db upgrade"):
            Runtime.open(empty_postgres_url, keys=KEYS)


def test_a_database_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    """A sentence, not a driver's error."""
    with pytest.raises((LedgerUnavailable, ConfigurationError)):
        Runtime.open(f"sqlite:///{tmp_path}/no/such/directory/m.db", keys=KEYS)


@pytest.mark.parametrize("url", ["mysql://x/y", "nonsense", "sqlite://"])
def test_other_urls_are_refused(url: str) -> None:
    """What cannot be a ledger is told at once."""
    with pytest.raises(ConfigurationError):
        Runtime.open(url, keys=KEYS)


def test_a_closed_runtime_records_nothing(empty_sqlite_url: str) -> None:
    """Closing twice is harmless; what comes afterwards is told what to do."""
    rt = Runtime.open(empty_sqlite_url, keys=KEYS)
    activity = rt.activity(version="v1", name="a")(lambda: 1)
    assert activity.run() == 1
    rt.close()
    rt.close()
    with pytest.raises(ConfigurationError, match="closed"):
        activity.run()


def test_digests_can_be_keyed(empty_sqlite_url: str) -> None:
    """Then no digest in the ledger is a plain one, which could be guessed."""
    provider = SimulatedProvider([text("Hello.")])
    with Runtime.open(empty_sqlite_url, keys=KEYS, digester=Digester(b"d" * 32, "d1")) as rt:
        answer_of(rt, provider)
        row = rt.ledger.database.read(lambda c: c.execute(select(s.invocations)).one())
        activity = rt.ledger.database.read(lambda c: c.execute(select(s.activities)).one())
    for digest in (row.request_digest, row.response_digest, activity.input_digest):
        assert digest.startswith("hmac-sha256:d1:")


def test_namespaces_share_nothing(sqlite_url: str) -> None:
    """The same identity in another namespace is other work on other accounts."""
    provider = SimulatedProvider([text("a", usage=usage(10, 5)), text("b")])
    with (
        Runtime.open(sqlite_url, keys=KEYS, namespace="a") as a,
        Runtime.open(sqlite_url, keys=KEYS, namespace="b") as b,
    ):
        assert (answer_of(a, provider), answer_of(b, provider)) == ("a", "b")
        assert (answer_of(a, provider), answer_of(b, provider)) == ("a", "b")
        assert a.budgets.show("acme").settled.total_tokens == 15
        with pytest.raises(BudgetNotConfigured):
            a.budgets.show("other")
    assert provider.performed == 2


# Runs


def test_a_run_names_its_activities(world: MakeWorld) -> None:
    """With the ids given, or a new one; and only inside."""
    w = world()
    seen: list[Any] = []
    activity = make(w, lambda: seen.append(w.rt.current().identity))
    inside = {"workflow_id": None, "run_id": None}
    with w.rt.run(workflow_id="ticket", run_id="7"):
        start(w, activity, **inside)
    with w.rt.run(workflow_id="ticket") as scope:
        start(w, activity, **inside)
    start(w, activity, **inside)
    assert [(i.workflow_id, i.run_id) for i in seen[:2]] == [("ticket", "7"), ("ticket", scope.run_id)]
    assert seen[2].workflow_id == "a"
    assert len({i.run_id for i in seen}) == 3


def test_a_run_with_a_budget_is_an_account(world: MakeWorld) -> None:
    """Under the one it stands under; entering again changes nothing; other amounts are another policy."""
    w = world()
    for amount in (500, 500, 700):
        with w.rt.run(
            workflow_id="a/b c", run_id="ü:1", budget=Budget(total_tokens=amount), under="acme"
        ) as it:
            pass
    assert it.account == "acme/run:a%2Fb%20c:%C3%BC%3A1"
    found = w.rt.budgets.show(it.account)
    assert (found.hard.total_tokens, found.policy_version) == (700, 2)
    assert w.rt.budgets.history(it.account)[0].actor == "runtime"


def test_what_somebody_else_sets_on_a_run_s_account_stays(world: MakeWorld) -> None:
    """An operator raises it, a retry enters again with the old figures or others: the operator's stand."""
    w = world()
    entered = {"workflow_id": "w", "run_id": "1", "under": "acme"}
    with w.rt.run(budget=Budget(total_tokens=50), **entered) as it:
        pass
    w.rt.budgets.put(it.account, Budget(total_tokens=900), actor="ann", reason="let it finish")
    for amount in (50, 70):
        with w.rt.run(budget=Budget(total_tokens=amount), **entered):
            pass
    history = w.rt.budgets.history(it.account)
    assert [(one.actor, one.hard.total_tokens) for one in history] == [("runtime", 50), ("ann", 900)]


def test_a_run_with_long_ids_has_an_account_too(world: MakeWorld) -> None:
    """By a digest of them."""
    w, long = world(), "x" * 250
    with w.rt.run(workflow_id=long, run_id=long, budget=Budget(total_tokens=5), under="acme") as scope:
        assert scope.account is not None
        assert len(scope.account) < 100
    with w.rt.run(workflow_id=long, run_id=long[:-1], budget=Budget(), under="acme") as other:
        assert other.account != scope.account


def test_a_run_stands_under_an_account(world: MakeWorld) -> None:
    """A budget that is part of nothing is refused, and so is one under what does not exist."""
    w = world()
    with pytest.raises(ConfigurationError, match="under="):
        w.rt.run(workflow_id="w", budget=Budget(total_tokens=5))
    with pytest.raises(BudgetNotConfigured), w.rt.run(workflow_id="w", budget=Budget(), under="nowhere"):
        raise AssertionError("not entered")


def test_runs_within_runs_are_charged_to_both(world: MakeWorld) -> None:
    """What a sub-run uses is used of the run it is in."""
    w = world(text("a", usage=usage(300, 100)))
    w.rt.budgets.put("lab", Budget(total_tokens=5_000))
    outer = w.rt.run(workflow_id="outer", run_id="1", budget=Budget(total_tokens=1_000), under="acme")
    inner = w.rt.run(workflow_id="inner", run_id="1", budget=Budget(total_tokens=900), under="lab")
    ask = run(budget=Budget(total_tokens=800))
    with outer:
        assert w.ask(ask, within=inner).error is None
        error = w.ask(ask, within=inner, activity="again").raised(BudgetDenied)
    assert error.account in (outer.account, inner.account)
    for account in (outer.account, inner.account):
        assert w.balance(account)[0].total_tokens == 400
    assert set(w.invocation.accounts) == {outer.account, inner.account, "acme/support"}


@pytest.mark.parametrize(
    "ids", [{"workflow_id": ""}, {"workflow_id": "w", "run_id": "a\0b"}, {"workflow_id": "x" * 257}]
)
def test_ids_of_a_run_have_to_be_names(make_world: MakeWorld, ids: dict[str, str]) -> None:
    """They are stored as they are."""
    with pytest.raises(InvalidRequest):
        make_world("sync").rt.run(**ids)


def test_remaining_budget_is_the_least_of_all_accounts(world: MakeWorld) -> None:
    """What is settled, held or unknown is not remaining; unlimited dimensions are None."""
    w = world(text("a", usage=usage(300, 100)), limits=Budget(total_tokens=1_000, model_calls=9))
    w.rt.budgets.put("acme/support", Budget(total_tokens=5_000, output_tokens=700))
    assert w.ask(run(budget=Budget(total_tokens=800))).error is None
    seen: list[Budget] = []
    start(w, make(w, lambda: seen.append(w.rt.current().remaining_budget())))
    assert seen == [Budget(total_tokens=600, output_tokens=600, model_calls=8)]


# Threads and tasks


def test_activities_of_many_threads_are_kept_apart(make_world: MakeWorld) -> None:
    """Each thread has its own current attempt; a plain new thread has none."""
    w = make_world("sync")
    meet, seen, lost = threading.Barrier(4), [], []

    def body(n: int) -> None:
        meet.wait(10)
        seen.append((n, w.rt.current().identity.run_id))
        if n == 0:
            thread = threading.Thread(target=outside)
            thread.start()
            thread.join()

    def outside() -> None:
        with pytest.raises(NoActivityContext):
            w.rt.current()
        lost.append(1)

    activity = make(w, body)
    threads = [
        threading.Thread(target=activity.run, args=(n,), kwargs={"workflow_id": "w", "run_id": str(n)})
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [(n, str(n)) for n in range(4)]
    assert lost == [1]


def test_activities_of_many_tasks_are_kept_apart(make_world: MakeWorld) -> None:
    """Each task has its own current attempt, and the runtime serves several event loops."""
    w = make_world("async")

    @w.rt.activity(version="v1", name="a")
    async def body(n: int) -> str:
        await asyncio.sleep(0)
        return w.rt.current().identity.run_id

    async def main(start: int) -> list[str]:
        return await asyncio.gather(
            *[body.run(n, workflow_id="w", run_id=str(n)) for n in range(start, start + 5)]
        )

    assert asyncio.run(main(0)) + asyncio.run(main(5)) == [str(n) for n in range(10)]


def test_key_rings_and_prices_are_given_by_the_program(sqlite_url: str) -> None:
    """A runtime opened with them uses them."""
    keys = KeyRing([("mine", b"m" * 32)])
    provider = SimulatedProvider([text("Hello.")])
    with Runtime.open(sqlite_url, keys=keys) as rt:
        answer_of(rt, provider)
        kept = rt.ledger.database.read(lambda c: c.scalars(select(s.outputs.c.key_id)).all())
    assert set(kept) == {"mine"}


def test_a_run_is_entered_once_at_a_time(world: MakeWorld) -> None:
    """Entered within itself, its first end would leave the other's identity behind for what comes after."""
    w = world()
    scope = w.rt.run(workflow_id="w", run_id="r")
    with scope, pytest.raises(ConfigurationError, match="'r' is entered already"), scope:
        pass
    with scope:
        assert scope.run_id == "r"
    assert current_run() is None


@pytest.mark.parametrize("window", [timedelta(0), timedelta(days=-1), timedelta.max, 7])
def test_an_approval_is_waited_for_some_time_and_not_for_ever(sqlite_url: str, window: Any) -> None:
    """A window that is none, or that no calendar holds, is refused before anything can be paid under it."""
    with pytest.raises(ConfigurationError, match="approval_window"):
        Runtime.open(sqlite_url, keys=KeyRing.generate(), approval_window=window)
