"""Gateways for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.gateway._site import Site

MakeSite = Callable[..., Site]


@pytest.fixture
def make_site(sqlite_url: str) -> Iterator[MakeSite]:
    """Makes a running gateway on a fresh ledger."""
    with ExitStack() as stack:

        def make(provider: Any, *args: Any, **given: Any) -> Site:
            return stack.enter_context(Site(sqlite_url, provider, *args, **given))

        yield make
