"""What a process does that starts for the first time; apart, so that it has little to import."""

from __future__ import annotations

from typing import Any

from memoflow.ledger.migrate import upgrade

__all__ = ["first_start"]


def first_start(barrier: Any, _index: int, url: str) -> str:
    """Upgrade a database together with the other processes; the revision that was reached."""
    barrier.wait()
    return upgrade(url)
