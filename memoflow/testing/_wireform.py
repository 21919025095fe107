"""A script as JSON, for a provider in another process."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, cast

from pydantic import TypeAdapter

from memoflow.testing._replies import as_entries, as_entry
from memoflow.testing._script import Entry, ScriptEntry

__all__ = ["entry_from_json", "entry_to_json", "script_to_json"]


@cache
def _adapter() -> TypeAdapter[Any]:
    # Built when it is first needed: it takes longer than importing everything else here.
    return TypeAdapter(Entry)


def entry_to_json(entry: ScriptEntry | None) -> dict[str, Any]:
    """An entry as plain JSON. Functions have no such form: `ConfigurationError`."""
    return cast("dict[str, Any]", _adapter().dump_python(as_entry(entry), mode="json"))


def script_to_json(script: Iterable[ScriptEntry] | ScriptEntry) -> list[dict[str, Any]]:
    """A script as plain JSON."""
    return [entry_to_json(entry) for entry in as_entries(script)]


def entry_from_json(data: Any) -> Entry:
    """The entry in its JSON form; a string is a message, an object without ``entry`` an output item."""
    if isinstance(data, str) or (isinstance(data, dict) and "entry" not in data):
        return as_entry(data)
    return cast("Entry", _adapter().validate_python(data))
