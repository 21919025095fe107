"""Requests that are refused, in no API's words yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memoflow.testing._script import StatusFault

__all__ = ["Rejection", "Usual", "of_status"]

Usual = tuple[str, str | None, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A request that is refused before anything is generated."""

    message: str
    status: int = 400
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


def of_status(fault: StatusFault, usual: Mapping[int, Usual], types: Mapping[str, str]) -> Rejection:
    """The rejection a scripted status stands for.

    Args:
        fault: what the script says.
        usual: type, code and message by status, for what it does not say; 400 and 500 stand for the rest.
        types: the type that goes with a code.
    """
    kind, code, message = usual.get(fault.status, usual[500] if fault.status >= 500 else usual[400])
    wanted = code if fault.code is None else fault.code
    return Rejection(
        status=fault.status,
        message=message if fault.message is None else fault.message,
        type=fault.type or types.get(wanted or "", kind),
        param=fault.param,
        code=wanted,
        headers=tuple(fault.headers.items()),
    )
