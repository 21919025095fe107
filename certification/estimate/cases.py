"""Inputs of different kinds, and the same input as a request of each API."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["CASES", "Case"]

_PROSE: Final = (
    "The committee met on a wet Thursday in March to decide whether the old bridge should be repaired or "
    "replaced. Nobody in the room had expected the argument to last until midnight, least of all the "
    "engineer, who had brought two drawings and a sandwich. "
)
_CODE: Final = '''def settle(balance: dict[str, int], held: int, actual: int) -> dict[str, int]:
    """Replace a hold by what was used."""
    if held < 0 or actual < 0:
        raise ValueError(f"Amounts are not negative: {held=}, {actual=}.")
    return {**balance, "held": balance["held"] - held, "settled": balance["settled"] + actual}


'''
_CHINESE: Final = "委员会在三月一个下雨的星期四开会,讨论旧桥应该修复还是重建。没有人想到争论会持续到午夜。"
_RUSSIAN: Final = "Комитет собрался дождливым мартовским четвергом, чтобы решить судьбу старого моста. "
_ARABIC: Final = "اجتمعت اللجنة في يوم خميس ماطر من شهر مارس لتقرر مصير الجسر القديم. "
_EMOJI: Final = "👩🏽‍🚀🚀🌍🎉👨‍👩‍👧‍👦🏳️‍🌈🇨🇭🤷🏻‍♂️✨🧪 "
_SPARSE: Final = "a\n\n\n\t\t  b\n   \n\t c  \n"


def _record(number: int) -> dict[str, Any]:
    return {"id": f"ord-{number:06}", "paid": number % 3 == 0, "cents": 1_999 + number, "tags": ["new", "eu"]}


def _random_text(size: int) -> str:
    # Always the same bytes, of which no vocabulary knows more than two or three in a row.
    blocks = (hashlib.sha256(number.to_bytes(4)).digest() for number in range(-(-size * 3 // 128)))
    return base64.b64encode(b"".join(blocks)).decode()[:size]


@dataclass(frozen=True)
class Case:
    """A conversation whose turns are the user's and the assistant's by turns; with a tool if ``tool``."""

    name: str
    turns: tuple[str, ...]
    tool: bool = False

    def messages(self) -> list[dict[str, Any]]:
        """The turns, in the form all APIs take."""
        roles = ("user", "assistant")
        return [{"role": roles[n % 2], "content": text} for n, text in enumerate(self.turns)]

    def request(self, api: str, model: str, cap: int) -> dict[str, Any]:
        """The request of an API, for a reply of so many tokens."""
        tools = [_tool(api)] if self.tool else []
        more = {"tools": tools} if tools else {}
        if api == "responses":
            given = self.turns[0] if len(self.turns) == 1 else [*map(_response_item, self.messages())]
            return {"model": model, "input": given, "max_output_tokens": cap, **more}
        return {"model": model, "messages": self.messages(), "max_tokens": cap, **more}


def _response_item(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "user":
        return message
    content = [{"type": "output_text", "text": message["content"], "annotations": []}]
    return {"type": "message", "role": "assistant", "status": "completed", "content": content}


def _tool(api: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "description": "What to double."}},
        "required": ["n"],
        "additionalProperties": False,
    }
    named = {"name": "double", "description": "Doubles a whole number and returns the result."}
    if api == "messages":
        return {**named, "input_schema": schema}
    if api == "responses":
        return {"type": "function", **named, "parameters": schema}
    return {"type": "function", "function": {**named, "parameters": schema}}


CASES: Final = (
    Case("a word", ("Hi",)),
    Case("English", (_PROSE,)),
    Case("English, 16 KB", (_PROSE * 63,)),
    Case("Python", (_CODE * 4,)),
    Case("JSON", (json.dumps([_record(n) for n in range(20)]),)),
    Case("JSON, indented", (json.dumps([_record(n) for n in range(20)], indent=2),)),
    Case("Chinese", (_CHINESE * 8,)),
    Case("Russian", (_RUSSIAN * 6,)),
    Case("Arabic", (_ARABIC * 6,)),
    Case("emoji", (_EMOJI * 8,)),
    Case("digits", ("3.14159265358979 2718281828 " * 20,)),
    Case("base64", (_random_text(1_500),)),
    Case("white space", (_SPARSE * 30,)),
    Case("40 short turns", tuple(f"Turn {n}." for n in range(41))),
    Case("one tool", ("Call double with n = 3.",), tool=True),
)
