"""Growing JSON: how the deltas of a chat completion stream become the fields of one message.

Texts grow, objects are merged, lists get longer; an entry of a list with an ``index`` grows the entry of
the same index. Everything else is replaced, and so are names, ids and types, which some servers repeat in
every delta. A null says nothing. Texts are kept in pieces until the end, since adding to a long text one
word at a time would take quadratic time.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["Text", "merge", "plain"]

_WHOLE: Final = frozenset({"format", "id", "index", "name", "object", "role", "type"})


class Text:
    """A text that grows."""

    __slots__ = ("pieces",)

    def __init__(self, first: str) -> None:
        self.pieces = [first]

    def __str__(self) -> str:
        return "".join(self.pieces)


def merge(into: dict[str, Any], delta: dict[str, Any]) -> None:
    """Take the fields of a delta, which must be JSON that nobody else holds."""
    for key, value in delta.items():
        if value is None:
            into.setdefault(key, None)
        elif key not in _WHOLE:
            into[key] = _grown(into.get(key), value)
        elif value != "" or key not in into:
            into[key] = value


def plain(value: Any) -> Any:
    """What has grown, as plain JSON."""
    if isinstance(value, Text):
        return str(value)
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list) else value


def _grown(old: Any, value: Any) -> Any:
    if isinstance(value, str):
        return _with_text(old, value)
    if isinstance(value, dict):
        entry = old if isinstance(old, dict) else {}
        merge(entry, value)
        return entry
    return _with_entries(old, value) if isinstance(value, list) else value


def _with_text(old: Any, text: str) -> Any:
    if isinstance(old, Text):
        old.pieces.append(text)
        return old
    # A server that streams the parts of a content may go on with bare text.
    return [*old, *_part(text)] if isinstance(old, list) else Text(text)


def _with_entries(old: Any, entries: list[Any]) -> list[Any]:
    kept: list[Any] = old if isinstance(old, list) else _part(str(old)) if isinstance(old, Text) else []
    for entry in entries:
        known = _same_index(kept, entry) if isinstance(entry, dict) else None
        if known is not None:
            merge(known, entry)
        elif isinstance(entry, dict):
            fresh: dict[str, Any] = {}
            merge(fresh, entry)
            kept.append(fresh)
        else:
            kept.append(entry)
    return kept


def _same_index(kept: list[Any], entry: dict[str, Any]) -> dict[str, Any] | None:
    index = entry.get("index")
    if type(index) is not int:
        return None
    # The one that grows is nearly always the last.
    return next((one for one in reversed(kept) if isinstance(one, dict) and one.get("index") == index), None)


def _part(text: str) -> list[Any]:
    return [{"type": "text", "text": Text(text)}] if text else []
