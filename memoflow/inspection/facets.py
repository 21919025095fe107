"""Which texts of an event are looked at, and as what.

Of a call that is every text in its arguments apart: values, the keys of objects, and numbers as text, which
a card number may be. Texts are not joined for the detectors, since what is found over a seam is mostly not
there; what was cut in pieces on purpose is looked for by the detectors that know what they look for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Literal

from memoflow.canonical import StrictJSONError, parse_strict
from memoflow.inspection.events import (
    MAX_EVENT_BYTES,
    Kind,
    ManifestSeen,
    SubagentReport,
    SubagentSpawn,
    ToolCall,
    ToolResult,
)
from memoflow.inspection.findings import Facet

__all__ = ["Piece", "ambiguity", "command_line", "pieces", "values"]

MAX_PIECES: Final = 1_000
"""Most texts of one event that are looked at one by one; those after them by what they are called."""

MAX_NAMES: Final = 100
"""Most names that are told apart among those."""

MAX_PATH: Final = 32
"""Most steps of the path to a text that are kept: deeper, a path would cost more than what it leads to."""

_Part = Literal["value", "key", "number", "raw"]


@dataclass(frozen=True, slots=True)
class Piece:
    """One text of an event.

    Attributes:
        facet: what the detectors and policies call it.
        text: the text.
        part: what it is of the arguments; ``value`` for what is no part of any.
        path: names and positions that lead to it in the arguments, the first `MAX_PATH` of them.
    """

    facet: Facet
    text: str = field(repr=False)
    part: _Part = "value"
    path: tuple[str | int, ...] = field(default=(), repr=False)


def pieces(kind: Kind) -> tuple[Piece, ...]:
    """The texts of an event that are not empty, `MAX_PIECES` and `MAX_NAMES` and one more at most."""
    match kind:
        case ToolCall():
            found = _of_call(kind)
        case ToolResult():
            found = iter([Piece("tool_result", kind.content)])
        case SubagentSpawn():
            found = iter([Piece("subagent_instructions", kind.instructions)])
        case SubagentReport():
            found = iter([Piece("subagent_report", kind.content)])
        case ManifestSeen():
            found = (Piece("tool_description", text) for tool in kind.tools for text in _described(tool))
        case _:
            return ()
    return tuple(_bounded(piece for piece in found if piece.text))


def _bounded(found: Iterator[Piece]) -> Iterator[Piece]:
    """The first of them, then those after them that are called the same as one text, so names still tell."""
    yield from islice(found, MAX_PIECES)
    named: dict[tuple[str | int, ...], list[Piece]] = {}
    for piece in found:
        names = tuple(step for step in piece.path if isinstance(step, str))
        named.setdefault(names if names in named or len(named) < MAX_NAMES else (), []).append(piece)
    for path, rest in named.items():
        yield Piece(rest[0].facet, "\n".join(piece.text for piece in rest), path=path)


def values(found: tuple[Piece, ...]) -> list[str]:
    """The texts that stand as values in the arguments, in order."""
    return [piece.text for piece in found if piece.part == "value"]


def command_line(found: tuple[Piece, ...]) -> str:
    """Those texts as one line, so that a list of words reads as the command that it is."""
    return " ".join(values(found))


def ambiguity(call: ToolCall) -> str | None:
    """Why two parsers may read other arguments in the text of a call, as a code; else None."""
    if call.raw is None or not call.raw.strip():
        return None
    try:
        parse_strict(call.raw, max_bytes=MAX_EVENT_BYTES)
    except StrictJSONError as error:
        return error.problem
    return None


def _of_call(call: ToolCall) -> Iterator[Piece]:
    yield from _walk(call.args)
    if ambiguity(call) is not None and isinstance(call.raw, str) and call.raw != call.args:
        yield Piece("tool_args", call.raw, "raw")


def _walk(args: Any) -> Iterator[Piece]:
    """Without recursion, since a model may nest as deep as it likes."""
    rest: list[tuple[tuple[str | int, ...], Any]] = [((), args)]
    while rest:
        path, value = rest.pop()
        match value:
            case str():
                yield Piece("tool_args", value, "value", path)
            case dict():
                yield from (Piece("tool_args", key, "key", path) for key in value)
                rest += [(_deeper(path, key), part) for key, part in reversed(value.items())]
            case list() | tuple():
                rest += [(_deeper(path, n), part) for n, part in reversed(list(enumerate(value)))]
            case bool() | None:
                continue
            case int() | float():
                yield Piece("tool_args", _number(value), "number", path)


def _deeper(path: tuple[str | int, ...], step: str | int) -> tuple[str | int, ...]:
    return path if len(path) >= MAX_PATH else (*path, step)


def _number(value: float) -> str:
    # Python refuses to write very long integers in decimal; as they stand they are no number of anything.
    return str(value) if isinstance(value, float) or value.bit_length() < 2_000 else hex(value)


def _described(tool: Any) -> Iterator[str]:
    yield f"{tool.name}: {tool.description}"
    rest, keys = [tool.schema], dict[str, None]()
    while rest:
        match rest.pop():
            case str() as text:
                yield text
            case dict() as pairs:
                keys.update(dict.fromkeys(pairs))
                rest += reversed(pairs.values())
            case list() as items:
                rest += reversed(items)
    # The same few words, but for the names of parameters, which are the server's to choose.
    yield "\n".join(keys)
