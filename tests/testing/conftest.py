"""Fixtures for tests of the simulated provider."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from memoflow.testing import SimulatedProvider
from tests.testing._callers import KINDS, Caller

Talk = Callable[..., Caller]


def _talk(kind: str) -> Iterator[Talk]:
    with ExitStack() as stack:
        made: list[SimulatedProvider] = []

        def talk(*script: Any, **options: Any) -> Caller:
            made.append(SimulatedProvider(script, **options))
            return Caller(kind, made[-1], stack)

        yield talk
    for provider in made:
        assert provider.errors == []


@pytest.fixture(params=KINDS)
def talk(request: pytest.FixtureRequest) -> Iterator[Talk]:
    """Makes callers of a provider with a script: the test runs through every kind of client."""
    yield from _talk(request.param)


@pytest.fixture(params=KINDS[:2])
def talk_in_process(request: pytest.FixtureRequest) -> Iterator[Talk]:
    """Like ``talk``, in process only."""
    yield from _talk(request.param)


@pytest.fixture(params=KINDS[2:])
def talk_over_sockets(request: pytest.FixtureRequest) -> Iterator[Talk]:
    """Like ``talk``, over sockets only."""
    yield from _talk(request.param)
