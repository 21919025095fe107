"""Connections that are kept: one for a request, the last one first, none after an error, none for long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memoflow.gateway.connections import Connections


class Client:
    """Stands for a client of one connection."""

    def __init__(self) -> None:
        self.closed = False

    async def aclose(self) -> None:
        """Close it."""
        self.closed = True


class Kept:
    """Connections of clients that are remembered."""

    def __init__(self, idle_s: float = 60.0) -> None:
        self.made: list[Client] = []
        make: Any = self._make
        self.connections = Connections(make, idle_s=idle_s)

    def _make(self) -> Client:
        self.made.append(Client())
        return self.made[-1]

    async def together(self, count: int) -> None:
        """So many requests at a time."""
        begun = asyncio.Barrier(count)

        async def ask() -> None:
            async with self.connections.one():
                await begun.wait()

        await asyncio.gather(*[ask() for _ in range(count)])


def test_requests_in_turn_share_a_connection_and_those_at_a_time_do_not() -> None:
    """As many as there were requests at a time are made, and used again."""

    async def run() -> Kept:
        kept = Kept()
        for count in (1, 1, 3, 2, 3):
            await kept.together(count)
        return kept

    kept = asyncio.run(run())
    assert [client.closed for client in kept.made] == [False] * 3


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError])
def test_after_an_error_a_connection_is_not_used_again(error: type[BaseException]) -> None:
    """Whatever the error was: half of a reply may still be on its way."""

    async def run() -> Kept:
        kept = Kept()
        with pytest.raises(error):
            async with kept.connections.one():
                raise error
        await kept.together(1)
        return kept

    kept = asyncio.run(run())
    assert [client.closed for client in kept.made] == [True, False]


def test_what_is_idle_for_long_is_closed() -> None:
    """Of what a busy hour has left, only what is used stays."""

    async def run() -> Kept:
        kept = Kept(idle_s=0.0)
        await kept.together(4)
        await kept.together(1)
        return kept

    kept = asyncio.run(run())
    assert all(client.closed for client in kept.made)


def test_closing_leaves_nothing_open() -> None:
    """All that is idle is closed."""

    async def run() -> Kept:
        kept = Kept()
        await kept.together(4)
        await kept.connections.close()
        return kept

    kept = asyncio.run(run())
    assert len(kept.made) == 4
    assert all(client.closed for client in kept.made)
