"""What is looked for in the texts of an event, one module a family."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from memoflow.inspection.detectors.commands import commands
from memoflow.inspection.detectors.injection import injection
from memoflow.inspection.detectors.known import KnownValues
from memoflow.inspection.detectors.pii import pii
from memoflow.inspection.detectors.secrets import Hit, secrets
from memoflow.inspection.facets import Piece, values
from memoflow.inspection.findings import Finding
from memoflow.inspection.matching import MAX_TEXT_BYTES, encoded, first_of
from memoflow.inspection.normalise import View, views

__all__ = ["Detected", "KnownValues", "detect"]

_Family = Callable[[bytes], Iterator[Hit]]
# How a text that was decoded looks does not matter: all that is decoded looked random before.
_IN_CODE: Final = "secret.generic"


class Detected:
    """What was found in the texts of one event; ``cut`` tells that not all of a text was looked at."""

    __slots__ = ("cut", "findings")

    def __init__(self, findings: tuple[Finding, ...], cut: bool) -> None:
        self.findings, self.cut = findings, cut


def detect(pieces: tuple[Piece, ...], known: KnownValues, meant: frozenset[Piece] = frozenset()) -> Detected:
    """Look for everything in every text of an event, however it is written.

    Args:
        pieces: the texts.
        known: credentials of this process.
        meant: texts that are meant to hold somebody's data, such as the account that is paid.
    """
    findings: list[Finding] = []
    cut = False
    for piece in pieces:
        data, longer = first_of(encoded(piece.text))
        cut = cut or longer
        for view in views(data.decode("utf-8", "ignore") if longer else piece.text):
            findings += _in_view(piece, view, known, personal=piece not in meant)
    texts = values(pieces)
    if texts:
        found = known.find_cut(texts)
        findings += [_finding(hit, pieces[0], View("joined", ""), name) for name, hit in found]
    # What stands behind so much is not looked at as part of a command.
    cut = cut or len(encoded(" ".join(texts))) > MAX_TEXT_BYTES
    return Detected(tuple(dict.fromkeys(findings)), cut)


def _in_view(piece: Piece, view: View, known: KnownValues, *, personal: bool) -> Iterator[Finding]:
    data = encoded(view.text)
    for name, hit in known.find(data):
        yield _finding(hit, piece, view, name)
    for family in _families(piece, personal):
        for hit in family(data):
            if view.how == "raw" or hit.detector != _IN_CODE:
                yield _finding(hit, piece, view)


def _families(piece: Piece, personal: bool) -> Iterator[_Family]:
    yield from (secrets, injection)
    if personal:
        yield pii
    if piece.facet == "tool_args":
        yield commands


def _finding(hit: Hit, piece: Piece, view: View, label: str = "") -> Finding:
    return Finding(
        detector=hit.detector,
        severity=hit.severity,
        confidence=hit.confidence,
        facet=piece.facet,
        length=hit.end - hit.start,
        span=(hit.start, hit.end) if view.how == "raw" else None,
        view=view.how,
        label=label,
    )
