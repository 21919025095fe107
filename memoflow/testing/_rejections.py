"""Error replies with the API's error body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memoflow.testing._script import StatusFault

__all__ = ["Rejection", "of_status"]

_USUAL: dict[int, tuple[str, str | None, str]] = {
    400: ("invalid_request_error", None, "The request is not valid."),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    403: ("invalid_request_error", "unsupported_country_region_territory", "Not allowed."),
    404: ("invalid_request_error", "model_not_found", "The model does not exist."),
    408: ("timeout", None, "The request timed out."),
    409: ("invalid_request_error", "conflict", "The resource was changed at the same time."),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached."),
    500: ("server_error", "server_error", "The server had an error while processing the request."),
    503: ("server_error", "server_overloaded", "The engine is currently overloaded."),
}
_TYPES = {"insufficient_quota": "insufficient_quota"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A request that is refused before anything is generated."""

    message: str
    status: int = 400
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    headers: tuple[tuple[str, str], ...] = ()

    def body(self) -> dict[str, Any]:
        """The error body of the API."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": error}


def of_status(fault: StatusFault) -> Rejection:
    """The rejection a scripted status stands for, completed by what the API usually sends with it."""
    usual = _USUAL.get(fault.status, _USUAL[500] if fault.status >= 500 else _USUAL[400])
    kind, code, message = usual
    wanted = code if fault.code is None else fault.code
    return Rejection(
        status=fault.status,
        message=message if fault.message is None else fault.message,
        type=fault.type or _TYPES.get(wanted or "", kind),
        param=fault.param,
        code=wanted,
        headers=tuple(fault.headers.items()),
    )
