"""Fixtures of the conformance suite: worlds in which any API is spoken."""

from __future__ import annotations

from tests.providers.conformance import api_world
from tests.turn._worlds import ledger, make_world

__all__ = ["api_world", "ledger", "make_world"]
