"""Programs that die, and die again while they recover."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memoflow import Budget, faults
from memoflow.budget import Amounts
from memoflow.ledger.verify import verify
from tests._databases import SqliteFiles
from tests.crash._play import RESERVED, finish
from tests.crash._scenarios import AT_MOST_ONCE, Scenario
from tests.crash._site import LEASE_S, Site
from tests.crash._world import TOKENS, World

SCENARIO = Scenario("two_rounds", rounds=(("look", "put"), ("send",)))
REPLIES = 3
numbers = itertools.count()


@pytest.fixture(scope="module")
def site(sqlite_files: SqliteFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A ledger for all examples, which is in order at the end."""
    site = Site(sqlite_files.create(tmp_path_factory.mktemp("deaths")))
    with site.open() as runtime:
        runtime.budgets.put("acme", Budget(total_tokens=10**9))
    yield site
    with site.open() as runtime:
        assert runtime.ledger.database.read(verify) == []
        assert runtime.budgets.show("acme").held == Amounts()
    site.close()


@contextmanager
def living(points: int) -> Iterator[None]:
    """Die after so many points."""
    left = iter(range(points))

    def hook(name: str) -> None:
        if next(left, None) is None:
            raise faults.Stop(name)

    before = faults.install(hook)
    try:
        yield
    finally:
        faults.install(before)


def live(site: Site, world: World, account: str, points: int) -> str | None:
    """One life of a program; its output, or None if it died before."""
    try:
        with living(points), site.open() as runtime:
            return finish(runtime, world, account)
    except faults.Stop:
        return None


@given(lives=st.lists(st.integers(0, 70), max_size=5))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_number_of_deaths_costs_a_request_each_at_most(site: Site, lives: list[int]) -> None:
    """However often a program dies, its activity comes to the same output, every death costs one request at
    most, and every request that arrived is either charged or held as unknown."""
    world = World(SCENARIO, f"{next(numbers)}")
    account = f"acme/{world.name}"
    with site.open() as runtime:
        runtime.budgets.put(account, Budget(total_tokens=10**6))
    deaths, output = 0, None
    for points in (*lives, 10**6):
        output = live(site, world, account, points)
        if output is not None:
            break
        deaths += 1
        site.clock.advance(LEASE_S + 1)
    assert output == "look 0.0; put 0.1; send 1.0"
    with site.open() as runtime:
        balance = runtime.budgets.show(account)
    unknown = balance.unknown.model_calls
    assert (balance.settled.model_calls, balance.settled.total_tokens) == (REPLIES, REPLIES * TOKENS)
    assert (balance.held, balance.unknown.total_tokens) == (Amounts(), unknown * RESERVED)
    assert world.requests - REPLIES <= unknown <= deaths
    check_effects(world, deaths)


def check_effects(world: World, deaths: int) -> None:
    """One key a call, and nothing again that may not be."""
    assert sorted(world.keys) == ["look 0.0", "put 0.1", "send 1.0"]
    for said, (key,) in world.keys.items():
        assert 1 <= world.done[key] <= (1 if said.startswith(AT_MOST_ONCE) else 1 + deaths)
