"""What the provider remembers of the items it sent, and the rules for handing them back.

The real API pairs items by their ids. Here a call is also recognised by its call id, so that
dropping ids does not hide a dropped reasoning item.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memoflow.testing._items import Item
from memoflow.testing._rejections import Rejection

__all__ = ["ItemMemory", "as_items"]

_ANSWERS = {
    "function_call": ("function_call_output", "function call"),
    "custom_tool_call": ("custom_tool_call_output", "custom tool call"),
    "computer_call": ("computer_call_output", "computer call"),
}
_CALL_OF = {answer: (kind, words) for kind, (answer, words) in _ANSWERS.items()}
_LONGEST_OUTPUT, _LONGEST_ARGUMENTS = 10_485_760, 1_048_576


@dataclass(frozen=True, slots=True)
class _Sent:
    item: Item
    stored: bool
    reasoning_id: str | None
    follower_id: str | None


class ItemMemory:
    """Every output item the provider sent, stored or not."""

    def __init__(self) -> None:
        self._by_id: dict[str, _Sent] = {}
        self._by_call: dict[str, _Sent] = {}

    def remember(self, output: Sequence[Item], stored: bool) -> None:
        """Keep the items of one response. What follows a reasoning item belongs to it."""
        thought: str | None = None
        for index, item in enumerate(output):
            follower = output[index + 1].get("id") if index + 1 < len(output) else None
            is_thought = item.get("type") == "reasoning"
            sent = _Sent(item, stored, None if is_thought else thought, follower if is_thought else None)
            self._by_id[str(item.get("id"))] = sent
            if item.get("type") in _ANSWERS:
                self._by_call[str(item.get("call_id"))] = sent
            if is_thought:
                thought = item.get("id")

    def stored(self, item_id: str) -> Item | None:
        """The item with this id, if it can be referred to."""
        sent = self._by_id.get(item_id)
        return sent.item if sent is not None and sent.stored else None

    def check(self, items: Sequence[Item]) -> Rejection | None:
        """The first rule that handing back these items breaks, or None."""
        return next(self._objections(items), None)

    def _objections(self, items: Sequence[Item]) -> Iterator[Rejection]:
        yield from _check_sizes(items)
        yield from _check_duplicates(items)
        yield from self._check_reasoning(items)
        yield from _check_answers(items)

    def _check_reasoning(self, items: Sequence[Item]) -> Iterator[Rejection]:
        seen: set[str] = set()
        for index, item in enumerate(items):
            if item.get("type") == "reasoning":
                yield from self._check_thought(item, items[index + 1 : index + 2])
                seen.add(str(item.get("id")))
                continue
            sent = self._sent(item)
            if sent is not None and sent.reasoning_id is not None and sent.reasoning_id not in seen:
                what = f"Item '{sent.item['id']}' of type '{sent.item['type']}'"
                lacks = f"without its required 'reasoning' item: '{sent.reasoning_id}'"
                yield _about_input(f"{what} was provided {lacks}.")

    def _check_thought(self, item: Item, following: Sequence[Item]) -> Iterator[Rejection]:
        sent = self._by_id.get(str(item.get("id")))
        if sent is None:
            return
        given = item.get("encrypted_content")
        if not sent.stored and given is None:
            yield _not_persisted(str(item["id"]))
        if given is not None and given != sent.item.get("encrypted_content"):
            message = f"The encrypted content for item {item['id']} could not be verified."
            yield Rejection(message=message, param="input", code="invalid_encrypted_content")
        follower = self._sent(following[0]) if following else None
        if sent.follower_id is not None and (follower is None or follower.item.get("id") != sent.follower_id):
            what = f"Item '{item['id']}' of type 'reasoning'"
            yield _about_input(f"{what} was provided without its required following item.")

    def _sent(self, item: Item) -> _Sent | None:
        by_id = self._by_id.get(str(item.get("id")))
        if by_id is None and item.get("type") in _ANSWERS:
            return self._by_call.get(str(item.get("call_id")))
        return by_id


def _about_input(message: str) -> Rejection:
    return Rejection(message=message, param="input")


def _not_persisted(item_id: str) -> Rejection:
    message = (
        f"Item with id '{item_id}' not found. Items are not persisted when `store` is set to false. "
        "Try again with `store` set to true, or remove this item from your input."
    )
    return Rejection(message=message, status=404, param="input")


def _check_sizes(items: Sequence[Item]) -> Iterator[Rejection]:
    for index, item in enumerate(items):
        for key, longest in (("output", _LONGEST_OUTPUT), ("arguments", _LONGEST_ARGUMENTS)):
            value = item.get(key)
            if isinstance(value, str) and len(value) > longest:
                param = f"input[{index}].{key}"
                message = f"Invalid '{param}': string too long. Expected a maximum length of {longest}."
                yield Rejection(message=message, param=param, code="string_above_max_length")


def _check_duplicates(items: Sequence[Item]) -> Iterator[Rejection]:
    seen: set[Any] = set()
    for item in items:
        given = item.get("id")
        if given is not None and item.get("type") != "item_reference" and given in seen:
            yield _about_input(
                f"Duplicate item found with id {given}. Remove duplicate items from your input."
            )
        seen.add(given)


def _check_answers(items: Sequence[Item]) -> Iterator[Rejection]:
    called: dict[tuple[str, str], bool] = {}
    for item in items:
        kind, call_id = str(item.get("type")), str(item.get("call_id"))
        if kind in _ANSWERS:
            called[kind, call_id] = False
        elif kind in _CALL_OF:
            asked, words = _CALL_OF[kind]
            if (asked, call_id) not in called:
                yield _about_input(f"No tool call found for {words} output with call_id {call_id}.")
            called[asked, call_id] = True
    for (kind, call_id), answered in called.items():
        if not answered:
            yield _about_input(f"No tool output found for {_ANSWERS[kind][1]} {call_id}.")


def as_items(given: Any) -> list[Item]:
    """The input of a request as a list of items."""
    if given is None:
        return []
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": given}]}]
    return [dict(item) if isinstance(item, Mapping) else item for item in given]
