"""The credentials of this very process, wherever and however they are written.

A format only says what a credential may look like; that it is the one of this process is certain. Each is
looked for raw, in base64 and base64url (at each of the three positions it may have in them), in
hexadecimal, percent-encoded and reversed, and across texts that were cut. Only keyed digests and the first
four letters of each writing are kept.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from secrets import token_bytes
from typing import Final, Self
from urllib.parse import quote, urlsplit

from memoflow.errors import ConfigurationError
from memoflow.inspection.detectors.secrets import Hit
from memoflow.inspection.matching import encoded, first_of

__all__ = ["KnownValues"]

MIN_BYTES: Final = 8
"""Shortest value that is looked for; shorter ones stand in many texts by chance."""

_HEAD: Final = 4
_START: Final = 24
_NAMES: Final = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "COOKIE")
_NOT_SECRET: Final = ("PUBLIC_KEY", "KEY_ID", "KEYRING_NAME", "_FILE", "_PATH", "_DIR", "_URL")


@dataclass(frozen=True, slots=True)
class _Writing:
    """``start`` is the digest of its first `_START` bytes: a text of the same few letters again and again is
    told from a long value by these."""

    name: str
    length: int
    start: bytes
    digest: bytes


class _Starts:
    """Digests of what may be the start of a value, each made once: a text may be of few letters only."""

    __slots__ = ("_key", "_made")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._made: dict[bytes, bytes] = {}

    def digest(self, start: bytes) -> bytes:
        made = self._made.get(start)
        if made is None:
            made = self._made[start] = blake2b(start, key=self._key).digest()
        return made


class KnownValues:
    """Values that must not leave.

    Args:
        values: the values by a name that may be told, such as that of the variable they come from.

    Raises:
        ConfigurationError: a value is too short to be told from other text.
    """

    __slots__ = ("_heads", "_key", "names")

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._key = token_bytes(32)
        self._heads: dict[bytes, list[_Writing]] = {}
        self.names = tuple(sorted(values or {}))
        for name, value in sorted((values or {}).items()):
            data = value.encode("utf-8", "replace")
            if len(data) < MIN_BYTES:
                raise ConfigurationError(
                    f"The known value {name!r} has {len(data)} bytes; at least {MIN_BYTES} are needed to "
                    "tell it from other text. Leave it out."
                )
            for writing in _writings(data):
                self._add(name, writing)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Those variables that are credentials by their names, and the passwords in URLs."""
        found: dict[str, str] = {}
        for name, value in environment.items():
            upper = name.upper()
            password = _password(value)
            if password is not None:
                found[name] = password
            elif any(word in upper for word in _NAMES) and not upper.endswith(_NOT_SECRET):
                found[name] = value
        return cls({name: value for name, value in found.items() if len(value.encode()) >= MIN_BYTES})

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"KnownValues({len(self)} values)"

    def find(self, data: bytes) -> Iterator[tuple[str, Hit]]:
        """The names of the values that stand in a text, and where."""
        if not self._heads:
            return
        view, heads, starts = memoryview(data), self._heads, _Starts(self._key)
        for at in range(len(data) - _HEAD + 1):
            for writing in heads.get(data[at : at + _HEAD], ()):
                start = starts.digest(data[at : at + _START])
                long = writing.length >= _START
                if (not long or start == writing.start) and self._is_at(view, at, writing):
                    yield writing.name, Hit("secret.known", "critical", 100, at, at + writing.length)

    def find_cut(self, texts: Iterable[str]) -> Iterator[tuple[str, Hit]]:
        """The values that stand in texts taken together, as they stand and without the blanks in them."""
        if self._heads:
            joined = "".join(texts)
            yield from self.find(first_of(encoded(joined))[0])
            yield from self.find(first_of(encoded("".join(joined.split())))[0])

    def _add(self, name: str, writing: bytes) -> None:
        known = self._heads.setdefault(writing[:_HEAD], [])
        digests = self._digest(writing[:_START]), self._digest(writing)
        known.append(_Writing(name, len(writing), *digests))

    def _is_at(self, view: memoryview, at: int, writing: _Writing) -> bool:
        end = at + writing.length
        return end <= len(view) and self._digest(view[at:end]) == writing.digest

    def _digest(self, data: bytes | memoryview) -> bytes:
        return blake2b(data, key=self._key).digest()


def _writings(value: bytes) -> set[bytes]:
    found = {value, value[::-1], value.hex().encode(), value.hex().upper().encode()}
    found.add(quote(value, safe="").encode())
    for shift in range(3):
        code = base64.b64encode(bytes(shift) + value)
        # The first and last letters also hold bits of what stands before and after it.
        inner = code[-(-shift * 8 // 6) : len(code) - (0, 3, 2)[(shift + len(value)) % 3]]
        if shift == 0 and len(value) % 3:
            found.add(code.rstrip(b"="))
        found |= {inner, inner.replace(b"+", b"-").replace(b"/", b"_")}
    return {writing for writing in found if len(writing) >= MIN_BYTES}


def _password(value: str) -> str | None:
    if "://" not in value:
        return None
    try:
        return urlsplit(value).password
    except ValueError:
        return None
