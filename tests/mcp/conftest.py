"""Skips what needs the MCP SDK where it is missing; the ``test`` extra has it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

HAS_MCP = find_spec("mcp") is not None

collect_ignore_glob = [] if HAS_MCP else ["test_[!m]*.py"]


@pytest.fixture
def site() -> Iterator[Any]:
    """A runtime and an MCP server."""
    from tests.mcp._desk import site

    with site() as made:
        yield made
