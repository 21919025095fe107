"""The calls of one streamed chat completion choice, put together from their fragments.

The rules are as strict as what well-known servers send allows:

- A fragment says by ``index`` which call it belongs to. One without an index must be a whole call, with
  id, name and arguments, and nothing is ever added to it; calls with and without an index do not mix.
- The first id of a call stays. It may be repeated, or come late; another one is a contradiction, since
  servers that give every call the index 0 would otherwise have their calls glued together.
- A name comes once and whole: a second one might be a repetition or a continuation. Blank ones are sent
  beside it by some servers and say nothing; where no other came, the call has a blank name, as in a whole
  reply.
- Arguments are texts that are added up untouched.
"""

from __future__ import annotations

from typing import Any, Final

from memoflow.providers._chat_merge import Text, merge, plain
from memoflow.providers._reading import text_or_none

__all__ = ["KINDS", "StreamedCalls"]

KINDS: Final = {"function": "arguments", "custom": "input"}
"""Kinds of calls, and what each calls the text that the model wrote."""


class StreamedCalls:
    """Takes the ``tool_calls`` of deltas."""

    __slots__ = ("_indexed", "_whole")

    def __init__(self) -> None:
        self._indexed: dict[int, _Call] = {}
        self._whole: list[_Call] = []

    def take(self, fragments: Any) -> str | None:
        """Take the fragments of one delta; returns the code of what is wrong with them."""
        if not isinstance(fragments, list):
            return "CALL_SHAPE"
        problem: str | None = None
        for fragment in fragments:
            found = self._take(fragment) if isinstance(fragment, dict) else "CALL_SHAPE"
            problem = problem or found
        return problem

    def plain(self) -> list[dict[str, Any]]:
        """The calls as a whole reply would have them."""
        return [call.plain() for call in (*(self._indexed[i] for i in sorted(self._indexed)), *self._whole)]

    def _take(self, fragment: dict[str, Any]) -> str | None:
        index = fragment.get("index")
        if index is None:
            return self._take_whole(fragment)
        if type(index) is not int or index < 0:
            return "CALL_SHAPE"
        if index not in self._indexed:
            self._indexed[index] = _Call()
        mixed = "CALL_AMBIGUOUS" if self._whole else None
        return self._indexed[index].take(fragment) or mixed

    def _take_whole(self, fragment: dict[str, Any]) -> str | None:
        call = _Call()
        problem = call.take(fragment)
        self._whole.append(call)
        return problem or (None if call.is_whole() and not self._indexed else "CALL_AMBIGUOUS")


class _Call:
    """One call; ``_kind`` is the key that its name and text stand under."""

    __slots__ = ("_kind", "_more", "_part", "_type")

    def __init__(self) -> None:
        self._kind: str | None = None
        self._type: str | None = None
        self._part: dict[str, Any] = {}
        self._more: dict[str, Any] = {}

    def is_whole(self) -> bool:
        text = self._part.get(KINDS[self._kind]) if self._kind else None
        named = text_or_none(self._part.get("name"))
        return text_or_none(self._more.get("id")) is not None and named is not None and text is not None

    def plain(self) -> dict[str, Any]:
        kind = self._type or self._kind
        result = {**self._more, **({"type": kind} if kind else {})}
        part: dict[str, Any] = plain(self._part)
        return {**plain(result), **({self._kind: part} if self._kind else {})}

    def take(self, fragment: dict[str, Any]) -> str | None:
        problem: str | None = None
        for key, value in fragment.items():
            if key == "index" or value is None or value == "":
                continue
            found = self._field(key, value)
            problem = problem or found
        return problem

    def _field(self, key: str, value: Any) -> str | None:
        if key == "id":
            return self._identify(value)
        if key == "type":
            return self._classify(value)
        if key in KINDS:
            return self._grow(key, value)
        merge(self._more, {key: value})
        return None

    def _identify(self, value: Any) -> str | None:
        if not isinstance(value, str):
            return "CALL_SHAPE"
        return None if self._more.setdefault("id", value) == value else "CALL_ID_CHANGED"

    def _classify(self, value: Any) -> str | None:
        if not isinstance(value, str):
            return "CALL_SHAPE"
        self._type = self._type or value
        return None if self._type == value else "CALL_SHAPE"

    def _grow(self, kind: str, part: Any) -> str | None:
        self._kind = self._kind or kind
        if self._kind != kind or not isinstance(part, dict):
            return "CALL_SHAPE"
        problem: str | None = None
        for key, value in part.items():
            if value is None:
                continue
            found = self._part_field(key, value)
            problem = problem or found
        return problem

    def _name(self, value: Any) -> str | None:
        if value == "":
            self._part.setdefault("name", value)
            return None
        if self._part.get("name") or not isinstance(value, str):
            return "CALL_NAME"
        self._part["name"] = value
        return None

    def _part_field(self, key: str, value: Any) -> str | None:
        if key == "name":
            return self._name(value)
        if self._kind is None or key != KINDS[self._kind]:
            merge(self._part, {key: value})
            return None
        if not isinstance(value, str):
            return "CALL_SHAPE"
        text = self._part.setdefault(key, Text(""))
        text.pieces.append(value)
        return None
