"""Fixtures for tests of MCP tools, which are skipped where the SDK is missing; the ``test`` extra has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def site() -> Iterator[Any]:
    """A runtime and an MCP server."""
    from tests.mcp._desk import site

    with site() as made:
        yield made
