"""How the parts of a request are taken apart to be measured, whatever API it is for."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

__all__ = ["compact", "leaves"]


def compact(value: Any) -> str:
    """A JSON value as the shortest text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def leaves(value: Any, frame: Collection[str]) -> Iterator[str]:
    """The texts and numbers in a JSON value, without those under the keys in ``frame``."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from leaves(part, frame)
    elif isinstance(value, dict):
        for key, part in value.items():
            if key not in frame:
                yield from leaves(part, frame)
    elif value is not None:
        yield str(value)
