"""Where races are run."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from tests.races.racers import Place


@pytest.fixture
def key() -> str:
    """A key for outputs, as text that can be handed to a process."""
    return f"k1:{base64.b64encode(os.urandom(32)).decode()}"


@pytest.fixture
def place(database_url: str, key: str, tmp_path: Path) -> Place:
    """A fresh ledger that processes open for themselves."""
    return Place(database_url, key, str(tmp_path / "notes"))
