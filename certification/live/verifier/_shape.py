"""From bytes to evidence: nothing is read that could be read in two ways, and nothing of another form."""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError

from certification.live.evidence import Evidence, render
from memoflow.canonical import StrictJSONError, parse_strict

__all__ = ["MAX_BYTES", "Unreadable", "read_evidence"]

MAX_BYTES: Final = 256 * 1024
"""Most bytes of a file; a run makes some 30,000."""

_MAX_DEPTH: Final = 12
_MAX_DIGITS: Final = 20
_SHOWN: Final = 20
_LONGEST: Final = 60


class Unreadable(Exception):
    """What was read is no evidence.

    Attributes:
        findings: why, in sentences.
    """

    def __init__(self, *findings: str) -> None:
        self.findings = findings
        super().__init__("\n".join(findings))


def read_evidence(data: bytes) -> Evidence:
    """The evidence in a file.

    Raises:
        Unreadable: it is not JSON of the one form, or not written in the one way.
    """
    try:
        parse_strict(data, max_bytes=MAX_BYTES, max_depth=_MAX_DEPTH, max_digits=_MAX_DIGITS)
    except StrictJSONError as error:
        raise Unreadable(str(error)) from None
    try:
        evidence = Evidence.model_validate_json(data)
    except ValidationError as error:
        problems = error.errors(include_input=False, include_url=False, include_context=False)
        raise Unreadable(*(_sentence(p["loc"], p["msg"]) for p in problems[:_SHOWN])) from None
    if render(evidence) != data:
        raise Unreadable(
            "The file is not written as evidence is: the same content stands in other bytes (white space, "
            "line ends, order of fields, escapes). Check the file as it was made."
        )
    return evidence


def _sentence(place: tuple[int | str, ...], message: str) -> str:
    where = ascii(".".join(map(str, place)))[1:-1]
    shown = where if len(where) <= _LONGEST else f"{where[:_LONGEST]}..."
    return f"{shown or 'The document'}: {message}."
