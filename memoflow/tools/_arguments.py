"""Arguments a model wrote: bounded, parsed strictly, checked against the model, never repaired."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from memoflow.canonical import JSON, Digester, StrictJSONError, canonical, parse_strict
from memoflow.tools._texts import refusal_text

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = [
    "MAX_ARGUMENTS_BYTES",
    "BoundArguments",
    "Check",
    "Problem",
    "Refusal",
    "bind_checked",
    "bind_json",
    "bind_text",
    "digest_source",
]

Problem: TypeAlias = tuple[tuple[int | str, ...], str]
"""Where something is wrong, and its kind: an identifier such as ``missing``."""

Check: TypeAlias = Callable[[dict[str, Any]], Sequence[Problem]]
"""Says what is wrong with a JSON object of arguments."""

MAX_ARGUMENTS_BYTES: Final = 1_048_576
"""Most UTF-8 bytes of the arguments of one call, unless another limit is given."""

INVALID_ARGUMENTS: Final = "INVALID_ARGUMENTS"

# An integer of more digits can exceed the largest double, and would then reach a float as infinity.
_MAX_DIGITS: Final = 308
_MAX_PROBLEMS: Final = 8
_MAX_PATH: Final = 80
_JSON_BLANKS: Final = " \t\r\n"
_KINDS: Final = {list: "an array", str: "a string", int: "a number", float: "a number", bool: "a boolean"}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that must not run. ``detail`` holds no argument value and no key of the model's own."""

    code: str
    detail: str

    @property
    def text(self) -> str:
        """What the model is told."""
        return refusal_text(self.code, self.detail)


@dataclass(frozen=True, slots=True)
class BoundArguments:
    """Checked arguments, made afresh for one execution.

    Attributes:
        args: positional arguments of the function.
        kwargs: keyword arguments of the function, without ``call``.
        digest_source: the bytes the arguments digest covers: canonical JSON, or a custom tool's raw text.
        claim: what stood in the reserved member for an audit claim, which is no argument; None for nothing.
    """

    args: tuple[Any, ...] = field(repr=False)
    kwargs: dict[str, Any] = field(repr=False)
    digest_source: bytes = field(repr=False)
    claim: JSON = field(default=None, repr=False)

    def digest(self, digester: Digester) -> str:
        """The tagged digest of the arguments."""
        return digester.bytes(self.digest_source)


def bind_text(raw: str, max_bytes: int) -> bytes | Refusal:
    """The bytes of a custom tool's input, which is never parsed."""
    try:
        data = raw.encode()
    except UnicodeEncodeError:
        return _refuse("The input holds a lone surrogate, which cannot be stored or sent (LONE_SURROGATE).")
    if len(data) > max_bytes:
        return _refuse(f"The input has {len(data)} bytes, {max_bytes} at most (TOO_LARGE).")
    return data


def bind_json(
    raw: str, model: type[BaseModel], names: frozenset[str], max_bytes: int
) -> tuple[BaseModel, bytes] | Refusal:
    """The checked model and the canonical bytes it was read from.

    Args:
        raw: the provider's text; blank counts as ``{}``.
        model: checks the arguments.
        names: the keys that may be named in a refusal.
        max_bytes: most UTF-8 bytes of ``raw``.
    """
    read = _read_object(raw, max_bytes)
    if isinstance(read, Refusal):
        return read
    # Here and not at the top: importing memoflow is to be cheap, and whoever has a model has pydantic.
    from pydantic import ValidationError

    try:
        return model.model_validate_json(read, strict=True, extra="forbid"), read
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        return _refuse(_describe([(problem["loc"], problem["type"]) for problem in problems], names))
    except Exception as error:
        return _refuse_unchecked(error)


def bind_checked(raw: str, check: Check, names: frozenset[str], max_bytes: int) -> BoundArguments | Refusal:
    """The arguments as one plain JSON object, where something else than a model checks them."""
    read = _read_object(raw, max_bytes)
    if isinstance(read, Refusal):
        return read
    value: dict[str, Any] = json.loads(read)
    try:
        problems = check(value)
    except Exception as error:
        return _refuse_unchecked(error)
    return _refuse(_describe(problems, names)) if problems else BoundArguments((value,), {}, read)


def digest_source(raw: str, *, custom: bool) -> bytes | None:
    """The bytes that the digest of a call's arguments covers; None where they are refused.

    Args:
        raw: the provider's text of the arguments.
        custom: whether they are the raw text of a freeform call.
    """
    read = bind_text(raw, MAX_ARGUMENTS_BYTES) if custom else _read_object(raw, MAX_ARGUMENTS_BYTES)
    return None if isinstance(read, Refusal) else read


def _read_object(raw: str, max_bytes: int) -> bytes | Refusal:
    """The canonical bytes of the arguments: they are digested, and what the tool gets is read from them."""
    try:
        value = parse_strict(raw, max_bytes=max_bytes, max_digits=_MAX_DIGITS) if _has_text(raw) else {}
    except StrictJSONError as error:
        return _refuse(f"The arguments are not acceptable. {error}")
    if not isinstance(value, dict):
        kind = _KINDS.get(type(value), "null")
        return _refuse(f"The arguments must be a JSON object, not {kind} (NOT_AN_OBJECT).")
    return canonical(value)


def _has_text(raw: str) -> bool:
    return bool(raw.strip(_JSON_BLANKS))


def _refuse(detail: str) -> Refusal:
    return Refusal(INVALID_ARGUMENTS, detail)


def _refuse_unchecked(error: Exception) -> Refusal:
    # Only code of the tool's own check can raise here. Nothing has run, so the call is a bad one.
    return _refuse(f"The arguments could not be checked: a validator raised {type(error).__name__[:80]}.")


def _describe(problems: Sequence[Problem], names: frozenset[str]) -> str:
    shown = [f"{_path(place, kind, names)}: {_type(kind)}" for place, kind in problems[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        shown.append(f"and {len(problems) - _MAX_PROBLEMS} more")
    return "; ".join(shown)


def _type(type: str) -> str:
    return type if re.fullmatch("[A-Za-z0-9_]{1,64}", type) else "invalid"


def _path(location: Iterable[int | str], type: str, names: frozenset[str]) -> str:
    """The place of a problem; a key the model made up, or an alternative of a union, is shown as ``*``."""
    parts = [f"[{part}]" if isinstance(part, int) else part if part in names else "*" for part in location]
    if type in ("extra_forbidden", "unexpected_keyword_argument"):
        parts[-1:] = ["(unknown key)"]
    path = ".".join(parts).replace(".[", "[") or "(arguments)"
    return path if len(path) <= _MAX_PATH else path[: _MAX_PATH - 1] + "…"
