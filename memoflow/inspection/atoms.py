"""The short values of a text that decide where something goes: addresses, accounts, URLs, hosts, paths.

They are kept as keyed digests of one spelling each, so that the same value is found again however it was
written, and nobody who reads what is kept learns the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final, Literal

from memoflow.inspection.detectors.pii import iban
from memoflow.inspection.hosts import bare_host, hosts_in
from memoflow.inspection.matching import Pattern, encoded

__all__ = ["Atom", "Atoms", "atoms_in", "chain", "words_in"]

Atom = Literal["account", "email", "host", "path", "place", "url"]
"""Kinds of values; a ``place`` is a path too short to be told from any other."""

_URL: Final = Pattern(r"[A-Za-z][A-Za-z0-9+.-]{1,31}://[^\s\"'`<>\[\](){}|\\]{4,}", needs=("://",))
_EMAIL: Final = Pattern(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+", needs=("@",))
_PATH: Final = Pattern(
    r"(?:^|[\s\"'`(<\[=:,;@|&>])((?:~|\$HOME|\$\{HOME\})?/[A-Za-z0-9._@%+~-][A-Za-z0-9._/@%+~-]*)",
    needs=("/",),
)
_ACCOUNT: Final = Pattern(
    r"\b(?:[A-Z]{2}\d{2}(?:[ ]?[A-Za-z0-9]{4}){2,7}(?:[ ]?[A-Za-z0-9]{1,4})?"
    r"|0x[0-9A-Fa-f]{40}|bc1[a-z0-9]{25,60}|\d(?:[ -]?\d){7,25})\b"
)
_DOMAIN: Final = Pattern(r"\b(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z]{2,24}\b", needs=(".",))
_ENDS: Final = ".,;:!?)]}>\"'`*"
_WORD: Final = re.compile(r"[^\W_]+")
MAX_DEPTH: Final = 64
"""Most directories of a path that are told apart."""

_MIN_URL: Final = 12
_MIN_PATH: Final = 3
# Where a path has one of these, it is told apart by that alone.
_MARKS: Final = ("/.", ".env", "id_rsa", "id_ed25519", "credentials", "authorized_keys", "/etc/", "~")
# What stands at the end of a file's name, and is no domain.
_FILE_ENDINGS: Final = (
    "c cc cfg conf cpp css csv doc docx gif go gz h html ini ipynb java jpeg jpg js json jsx key lock log "
    "lua md mjs pdf pem php pl png ppt pptx ps1 pub py rb rs rst rtf sh sql svg tar toml ts tsv tsx txt vue "
    "xls xlsx xml yaml yml zip"
)
_EXTENSIONS: Final = frozenset(_FILE_ENDINGS.split())


class Atoms:
    """Turns values into keyed digests.

    Args:
        key: secret of 16 to 64 bytes; digests of another key are other digests.
    """

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def digest(self, kind: str, value: str) -> bytes:
        """The digest of one value, 12 bytes."""
        return blake2b(f"{kind}:{value}".encode("utf-8", "replace"), key=self._key, digest_size=12).digest()

    def of(self, text: str) -> frozenset[tuple[Atom, bytes]]:
        """The digests of all values in a text, by their kinds."""
        return frozenset((kind, self.digest(kind, value)) for kind, value in atoms_in(text))

    def chains(self, text: str) -> frozenset[tuple[tuple[Atom, bytes], ...]]:
        """The digests of the paths of a text, each with those of the directories above it."""
        paths = (path for kind, path in atoms_in(text) if kind in ("path", "place"))
        return frozenset(
            tuple((kind, self.digest(kind, part)) for kind, part in chain(path)) for path in paths
        )

    def words(self, text: str) -> frozenset[bytes]:
        """The digests of the words of a text."""
        return frozenset(self.digest("word", word) for word in words_in(text))


def words_in(text: str) -> set[str]:
    """The words of a text, in one spelling."""
    return set(_WORD.findall(text.casefold()))


def atoms_in(text: str) -> Iterator[tuple[Atom, str]]:
    """The values in a text, each with its kind and in one spelling."""
    data = encoded(text)
    for url in dict.fromkeys(_URL.texts(data)):
        if len(url) >= _MIN_URL:
            yield "url", url.rstrip(_ENDS).rstrip("/").lower()
    for email in dict.fromkeys(_EMAIL.texts(data)):
        yield "email", email.rstrip(".").lower()
    for account in _ACCOUNT.texts(data):
        yield from _account(account)
    for path in dict.fromkeys(_PATH.texts(data, 1)):
        plain = path.rstrip(_ENDS).rstrip("/").replace("${HOME}", "~").replace("$HOME", "~").lower()
        yield _kind_of_path(plain), plain
    for host in hosts_in(text):
        yield "host", host.name
    for name in dict.fromkeys(_DOMAIN.texts(data)):
        if name.rpartition(".")[2].lower() not in _EXTENSIONS:
            yield from (("host", host.name) for host in bare_host(name))


def _account(text: str) -> Iterator[tuple[Atom, str]]:
    plain = text.replace(" ", "").replace("-", "").lower()
    if not plain[:2].isalpha() or plain.startswith("bc1") or iban(plain.upper().encode()):
        yield "account", plain


def chain(path: str) -> Iterator[tuple[Atom, str]]:
    """A path in one spelling, then the directories above it, up to the root.

    Of one that is deeper than `MAX_DEPTH` that much: each directory is as long as all above it.
    """
    segments = path.split("/", MAX_DEPTH + 1)[: MAX_DEPTH + 1]
    for end in range(len(segments), 1, -1):
        part = "/".join(segments[:end])
        yield _kind_of_path(part), part


def _kind_of_path(path: str) -> Atom:
    segments = path.split("/")
    telling = len(segments) > _MIN_PATH or "." in segments[-1] or any(mark in path for mark in _MARKS)
    return "path" if telling else "place"
