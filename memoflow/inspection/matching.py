r"""Patterns that are matched in linear time, whatever text is put before them.

RE2 knows no backreferences and no look-around, and in return no text makes it slow. Python's own ``re`` takes
quadratic time and worse on patterns that are harmless to look at (twenty thousand times the letter ``a``
against one for e-mail addresses: 0.8 s), so nothing that reads a model's text uses it.

Texts are matched as UTF-8, so positions are in bytes. ``\b`` and ``\w`` know ASCII alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from memoflow.errors import ConfigurationError

__all__ = ["Pattern", "encoded", "first_of"]

MAX_TEXT_BYTES: Final = 256 * 1024
"""Most bytes of one text that are looked at; what is longer is marked as cut."""

_MEMORY: Final = 32 * 1024 * 1024


def encoded(text: str) -> bytes:
    """A text as it is matched; lone surrogates, which are no text, become question marks."""
    return text.encode("utf-8", "replace")


def first_of(data: bytes) -> tuple[bytes, bool]:
    """As much of a text as is looked at, and whether that is less than all of it."""
    return data[:MAX_TEXT_BYTES], len(data) > MAX_TEXT_BYTES


class Pattern:
    """A pattern in RE2's syntax, compiled when it is first used.

    Args:
        source: the pattern.
        needs: a match holds at least one of these; without any, RE2 is not asked. In lower case for a
            pattern that ignores case.
        ignore_case: whether ASCII letters match in both cases.
    """

    __slots__ = ("_ignore_case", "_needs", "source")

    def __init__(self, source: str, *, needs: tuple[str, ...] = (), ignore_case: bool = False) -> None:
        self.source = source
        self._needs = tuple(need.encode() for need in needs)
        self._ignore_case = ignore_case

    def spans(self, data: bytes, group: int = 0) -> Iterator[tuple[int, int]]:
        """Where it matches, from left to right, without overlaps; groups that match nothing are left out."""
        if self._may_match(data):
            for match in _compiled(self.source, self._ignore_case).finditer(data):
                start, end = match.span(group)
                if start >= 0:
                    yield start, end

    def texts(self, data: bytes, group: int = 0) -> list[str]:
        """What it matches, as text."""
        return [data[start:end].decode("utf-8", "replace") for start, end in self.spans(data, group)]

    def replaced(self, data: bytes, write: Callable[[str], str]) -> str:
        """The text with each match written otherwise."""
        parts, at = [], 0
        for start, end in self.spans(data):
            parts += [
                data[at:start].decode("utf-8", "replace"),
                write(data[start:end].decode("ascii", "replace")),
            ]
            at = end
        return "".join(parts) + data[at:].decode("utf-8", "replace")

    def found_in(self, data: bytes) -> bool:
        """Whether it matches anywhere."""
        return self._may_match(data) and _compiled(self.source, self._ignore_case).search(data) is not None

    def _may_match(self, data: bytes) -> bool:
        if not self._needs:
            return True
        looked_at = data.lower() if self._ignore_case else data
        return any(need in looked_at for need in self._needs)


@lru_cache(maxsize=1_024)
def _compiled(source: str, ignore_case: bool) -> Any:
    options = _re2().Options()
    options.case_sensitive = not ignore_case
    options.max_mem = _MEMORY
    options.log_errors = False
    return _re2().compile(source, options)


def _re2() -> Any:
    try:
        import re2
    except ModuleNotFoundError as missing:
        if missing.name not in ("re2", "_re2"):
            raise
        raise ConfigurationError(
            "Inspection matches with RE2, which is not installed: pip install 'memoflow-runtime[inspection]'."
        ) from None
    return re2
