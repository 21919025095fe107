"""Fixtures for tests of the turn."""

from __future__ import annotations

from tests.turn._worlds import ledger, make_world, mode, world

__all__ = ["ledger", "make_world", "mode", "world"]
