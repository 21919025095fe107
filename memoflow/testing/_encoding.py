"""JSON as the simulated provider writes it, and its deterministic ids."""

from __future__ import annotations

import hashlib
import itertools
import json
from typing import Any

__all__ = ["FIRST_SECOND", "Ids", "encode_json"]

FIRST_SECOND = 1_790_000_000


def encode_json(value: Any) -> bytes:
    """Compact JSON in UTF-8; only text that UTF-8 cannot carry is escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


class Ids:
    """Ids and times of one provider: the same seed gives the same in the same order."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._numbers = itertools.count()

    def new(self, prefix: str, joint: str = "_") -> str:
        """The next id with this prefix."""
        source = f"{self._seed}:{next(self._numbers)}".encode()
        return f"{prefix}{joint}{hashlib.sha256(source).hexdigest()[:40]}"

    def second(self) -> int:
        """A time in whole seconds that never stands still: simulated, like everything here."""
        return FIRST_SECOND + next(self._numbers)
