"""What every assembler of a stream keeps and shows, whatever API its events are of."""

from __future__ import annotations

from memoflow.providers.base import Reply

__all__ = ["Assembling"]


class Assembling:
    """The part of `memoflow.providers.base.Assembler` that does not depend on the API."""

    __slots__ = ("_error_code", "_failed", "_problem", "_reply", "_response_id")

    def __init__(self) -> None:
        self._response_id: str | None = None
        self._problem: str | None = None
        self._failed = False
        self._error_code: str | None = None
        self._reply: Reply | None = None

    @property
    def response_id(self) -> str | None:
        """Id of the reply as soon as an event named it."""
        return self._response_id

    @property
    def failed(self) -> bool:
        """Whether an error event was seen before the end of the reply."""
        return self._failed

    @property
    def error_code(self) -> str | None:
        """The structured code of that error event."""
        return self._error_code

    def reply(self) -> Reply | None:
        """The reply, or None until all that makes one was seen."""
        return self._reply
