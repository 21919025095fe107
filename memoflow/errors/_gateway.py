"""Refusals of the gateway, before anything is reserved or sent."""

from __future__ import annotations

from typing import Final

from memoflow.errors._base import MemoflowError

__all__ = ["GatewayError", "RequestNotAllowed", "VirtualKeyRefused"]

_WHY: Final = {
    "missing": (
        "The request carries no virtual key. Send one as 'Authorization: Bearer mfk_…' or as 'x-api-key'."
    ),
    "unknown": (
        "The virtual key is not known here. Check that it was copied whole, and which gateway it is for."
    ),
    "revoked": "Virtual key {id} was revoked. Use another one: `memoflow gateway keys create` makes it.",
    "expired": "Virtual key {id} has expired. Use another one: `memoflow gateway keys create` makes it.",
}


class GatewayError(MemoflowError):
    """Base of the gateway's own refusals; nothing was reserved and nothing was sent."""


class VirtualKeyRefused(GatewayError):
    """A virtual key does not open the gateway.

    Attributes:
        reason: ``missing``, ``unknown``, ``revoked`` or ``expired``.
        id: the id of the key where it is known, else None. Never the key.
    """

    def __init__(self, *, reason: str, id: str | None = None) -> None:
        self.reason, self.id = reason, id
        super().__init__(_WHY[reason].format(id=id))


class RequestNotAllowed(GatewayError):
    """A virtual key is not for this.

    Attributes:
        what: ``model`` or ``endpoint``.
        name: the one that was asked for.
        allowed: those that the key is for.
    """

    def __init__(self, *, what: str, name: str, allowed: tuple[str, ...]) -> None:
        self.what, self.name, self.allowed = what, name, allowed
        super().__init__(
            f"This virtual key is not for {what} {name!r}; it is for {', '.join(allowed)}. Ask for one of "
            "those, or use a key that is for it."
        )
