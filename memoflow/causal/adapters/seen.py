"""What was seen of a provider's calls and results, whatever API it came from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from memoflow.canonical import JSON, StrictJSONError, freeze_json, parse_strict
from memoflow.causal._frozen import freeze
from memoflow.causal.envelopes import Shape

__all__ = ["Seen", "SeenCall", "SeenResult", "content", "parts"]

_MAX_BYTES: Final = 64 << 20
_BLANKS: Final = " \t\r\n"


@dataclass(frozen=True, slots=True)
class SeenResult:
    """The result of a call, as it was given to the model or by the provider.

    Attributes:
        kind: the provider's type of it.
        call_id: which call it says it belongs to.
        output: what came out, as JSON.
        is_error: whether it says that the call failed.
    """

    kind: str
    call_id: str | None
    output: JSON = field(repr=False)
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class SeenCall:
    """One call of a tool, as the provider sent it.

    Attributes:
        shape: of the envelope, which says what API it is.
        kind: the provider's type of it.
        call_id: the provider's id; transport, never lineage.
        name: of the tool.
        arguments: parsed; text that is no JSON stays text.
        result_kind: the type that its result must have; None where any will do.
        hosted: whether the provider executed it, so that nothing could be checked before.
        stop_reason: why the model stopped, where the API says that.
        result: of a hosted call whose result stands in the call itself.
    """

    shape: Shape
    kind: str
    call_id: str | None
    name: str | None
    arguments: JSON = field(repr=False)
    result_kind: str | None = None
    hosted: bool = False
    stop_reason: str | None = None
    result: SeenResult | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Seen:
    """Calls and results in the order in which they stand."""

    calls: tuple[SeenCall, ...]
    results: tuple[SeenResult, ...]


def parts(given: Iterable[object]) -> list[dict[str, JSON]]:
    """Items or blocks as plain JSON: dicts, or objects of an SDK. What is no JSON object is left out.

    Raises:
        InvalidRequest: one of them has no JSON form.
    """
    return [part for part in map(freeze_json, given) if isinstance(part, dict)]


def content(text: JSON, *, blank: JSON = "") -> JSON:
    """Text that is one JSON document as that document, other text as it is; frozen.

    So a result has one digest, however its JSON was written.
    """
    if isinstance(text, str):
        if not text.strip(_BLANKS):
            return blank
        try:
            return freeze(parse_strict(text, max_bytes=_MAX_BYTES))
        except StrictJSONError:
            return text
    return freeze(text)
