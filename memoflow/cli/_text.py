"""Values as text: for people, and as JSON.

JSON has one shape for a kind of value, whatever record it is in:

- a list is an object with ``items`` and ``next`` (the cursor of the next page, or null);
- a time is RFC 3339 text in UTC with microseconds;
- money is a decimal number as text, its currency beside it in ``currency``;
- amounts have all seven dimensions, limits only those that are limited;
- a digest, state or id is the text the ledger has.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from typing import Any, Final

from memoflow.budget import Amounts, Budget
from memoflow.figures import nanos
from memoflow.periods import to_datetime

__all__ = ["clean", "json_text", "moment", "plain", "shown_json"]

_TIMES: Final = frozenset({"at", "period_start", "period_end"})


def clean(text: str) -> str:
    """Text without characters that could move the cursor or hide others: those are shown as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def moment(us: int | None) -> str:
    """A time for people, to the second in UTC; nothing for None."""
    return "" if us is None else _utc(us, "seconds")


def _utc(us: int, precision: str) -> str:
    return to_datetime(us).isoformat(timespec=precision).replace("+00:00", "Z")


def json_text(value: Any) -> str:
    """A value as JSON text, in which what could move the cursor or hide others is escaped."""
    return shown_json(plain(value))


def shown_json(value: Any) -> str:
    """Plain JSON values as text, in the same way."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    # Outside of strings nothing is unprintable but the ends of lines.
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def plain(value: Any, name: str = "") -> Any:
    """A record as plain JSON values; ``name`` is the field it stands in."""
    if isinstance(value, Amounts):
        return {key: plain(amount, key) for key, amount in value._asdict().items()}
    if isinstance(value, Budget):
        return {key: plain(amount, key) for key, amount in value.items() if amount is not None}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name), field.name) for field in fields(value)}
    if isinstance(value, dict):
        return {key: plain(item, key) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return _number(value, name)
    return json.loads(value) if name in ("metadata", "judgement") and value is not None else value


def _number(value: int, name: str) -> int | str:
    if name == "cost":
        return nanos(value)
    if name in _TIMES or name.endswith("_at"):
        return _utc(value, "microseconds")
    return value
