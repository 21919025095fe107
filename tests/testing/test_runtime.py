"""Temporary runtimes, and clocks that stand still."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from memoflow import Budget, ConfigurationError, InvalidRequest, KeyRing
from memoflow.ledger.verify import verify
from memoflow.testing import ManualClock, temporary_runtime


def test_a_temporary_runtime_leaves_nothing_behind() -> None:
    """Its database is fresh, complete, apart from all others, and gone afterwards."""
    with temporary_runtime() as one, temporary_runtime() as other:
        one.budgets.put("acme", Budget(total_tokens=1))
        assert other.budgets.list() == []
        assert one.ledger.database.read(verify) == []
        files = [Path(str(runtime.ledger.database.url.database)) for runtime in (one, other)]
        assert all(file.exists() for file in files)
    assert not any(file.parent.exists() for file in files)
    with pytest.raises(ConfigurationError, match="closed"):
        one.budgets.put("acme", Budget(total_tokens=1))


def test_options_are_those_of_open() -> None:
    """Whatever `Runtime.open` takes is handed on."""
    with temporary_runtime(namespace="tests", lease_seconds=5, worker="me") as runtime:
        assert (runtime.namespace, runtime.lease_us, runtime.worker) == ("tests", 5_000_000, "me")


def test_a_named_database_outlives_its_runtimes(database_url: str) -> None:
    """A test may open the same database again, as another process would."""
    keys = KeyRing.generate()
    with temporary_runtime(database_url, keys=keys) as runtime:
        runtime.budgets.put("acme", Budget(total_tokens=1))
    with temporary_runtime(database_url, keys=keys) as runtime:
        assert [account.path for account in runtime.budgets.list()] == ["acme"]


def test_a_clock_moves_only_when_it_is_told() -> None:
    """Budget periods follow it, exactly."""
    clock = ManualClock(datetime(2027, 1, 31, 23, 59, 59, tzinfo=UTC))
    with temporary_runtime(clock=clock) as runtime:
        first = runtime.budgets.put("acme", Budget(total_tokens=1), period="month")
        before = clock.now
        clock.advance(0.5)
        assert runtime.budgets.show("acme").period_start == first.period_start
        clock.advance(0.5)
        assert clock.now == before + 1_000_000 == runtime.budgets.show("acme").period_start


@pytest.mark.parametrize("seconds", [-1, -0.001, float("nan")])
def test_a_clock_is_not_set_back(seconds: float) -> None:
    """What a database's clock does not do is not simulated."""
    with pytest.raises(InvalidRequest, match="not set back"):
        ManualClock().advance(seconds)
