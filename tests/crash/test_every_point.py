"""A program that dies between any two things it does, and another that carries on (field case 36)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, get_args

import pytest

from memoflow import Budget, Runtime, faults
from memoflow.budget import Amounts
from memoflow.ledger.verify import verify
from memoflow.testing import CrashPoint, crash_points
from memoflow.turn.steps import Step
from tests.crash._oracle import expected
from tests.crash._play import RESERVED, finish, finish_async
from tests.crash._scenarios import AT_MOST_ONCE, EFFECTS, SCENARIOS, Scenario
from tests.crash._site import LEASE_S, Site
from tests.crash._world import TOKENS, World

Finish = Callable[[Runtime, World, str], str]
TELLING = ("commit:", "after:Dispatch", "after:Collect", "tool:")
"""Points before which something outside of the program may have changed. Between the others there is only
code, and one database tells as much about that as two."""
DRIVERS = {"sync": finish, "async": finish_async}


def cases() -> Iterator[Any]:
    """Every scenario on both databases, each with another driver, by turns: they are alike step by step."""
    for number, scenario in enumerate(SCENARIOS):
        names = list(DRIVERS) if number % 2 else list(reversed(DRIVERS))
        for database, name in zip(("sqlite", "postgresql"), names, strict=True):
            marks = [pytest.mark.postgres] if database == "postgresql" else []
            id = f"{scenario.name}-{name}-{database}"
            yield pytest.param(database, scenario, DRIVERS[name], id=id, marks=marks)


CASES = list(cases())


@pytest.fixture
def site(database_url: str) -> Iterator[Site]:
    """A fresh database."""
    site = Site(database_url)
    yield site
    site.close()


@contextmanager
def watched(world: World) -> Iterator[None]:
    """Tell the world which points are passed."""
    before = faults.install(world.note)
    try:
        yield
    finally:
        faults.install(before)


def record(site: Site, scenario: Scenario, finish: Finish) -> tuple[str, tuple[CrashPoint, ...]]:
    """Play a scenario without a death: its output, and the points it passes."""
    world, outputs = World(scenario, scenario.name), []

    def work() -> None:
        with site.open() as runtime:
            outputs.append(finish(runtime, world, "acme/alive"))

    with watched(world):
        points = crash_points(work)
    check_world(scenario, world, points, len(points))
    return outputs[0], points


def die(site: Site, scenario: Scenario, finish: Finish, point: CrashPoint) -> World:
    """Play it until a point, and nothing after it."""
    world = World(scenario, f"{point.index}", dies_at=point.index)
    with watched(world), point.crash(), site.open() as runtime:
        finish(runtime, world, account_of(point))
    world.next_life()
    return world


def account_of(point: CrashPoint) -> str:
    """The account of the run that dies there."""
    return f"acme/{point.index}"


def check_world(scenario: Scenario, world: World, points: tuple[CrashPoint, ...], at: int) -> None:
    """What was really asked and done is what that death may cost, not more."""
    wanted = expected(scenario, points, at)
    assert not world.provider.errors
    assert (world.requests, world.done.total()) == (wanted.requests, wanted.done)
    assert len(world.keys) == len(world.done) == len(scenario.calls)
    assert all(len(keys) == 1 for keys in world.keys.values()), "changed keys"
    for said, (key,) in world.keys.items():
        if said.startswith(AT_MOST_ONCE):
            assert world.done[key] == 1
            assert world.entered[key] <= 1 + world.denied[key], "run again without a decision"


def check_balance(scenario: Scenario, settled: Amounts, unknown: Amounts, wanted) -> None:
    """The account holds what is unknown, was charged for what is recorded, and not a token besides."""
    assert (settled.total_tokens, settled.model_calls) == (
        wanted.replies * TOKENS,
        wanted.replies + wanted.rejections,
    )
    assert (unknown.total_tokens, unknown.model_calls) == (wanted.unknown * RESERVED, wanted.unknown)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("database_url", "scenario", "finish"), CASES, indirect=["database_url"])
def test_a_death_at_any_point_costs_nothing_but_what_is_in_doubt(
    site: Site, scenario: Scenario, finish: Finish
) -> None:
    """Stopped at every point in turn, an activity is finished by the next worker: the right output, no reply
    that was recorded asked for again, no effect twice that may not be, every hold resolved or kept."""
    with site.open() as runtime:
        runtime.budgets.put("acme", Budget(total_tokens=10**9))
        runtime.budgets.put("acme/alive", Budget(total_tokens=10**6))
    output, points = record(site, scenario, finish)
    stops = points if site.is_sqlite else [point for point in points if point.name.startswith(TELLING)]
    with site.open() as runtime:
        for point in stops:
            runtime.budgets.put(account_of(point), Budget(total_tokens=10**6))
    worlds = [die(site, scenario, finish, point) for point in stops]
    site.clock.advance(LEASE_S + 1)
    with site.open() as runtime:
        assert runtime.ledger.database.read(verify) == []
        for point, world in zip(stops, worlds, strict=True):
            try:
                assert finish(runtime, world, account_of(point)) == output
                check_world(scenario, world, points, point.index)
            except BaseException as error:
                error.add_note(f"died at point {point.index}: {point}")
                raise
        balances = {account.path: account for account in runtime.budgets.list()}
        assert balances["acme"].held == Amounts()
        for point in stops:
            balance = balances[account_of(point)]
            check_balance(scenario, balance.settled, balance.unknown, expected(scenario, points, point.index))
        site.clock.advance(1)
        runtime.reconcile.write_off(timedelta(0))
        assert runtime.budgets.show("acme").unknown == Amounts()
        assert runtime.ledger.database.read(verify) == []


def test_no_step_of_the_protocol_is_left_out(sqlite_url: str) -> None:
    """The scenarios together pass points around every kind of step there is, and around commits and tools."""
    site, passed = Site(sqlite_url), set()
    with site.open() as runtime:
        runtime.budgets.put("acme", Budget(total_tokens=10**9))
        runtime.budgets.put("acme/alive", Budget(total_tokens=10**8))
    for scenario in SCENARIOS:
        passed |= {point.name for point in record(site, scenario, finish)[1]}
    site.close()
    steps = {f"{side}:{step.__name__}" for step in get_args(Step) for side in ("before", "after")}
    tools = {f"tool:{when}:{name}" for name in EFFECTS for when in ("entered", "done")}
    assert passed == steps | tools | {"commit:before", "commit:after"}
