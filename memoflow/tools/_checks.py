"""What is checked of every tool when it is made; each check raises `InvalidTool` and says what to change."""

from __future__ import annotations

import inspect
import re
from threading import TIMEOUT_MAX
from typing import Final, Literal, get_args

from memoflow.declarations import Inspection
from memoflow.errors import InvalidRequest, InvalidTool
from memoflow.identity import check_name

__all__ = [
    "ApprovalMode",
    "EffectClass",
    "check_approval",
    "check_effect",
    "check_inspection",
    "check_pattern",
    "check_timeout",
    "check_version",
    "describe",
]

EffectClass = Literal["read_only", "idempotent", "at_most_once"]

ApprovalMode = Literal["human"]
"""Who has to allow a tool's calls."""

_NAME: Final = re.compile("[a-zA-Z0-9_-]{1,64}")
_MAX_VERSION: Final = 64


def check_pattern(what: str, name: object) -> str:
    """A name that every provider takes, unchanged."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    shown = ascii(name[:80]) if isinstance(name, str) else f"of type {type(name).__name__}"
    raise InvalidTool(
        f"{what} {shown} is refused by providers: it must be 1 to 64 of the characters a-z A-Z 0-9 _ -. "
        "Choose another; it is never changed for you, since two names could become one."
    )


def check_version(version: object, name: str) -> str:
    """A version, which every tool has."""
    if version is None:
        raise InvalidTool(
            f'Tool {name!r} has no version. Write @tool(version="v1", ...): it is part of its identity, '
            "so that a recorded call is never finished by other code."
        )
    try:
        return check_name(f"The version of tool {name!r}", version, limit=_MAX_VERSION)
    except InvalidRequest as error:
        raise InvalidTool(str(error)) from None


def check_effect(effect: object, name: str) -> EffectClass:
    """An effect class, which every tool has."""
    for known in get_args(EffectClass):
        if effect == known:
            return known  # type: ignore[no-any-return]
    shown = "has no effect class" if effect is None else f"has an unknown effect class {ascii(effect)[:80]}"
    raise InvalidTool(
        f'Tool {name!r} {shown}. Say what may be done after a crash: effect="read_only" (run it again), '
        '"idempotent" (run it again with the same idempotency key) or "at_most_once" (never again; '
        "an operator decides)."
    )


def check_approval(approval: object, name: str) -> ApprovalMode | None:
    """Who has to allow a tool's calls, or None."""
    if approval is None or approval == "human":
        return approval
    shown = ascii(approval)[:80] if isinstance(approval, str) else f"of type {type(approval).__name__}"
    raise InvalidTool(
        f'The approval of tool {name!r} must be "human" (a person allows each call before it runs) or None, '
        f"not {shown}."
    )


def check_inspection(inspect: object, name: str) -> Inspection | None:
    """What a tool declares for inspection, or None."""
    if inspect is None or isinstance(inspect, Inspection):
        return inspect
    raise InvalidTool(
        f"What tool {name!r} declares for inspection must be an Inspection, not {type(inspect).__name__}. "
        'Write for example inspect=Inspection(action="network", sensitive={"to": "recipient"}).'
    )


def check_timeout(timeout: object, name: str) -> float | None:
    """Seconds that can be waited for, or None."""
    if timeout is None:
        return None
    # What a thread can wait for at most; a longer wait would fail when the tool runs already.
    if isinstance(timeout, (int, float)) and not isinstance(timeout, bool) and 0 < timeout <= TIMEOUT_MAX:
        return float(timeout)
    raise InvalidTool(f"The timeout of tool {name!r} must be a positive number of seconds, or None.")


def describe(function: object, description: str | None, name: str) -> str:
    """What the model reads: what is given, else the first paragraph of the docstring."""
    if description is None:
        paragraph = re.split(r"\n\s*\n", inspect.getdoc(function) or "", maxsplit=1)[0]
        description = " ".join(paragraph.split())
    try:
        description.encode()
    except UnicodeEncodeError:
        raise InvalidTool(f"The description of tool {name!r} holds a lone surrogate. Remove it.") from None
    return description
