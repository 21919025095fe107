"""What untrusted texts of a session said, so that it is known again in the arguments of a later call.

Kept are keyed digests: of running text (`memoflow.inspection.prints`), of short values
(`memoflow.inspection.atoms`) and of words. What the user or the developer wrote too is no taint: it is
theirs.

A text cannot drive out what others left. When there is no room, the text with the most fingerprints is
thinned by half, again and again, and needs fewer of them to be known again; of values each text may leave
so many.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from memoflow.errors import InvalidRequest
from memoflow.inspection.atoms import Atom, Atoms
from memoflow.inspection.events import Source
from memoflow.inspection.matching import MAX_TEXT_BYTES, encoded
from memoflow.inspection.normalise import views
from memoflow.inspection.prints import NEEDED, prints_of
from memoflow.inspection.remembering import Remembered

__all__ = ["Extract", "Mark", "Reader", "Taint"]

Value = tuple[Atom, bytes]

MAX_PRINTS: Final = 32_768
"""Most fingerprints of one session."""

MAX_VALUES: Final = 2_048
"""Most values that one text may leave."""

MAX_WORDS: Final = 8_192
"""Most words that one text may leave."""

MAX_TEXTS: Final = 4_096
"""Most texts of one session; of those after them nothing is kept, which is told."""

# Hosts are named everywhere: what only shares a host with a result was not taken from it.
_TELLING: Final[frozenset[Atom]] = frozenset({"account", "email", "url"})


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a text came from, and in which event."""

    source: Source
    seq: int


@dataclass(frozen=True, slots=True)
class Extract:
    """All that is kept of a text; ``chains`` are its paths with those above them, to be looked up only."""

    prints: tuple[bytes, ...] = field(default=(), repr=False)
    atoms: frozenset[Value] = field(default=frozenset(), repr=False)
    words: frozenset[bytes] = field(default=frozenset(), repr=False)
    chains: frozenset[tuple[Value, ...]] = field(default=frozenset(), repr=False)


class Reader:
    """Reads texts under one key, and remembers the last ones by their digests, since history is sent again.

    Args:
        key: secret of 16 to 64 bytes.
    """

    __slots__ = ("_atoms", "_read", "key")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self._atoms = Atoms(key)
        self._read: Remembered[Extract] = Remembered(key)

    def read(self, text: str) -> Extract:
        """What is kept of a text, of its first `MAX_TEXT_BYTES`."""
        data = encoded(text)[:MAX_TEXT_BYTES]
        return self._read.of(data, lambda: self._extract(data.decode("utf-8", "ignore")))

    def atom(self, kind: Atom, value: str) -> Value:
        """The digest of one value that was read elsewhere."""
        return kind, self._atoms.digest(kind, value)

    def _extract(self, text: str) -> Extract:
        atoms, prints = self._atoms, tuple(prints_of(text, self.key))
        values: frozenset[Value] = frozenset()
        chains: frozenset[tuple[Value, ...]] = frozenset()
        for view in views(text):
            values |= atoms.of(view.text)
            chains |= atoms.chains(view.text)
        return Extract(prints, values, atoms.words(text), chains)


@dataclass(slots=True)
class _Text:
    """What is kept of one untrusted text; ``halvings`` is how often it was thinned."""

    mark: Mark
    prints: set[bytes]
    halvings: int = 0

    @property
    def needed(self) -> int:
        return max(1, NEEDED >> self.halvings)


@dataclass(slots=True)
class _Trusted:
    """What is kept of all texts of the user and the developer; the prints in their order."""

    prints: dict[bytes, None] = field(default_factory=dict)
    atoms: set[Value] = field(default_factory=set)
    words: set[bytes] = field(default_factory=set)


class Taint:
    """The untrusted and the trusted texts of one session. Not for several threads at once.

    Args:
        reader: what reads texts.
    """

    __slots__ = ("_atoms", "_by_print", "_names", "_texts", "_words", "full", "prompts", "reader", "trusted")

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._texts: list[_Text] = []
        self._names: dict[bytes, int] = {}
        self._by_print: dict[bytes, int] = {}
        self._atoms: dict[Value, int] = {}
        self._words: dict[bytes, int] = {}
        self.trusted = _Trusted()
        self.prompts = 0
        self.full = False

    def record(self, text: str, mark: Mark) -> None:
        """Keep what an untrusted text said; the same text again only makes its mark the earlier of both."""
        name = blake2b(encoded(text), key=self.reader.key, digest_size=16).digest()
        known = self._names.get(name)
        if known is not None:
            self._texts[known].mark = min(self._texts[known].mark, mark, key=lambda one: one.seq)
        elif len(self._texts) >= MAX_TEXTS:
            self.full = True
        else:
            self._names[name] = len(self._texts)
            self._keep(self.reader.read(text), mark)

    def trust(self, text: str) -> None:
        """Keep what the user or the developer wrote."""
        found = self.reader.read(text)
        self.prompts += 1
        self.trusted.prints.update(dict.fromkeys(found.prints))
        self.trusted.atoms |= found.atoms
        self.trusted.words |= found.words

    def check(self, text: str) -> Mark | None:
        """The earliest untrusted text that this one was made of, if any."""
        found = self.reader.read(text)
        marks = [*self._by_prints(found), *self._by_atoms(found)]
        return min(marks, key=lambda mark: mark.seq, default=None)

    def origin(self, *chain: Value) -> Mark | None:
        """Where a value came from, if it was an untrusted text and nobody trusted said it too.

        Of a path and those above it, the deepest one that anybody has named decides.
        """
        for atom in chain:
            if atom in self.trusted.atoms:
                return None
            if atom in self._atoms and atom[0] != "place":
                return self._texts[self._atoms[atom]].mark
        return None

    def origin_of_words(self, words: Iterable[bytes]) -> Mark | None:
        """The same for a name in words: all were read in untrusted texts, and not all in trusted ones."""
        asked = set(words)
        if not asked or asked <= self.trusted.words or not asked <= self._words.keys():
            return None
        marks = [self._texts[self._words[word]].mark for word in asked - self.trusted.words]
        return max(marks, key=lambda mark: mark.seq)

    def _keep(self, found: Extract, mark: Mark) -> None:
        number = len(self._texts)
        own = {one for one in found.prints if self._by_print.setdefault(one, number) == number}
        self._texts.append(_Text(mark, own))
        self.full = self.full or len(found.atoms) > MAX_VALUES or len(found.words) > MAX_WORDS
        # Sorted, so that which of too many are kept does not depend on the process.
        for atom in sorted(found.atoms)[:MAX_VALUES]:
            self._atoms.setdefault(atom, number)
        for word in sorted(found.words)[:MAX_WORDS]:
            self._words.setdefault(word, number)
        while len(self._by_print) > MAX_PRINTS:
            self._thin(max(self._texts, key=lambda text: len(text.prints)))

    def _thin(self, text: _Text) -> None:
        text.halvings += 1
        # By the digests' own bits, so that two texts that say the same keep the same.
        byte, bit = divmod(text.halvings - 1, 8)
        gone = {one for one in text.prints if one[byte % len(one)] >> bit & 1}
        text.prints -= gone
        for one in gone:
            del self._by_print[one]

    def _by_prints(self, found: Extract) -> list[Mark]:
        if not found.prints or not self._by_print:
            return []
        fresh = {one for one in found.prints if one not in self.trusted.prints}
        counts = Counter(self._by_print[one] for one in fresh if one in self._by_print)
        if counts.total() >= NEEDED:
            return [self._texts[number].mark for number in counts]
        return [self._texts[n].mark for n, count in counts.items() if count >= self._texts[n].needed]

    def _by_atoms(self, found: Extract) -> list[Mark]:
        alone = ((atom,) for atom in found.atoms if atom[0] in _TELLING)
        marks = (self.origin(*chain) for chain in (*alone, *found.chains))
        return [mark for mark in marks if mark is not None]

    def snapshot(self) -> dict[str, Any]:
        """All of it as plain JSON, digests only, for `restore` under the same key."""
        return {
            "texts": [
                [one.mark.source.origin, one.mark.source.name, one.mark.seq, one.halvings]
                for one in self._texts
            ],
            "names": _packed_index(self._names),
            "prints": _packed_index(self._by_print),
            "atoms": [[kind, digest.hex(), number] for (kind, digest), number in self._atoms.items()],
            "words": _packed_index(self._words),
            "trusted": {
                "prints": _packed(self.trusted.prints),
                "atoms": sorted([kind, digest.hex()] for kind, digest in self.trusted.atoms),
                "words": _packed(sorted(self.trusted.words)),
            },
            "prompts": self.prompts,
            "full": self.full,
        }

    def restore(self, given: dict[str, Any]) -> None:
        """Take over a snapshot.

        Raises:
            InvalidRequest: it is none.
        """
        try:
            self._restore(given)
        except (KeyError, TypeError, ValueError, IndexError):
            raise InvalidRequest(
                "A snapshot of a session's taint is damaged. Begin the session anew from its history."
            ) from None

    def _restore(self, given: dict[str, Any]) -> None:
        self._texts = [
            _Text(Mark(Source(origin, name), seq), set(), halvings)
            for origin, name, seq, halvings in given["texts"]
        ]
        self._names = _unpacked_index(given["names"], 16)
        self._by_print = _unpacked_index(given["prints"], 8)
        for one, number in self._by_print.items():
            self._texts[number].prints.add(one)
        self._atoms = {(kind, bytes.fromhex(digest)): number for kind, digest, number in given["atoms"]}
        self._words = _unpacked_index(given["words"], 12)
        trusted = given["trusted"]
        self.trusted = _Trusted(
            dict.fromkeys(_unpacked(trusted["prints"], 8)),
            {(kind, bytes.fromhex(digest)) for kind, digest in trusted["atoms"]},
            set(_unpacked(trusted["words"], 12)),
        )
        self.prompts, self.full = given["prompts"], given["full"]


def _packed(digests: Iterable[bytes]) -> str:
    return base64.b64encode(b"".join(digests)).decode()


def _unpacked(text: str, size: int) -> list[bytes]:
    data = base64.b64decode(text, validate=True)
    if len(data) % size:
        raise ValueError(size)
    return [data[at : at + size] for at in range(0, len(data), size)]


def _packed_index(index: dict[bytes, int]) -> list[Any]:
    return [_packed(index), list(index.values())]


def _unpacked_index(given: list[Any], size: int) -> dict[bytes, int]:
    return dict(zip(_unpacked(given[0], size), given[1], strict=True))
