"""Losing a lease: the attempt is told once, and leaves with LeaseLost."""

from __future__ import annotations

import asyncio
import logging

import pytest
from sqlalchemy import update

from memoflow import LeaseLost, Runtime
from memoflow.ledger import schema as s
from memoflow.testing import temporary_runtime


def take_over(runtime: Runtime) -> None:
    """Another attempt owns every activity now."""
    with runtime.ledger.database.write() as connection:
        connection.execute(update(s.activities).values(attempt=s.activities.c.attempt + 1))


async def outlast(seconds: float) -> None:
    """Work that a cancellation has to wait for, as a commit or a thread does."""
    work = asyncio.ensure_future(asyncio.sleep(seconds))
    while not work.done():
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            continue


def test_an_attempt_that_is_slow_to_end_is_cancelled_once(caplog: pytest.LogCaptureFixture) -> None:
    """However many beats pass meanwhile, LeaseLost leaves, and nothing is left of the cancellation."""

    async def main(runtime: Runtime) -> int:
        @runtime.activity(version="v1")
        async def slow() -> None:
            take_over(runtime)
            await outlast(1.5)  # four beats
            await asyncio.sleep(10)

        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(LeaseLost):
            await slow.run()
        return task.cancelling()

    with caplog.at_level(logging.WARNING, "memoflow.leases"), temporary_runtime(lease_seconds=1) as runtime:
        assert asyncio.run(main(runtime)) == 0
    assert [record.message.rpartition("/")[2] for record in caplog.records] == ["slow lost its lease"]
