"""The ways to read a text that hides what it says: other letters, nothing to see, and bounded decodings.

Each view is a text that somebody downstream may arrive at. They are looked at beside the raw text, never
instead of it.
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from memoflow.inspection.matching import MAX_TEXT_BYTES, Pattern, encoded

__all__ = ["View", "normalised", "views"]

MAX_DECODINGS: Final = 3
"""Most decodings one inside the other."""

MAX_VIEWS: Final = 64
"""Most views of one text."""

_MAX_TOTAL: Final = 2 * MAX_TEXT_BYTES
_MIN_ENCODED: Final = 16
_BASE64: Final = Pattern(r"[A-Za-z0-9+/_-]{16,}={0,2}")
_WRAPPED: Final = Pattern(r"(?:[A-Za-z0-9+/_-]{16,}\r?\n[ \t]{0,8})+[A-Za-z0-9+/_-]+={0,2}", needs=("\n",))
_HEX: Final = Pattern(r"(?:0[xX])?((?:[0-9A-Fa-f]{2}){8,})")
_INVISIBLE: Final = dict.fromkeys(
    [
        0xAD,
        0x34F,
        0x61C,
        0x115F,
        0x1160,
        0x17B4,
        0x17B5,
        0x180E,
        *range(0x200B, 0x2010),
        *range(0x202A, 0x202F),
        *range(0x2060, 0x2070),
        0x3164,
        *range(0xFE00, 0xFE10),
        0xFEFF,
        0xFFA0,
        *range(0xE0100, 0xE01F0),
    ]
)
_TAGS: Final = range(0xE0000, 0xE0080)
_ESCAPE: Final = Pattern(r"\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2})", needs=("\\",))
_ENTITY: Final = Pattern(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});?", needs=("&",))
_SPELLED: Final = Pattern(r" ?[\[({<] ?(?:at|dot) ?[\])}>] ?", needs=("at", "dot"), ignore_case=True)
# Letters that look like Latin ones, those of https://www.unicode.org/reports/tr39/ that are in use for it:
# Cyrillic with some Armenian, and Greek.
_LOOK_ALIKES: Final = str.maketrans(
    "\u0430\u0432\u0441\u0501\u0435\u04bb\u0456\u0458\u04cf\u043a\u043c\u0578\u043e\u0440\u051b\u0433"
    "\u0455\u0442\u057d\u0475\u051d\u0445\u0443\u0461\u1d00\u0410\u0412\u0421\u0415\u041d\u0406\u0408"
    "\u041a\u041c\u041e\u0420\u0405\u0422\u0425\u0423\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c"
    "\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03b1\u03b5\u03b9\u03ba\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7"
    "\u03f2\u03f3",
    "abcdehijlkmnopqrstuvwxywaABCEHIJKMOPSTXYABEZHIKMNOPTYXaeiknoptuxcj",
)


@dataclass(frozen=True, slots=True)
class View:
    """One reading of a text; ``how`` says which, outermost decoding first."""

    how: str
    text: str = field(repr=False)


def normalised(text: str) -> str:
    """NFKC without characters that show nothing, look-alikes of Latin letters written as these."""
    if text.isascii():
        return text
    seen = text.translate(_INVISIBLE)
    shown = "".join(c for c in seen if ord(c) not in _TAGS)
    return unicodedata.normalize("NFKC", shown).translate(_LOOK_ALIKES)


def views(text: str) -> list[View]:
    """The raw text first, then all that it can be read as, within bounds.

    At most `MAX_DECODINGS` deep, `MAX_VIEWS` in number, and together twice as long as one text may be.
    """
    found = [View("raw", text)]
    seen = {text}
    left = _MAX_TOTAL
    queue = [(View("raw", text), 0)]
    while queue:
        view, depth = queue.pop(0)
        for how, reading in _readings(view.text) if depth < MAX_DECODINGS else ():
            left -= len(reading)
            if left < 0 or len(found) >= MAX_VIEWS:
                return found
            if reading and reading not in seen:
                seen.add(reading)
                fresh = View(how if view.how == "raw" else f"{view.how}+{how}", reading)
                found.append(fresh)
                queue.append((fresh, depth + 1))
    return found


def _readings(text: str) -> Iterator[tuple[str, str]]:
    yield "normalised", normalised(text)
    if not text.isascii():
        yield "tags", "".join(chr(ord(c) - _TAGS.start) for c in text if ord(c) in _TAGS)
    yield from _rewritten(text)
    if "%" in text:
        yield "percent", unquote(text, errors="replace")
    if text.lstrip()[:1] in ("{", "[", '"'):
        yield "json", " ".join(_leaves(text))
    if len(text) >= _MIN_ENCODED:
        data = encoded(text)
        yield "base64", " ".join(_base64_texts(data))
        yield "hex", " ".join(_hex_texts(data))


def _rewritten(text: str) -> Iterator[tuple[str, str]]:
    """What stands for a letter, as that letter; a text without any gives itself, which is no new view."""
    data = encoded(text)
    yield "escapes", _ESCAPE.replaced(data, lambda found: chr(int(found[2:], 16)))
    yield "html", _ENTITY.replaced(data, html.unescape)
    yield "spelled", _SPELLED.replaced(data, lambda found: "@" if "a" in found.lower() else ".")


def _leaves(text: str) -> list[str]:
    try:
        # A number as the text that it is: one that Python refuses must hide nothing, and may be a card's.
        value = json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return []
    leaves, rest = [], [value]
    while rest:
        match rest.pop():
            case str() as leaf:
                leaves.append(leaf)
            case list() as items:
                rest += reversed(items)
            case dict() as pairs:
                rest += reversed([part for pair in pairs.items() for part in pair])
    return leaves


def _base64_texts(data: bytes) -> Iterator[str]:
    lines = (b"".join(data[start:end].split()) for start, end in _WRAPPED.spans(data))
    for coded in (*(data[start:end] for start, end in _BASE64.spans(data)), *lines):
        run = coded.rstrip(b"=").replace(b"-", b"+").replace(b"_", b"/")
        # A run that was cut is read as far as it goes.
        whole = run[: len(run) - (len(run) % 4 == 1)]
        decoded = base64.b64decode(whole + b"=" * (-len(whole) % 4))
        yield from _as_text(decoded)


def _hex_texts(data: bytes) -> Iterator[str]:
    for start, end in _HEX.spans(data, 1):
        try:
            yield from _as_text(binascii.unhexlify(data[start:end]))
        except binascii.Error:  # pragma: no cover - the pattern matches whole bytes
            continue


def _as_text(decoded: bytes) -> Iterator[str]:
    """The text, if it is one: what is not encoded decodes to noise."""
    try:
        text = decoded.decode()
    except UnicodeDecodeError:
        return
    readable: Any = sum(c.isprintable() or c in "\t\r\n" for c in text)
    if text and readable == len(text):
        yield text
