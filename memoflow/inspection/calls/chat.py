"""Calls in chat completions, streamed and whole.

Clients put fragments together in different ways: by their index, by their id, or one after the other. Where a
stream keeps to the rules they all come to the same. Where it does not, every way is a plausible one: the
official SDK makes one call ``ab`` of two that share an index, and others make two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from memoflow.inspection.calls.records import AssembledCall, Step

__all__ = ["ChatCalls", "chat_calls"]

_TEXTS: Final = {"function": "arguments", "custom": "input"}
_CUT: Final = frozenset({"length", "content_filter"})
MAX_FRAGMENTS: Final = 200_000


@dataclass(frozen=True, slots=True)
class _Fragment:
    index: int | None
    id: str
    name: str
    text: str = field(repr=False)
    freeform: bool


class ChatCalls:
    """Reads the chunks of one stream."""

    __slots__ = ("_choices", "_ended", "_fragments", "_open")

    def __init__(self) -> None:
        self._choices: dict[int, list[_Fragment]] = {}
        self._ended: set[int] = set()
        self._open: set[int] = set()
        self._fragments = 0

    @property
    def is_open(self) -> bool:
        """Whether a choice with calls has not ended."""
        return bool(self._open)

    def feed(self, event: Mapping[str, Any]) -> Step:
        """Take the next chunk."""
        choices = event.get("choices")
        if not isinstance(choices, list):
            return Step()
        steps = [self._choice(choice, number) for number, choice in enumerate(choices)]
        return Step(
            carries=any(step.carries for step in steps),
            calls=tuple(call for step in steps for call in step.calls),
            problem=next((step.problem for step in steps if step.problem), None),
        )

    def _choice(self, choice: Any, number: int) -> Step:
        if not isinstance(choice, dict):
            return Step(problem="SHAPE")
        index = choice.get("index", number)
        if type(index) is not int:
            return Step(carries=True, problem="SHAPE")
        found, problem = _fragments(choice)
        # Some servers repeat the whole message so far beside the delta, or send it instead.
        whole = tuple(_whole_calls(choice.get("message")))
        if found:
            self._choices.setdefault(index, []).extend(found)
            self._fragments += len(found)
            if index in self._ended:
                problem = problem or "AFTER_END"
            else:
                self._open.add(index)
        if self._fragments > MAX_FRAGMENTS:
            problem = "TOO_MANY_FRAGMENTS"
        ended = choice.get("finish_reason")
        calls: tuple[AssembledCall, ...] = ()
        if ended not in (None, "") and index not in self._ended:
            self._ended.add(index)
            self._open.discard(index)
            calls, differ = _assembled(self._choices.get(index, []), cut=ended in _CUT)
            problem = problem or differ
        if whole and {c.reads_alike for c in whole} != {c.reads_alike for c in calls}:
            problem = problem or "MESSAGE_DIFFERS"
        return Step(bool(found or whole or problem), (*calls, *whole), problem=problem)


def chat_calls(body: Mapping[str, Any]) -> Iterator[AssembledCall]:
    """The calls of a whole reply."""
    choices = body.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            cut = choice.get("finish_reason") in _CUT
            yield from _whole_calls(choice.get("message"), cut=cut)


def _whole_calls(message: Any, *, cut: bool = False) -> Iterator[AssembledCall]:
    if isinstance(message, dict):
        found, _ = _fragments({"delta": message})
        for one in found:
            yield AssembledCall(one.name, one.text, one.id or None, one.freeform, complete=not cut)


def _fragments(choice: Mapping[str, Any]) -> tuple[list[_Fragment], str | None]:
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return [], None if delta is None else "SHAPE"
    found, problem = [], None
    entries = delta.get("tool_calls")
    if not isinstance(entries, list | None):
        return [], "SHAPE"
    for entry in entries or ():
        fragment = _fragment(entry)
        if fragment is None:
            problem = "SHAPE"
        else:
            found.append(fragment)
    legacy = delta.get("function_call")
    if isinstance(legacy, dict):
        # There is one at most, and it has neither index nor id.
        found.append(_Fragment(0, "", _text(legacy.get("name")), _text(legacy.get("arguments")), False))
    return found, problem


def _fragment(entry: Any) -> _Fragment | None:
    if not isinstance(entry, dict):
        return None
    index = entry.get("index")
    kind = next((kind for kind in _TEXTS if isinstance(entry.get(kind), dict)), "function")
    part = entry.get(kind)
    given = part if isinstance(part, dict) else {}
    name = _text(entry.get("namespace")), _text(given.get("name"))
    return _Fragment(
        index if type(index) is int and index >= 0 else None,
        _text(entry.get("id")),
        ".".join(filter(None, name)),
        _text(given.get(_TEXTS[kind])),
        kind == "custom",
    )


def _text(value: Any) -> str:
    """A text, or what a lenient client makes of another value."""
    if isinstance(value, str):
        return value
    return "" if value is None else repr(value)


def _assembled(fragments: list[_Fragment], *, cut: bool) -> tuple[tuple[AssembledCall, ...], str | None]:
    """The calls in all ways they can be put together, and whether these differ."""
    if _keeps_to_the_rules(fragments):
        return tuple(_by(fragments, _index, cut)), None
    ways = [list(_by(fragments, key, cut)) for key in (_by_id(), _in_order())]
    if all(fragment.index is not None for fragment in fragments):
        ways.append(list(_by(fragments, _index, cut)))
    distinct = {call.reads_alike: call for way in ways for call in way}
    first = [call.reads_alike for call in ways[0]]
    alike = all([call.reads_alike for call in way] == first for way in ways)
    return tuple(distinct.values()), None if alike else "AMBIGUOUS_CALLS"


def _keeps_to_the_rules(fragments: list[_Fragment]) -> bool:
    """Every index in turn begins with an id and a name, and neither comes again but for the same id."""
    ids: dict[int, str] = {}
    taken: set[str] = set()
    legacy = all(fragment.index == 0 and not fragment.id for fragment in fragments)
    if legacy:
        return sum(bool(fragment.name) for fragment in fragments) <= 1
    for one in fragments:
        if one.index is None:
            return False
        if one.index not in ids:
            if one.index != len(ids) or not one.id or not one.name or one.id in taken:
                return False
            ids[one.index] = one.id
            taken.add(one.id)
        elif one.name or one.id not in ("", ids[one.index]):
            return False
    return True


def _by(fragments: list[_Fragment], key: Callable[[_Fragment], object], cut: bool) -> Iterator[AssembledCall]:
    groups: dict[object, list[_Fragment]] = {}
    for fragment in fragments:
        groups.setdefault(key(fragment), []).append(fragment)
    for group in groups.values():
        yield AssembledCall(
            "".join(one.name for one in group),
            "".join(one.text for one in group),
            next((one.id for one in group if one.id), None),
            any(one.freeform for one in group),
            complete=not cut,
        )


def _index(fragment: _Fragment) -> object:
    return fragment.index


def _by_id() -> Callable[[_Fragment], object]:
    """A fragment without an id goes on with the one before it."""
    last = ""

    def key(fragment: _Fragment) -> object:
        nonlocal last
        last = fragment.id or last
        return last

    return key


def _in_order() -> Callable[[_Fragment], object]:
    """A fragment with a name begins a call."""
    count = 0

    def key(fragment: _Fragment) -> object:
        nonlocal count
        count += bool(fragment.name)
        return count

    return key
