"""Rules of the Messages API for tool calls and their results, and for handing thinking back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memoflow.testing._items import Item
from memoflow.testing._messages_form import blocks_of
from memoflow.testing._rejections import Rejection

__all__ = ["ThoughtMemory", "check_pairing"]

_Turn = tuple[int, str, list[Mapping[str, Any]]]


def check_pairing(messages: Sequence[Mapping[str, Any]]) -> Iterator[Rejection]:
    """What is wrong with the calls and results of valid messages."""
    turns = _turns(messages)
    seen: set[str] = set()
    for position, (index, role, blocks) in enumerate(turns):
        uses = _ids(blocks, "tool_use", "id") if role == "assistant" else []
        if len(set(uses)) < len(uses) or seen & set(uses):
            yield Rejection(message=f"messages.{index}: `tool_use` ids must be unique")
        seen |= set(uses)
        following = turns[position + 1] if position + 1 < len(turns) else None
        yield from _check_answered(uses, index, following)
        before = turns[position - 1] if position else None
        asked = _ids(before[2], "tool_use", "id") if before is not None and before[1] == "assistant" else []
        yield from _check_results(blocks, role, index, asked)


def _turns(messages: Sequence[Mapping[str, Any]]) -> list[_Turn]:
    """The messages, with those of one role after another merged, as the API does it."""
    turns: list[_Turn] = []
    for index, message in enumerate(messages):
        blocks = list(blocks_of(message))
        if turns and turns[-1][1] == message["role"]:
            turns[-1][2].extend(blocks)
        else:
            turns.append((index, message["role"], blocks))
    return turns


def _ids(blocks: Sequence[Mapping[str, Any]], kind: str, key: str) -> list[str]:
    return [block[key] for block in blocks if block["type"] == kind]


def _check_answered(uses: Sequence[str], index: int, following: _Turn | None) -> Iterator[Rejection]:
    answered: list[str] = []
    if following is not None and following[1] == "user":
        for block in following[2]:
            # Results come first: what stands behind anything else answers nothing.
            if block["type"] != "tool_result":
                break
            answered.append(block["tool_use_id"])
    silent = [use for use in uses if use not in answered]
    if silent:
        yield Rejection(
            message=f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately "
            f"after: {', '.join(silent)}. Each `tool_use` block must have a corresponding `tool_result` "
            "block in the next message."
        )


def _check_results(
    blocks: Sequence[Mapping[str, Any]], role: str, index: int, asked: Sequence[str]
) -> Iterator[Rejection]:
    answered: set[str] = set()
    for number, block in enumerate(blocks):
        if block["type"] != "tool_result":
            continue
        call_id = block["tool_use_id"]
        if role != "user":
            message = f"messages.{index}: `tool_result` blocks can only be in `user` messages"
            yield Rejection(message=message)
        elif call_id not in asked:
            yield Rejection(
                message=f"messages.{index}.content.{number}: unexpected `tool_use_id` found in `tool_result` "
                f"blocks: {call_id}. Each `tool_result` block must have a corresponding `tool_use` block in "
                "the previous message."
            )
        elif call_id in answered:
            yield Rejection(
                message=f"messages.{index}.content.{number}: each tool_use must have a single result. Found "
                f"multiple `tool_result` blocks with id: {call_id}"
            )
        answered.add(call_id)


class ThoughtMemory:
    """The thoughts the provider sent, and the calls that may only be handed back together with them."""

    def __init__(self) -> None:
        self._thoughts: dict[str, str] = {}
        self._before: dict[str, set[str]] = {}

    def remember(self, blocks: Sequence[Item]) -> None:
        """Keep the thoughts of one message; every call of it needs those before it."""
        signatures: set[str] = set()
        for block in blocks:
            if block.get("type") == "thinking":
                signatures.add(str(block["signature"]))
                self._thoughts[str(block["signature"])] = str(block["thinking"])
            elif block.get("type") == "tool_use" and signatures:
                self._before[str(block["id"])] = set(signatures)

    def check(self, body: Mapping[str, Any]) -> Rejection | None:
        """The first rule that handing back these messages breaks, or None."""
        return next(self._objections(body), None)

    def _objections(self, body: Mapping[str, Any]) -> Iterator[Rejection]:
        thinking = body.get("thinking")
        thinks = isinstance(thinking, Mapping) and thinking.get("type") in ("enabled", "adaptive")
        for index, role, blocks in _turns(body["messages"]):
            shown: set[str] = set()
            for number, block in enumerate(blocks if role == "assistant" else ()):
                where = f"messages.{index}.content.{number}"
                if block["type"] == "thinking":
                    shown.add(block["signature"])
                    yield from self._check_thought(block, where)
                elif block["type"] == "tool_use" and thinks:
                    yield from self._check_call(block, shown, where)

    def _check_thought(self, block: Mapping[str, Any], where: str) -> Iterator[Rejection]:
        if self._thoughts.get(block["signature"], block["thinking"]) != block["thinking"]:
            yield Rejection(message=f"{where}: Invalid `signature` in `thinking` block")

    def _check_call(self, block: Mapping[str, Any], shown: set[str], where: str) -> Iterator[Rejection]:
        if not self._before.get(block["id"], set()) <= shown:
            expected = "Expected `thinking` or `redacted_thinking`, but found `tool_use`"
            yield Rejection(message=f"{where}.type: {expected}")
