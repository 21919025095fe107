"""Fingerprints of running text: digests of thirty-two letters from where a word begins.

Only letters and digits count, in one case, so wrapping, quoting, punctuation and markup change nothing, and a
passage of about fifty letters that is copied gives three of them. Scripts without blanks begin a word at each
letter; a word that is longer than a fingerprint also begins at each of a few letters in it, wherever it was
cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

from memoflow.inspection.normalise import normalised

__all__ = ["NEEDED", "WINDOW", "prints_of"]

WINDOW: Final = 32
"""Letters in a fingerprint."""

NEEDED: Final = 3
"""Fingerprints that two texts must share; fewer are shared by phrases that everybody uses."""

_DIGEST: Final = 8
_WORD: Final = re.compile(r"[a-z0-9]+|[^\W_]")
_INSIDE: Final = re.compile("[aekq27]")


def prints_of(text: str, key: bytes) -> list[bytes]:
    """The fingerprints of a text, in order, under a key."""
    words = _WORD.findall(normalised(text).casefold())
    letters = "".join(words)
    return [
        blake2b(letters[at : at + WINDOW].encode("utf-8", "replace"), key=key, digest_size=_DIGEST).digest()
        for at in _starts(words)
        if at + WINDOW <= len(letters)
    ]


def _starts(words: list[str]) -> Iterator[int]:
    at = 0
    for word in words:
        yield at
        if len(word) > WINDOW:
            yield from (at + match.start() for match in _INSIDE.finditer(word, 1))
        at += len(word)
