"""What all exceptions share, and those about setting up and asking."""

from __future__ import annotations

from typing import Any

__all__ = [
    "ConfigurationError",
    "InvalidRequest",
    "LedgerUnavailable",
    "MemoflowError",
    "NoActivityContext",
    "NotFound",
    "ReservationConflict",
    "SchemaOutdated",
]


def _rebuild(cls: type[MemoflowError], args: tuple[Any, ...], data: dict[str, Any]) -> Any:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(data)
    return error


class MemoflowError(Exception):
    """Base of all memoflow exceptions.

    Attributes:
        retryable: whether trying the same thing again is known to be safe: nothing was
            left open and nothing is done or paid twice by a further attempt.
    """

    retryable: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call __init__ with the message, which keyword-only
        # constructors cannot take.
        return _rebuild, (type(self), self.args, self.__dict__)


class ConfigurationError(MemoflowError):
    """The runtime, a database or a key is set up in a way that cannot work."""


class SchemaOutdated(ConfigurationError):
    """The database schema is not the one this version needs.

    Attributes:
        found: its revision, None if there is no schema; needed: the one this version needs.
        missing: the SQLite file, if it does not exist.
        unknown: whether this version does not know the revision, so that it cannot upgrade it.
    """

    def __init__(
        self, *, found: str | None, needed: str, missing: str | None = None, unknown: bool = False
    ) -> None:
        self.found, self.needed, self.missing, self.unknown = found, needed, missing, unknown
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        if self.missing is not None:
            return (
                f"There is no ledger: the file {self.missing!r} does not exist. Correct the database URL, or "
                "create the ledger with `memoflow db upgrade`."
            )
        if self.unknown:
            return (
                f"The ledger schema is at revision {self.found}, which this version of memoflow does not "
                f"know; it needs {self.needed}. Install the version that wrote it, or a later one."
            )
        return (
            f"The ledger schema is at revision {self.found or 'none'}, this version of memoflow needs "
            f"{self.needed}. Run `memoflow db upgrade` with a role that may change the schema."
        )


class LedgerUnavailable(MemoflowError):
    """The ledger could not be reached or written in time; what was to be recorded may be missing.

    Not retried by itself: it may have been the record of a request that was sent and paid.
    """


class NoActivityContext(MemoflowError):
    """An adapter was called outside an activity."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} was called outside an activity, so there is no identity to record it under. "
            "Put the call into a function decorated with @rt.activity(...) and start it with .run(...)."
        )


class InvalidRequest(MemoflowError):
    """A request cannot be encoded, measured or sent as it is; nothing was reserved or sent."""


_ALL = "`memoflow invocations list` or `memoflow effects list`"
_WHERE_TO_LOOK = {
    "run": "`memoflow runs list`",
    "invocation": "`memoflow invocations list`",
    "effect": "`memoflow effects list`",
    "approval request": "`memoflow approvals list --state any`",
    "virtual key": "`memoflow gateway keys list`",
}


class NotFound(MemoflowError):
    """The ledger has no such row in this namespace.

    Attributes:
        what: ``invocation``, ``effect``, ``invocation or effect``, ``approval request``, ``run``, or
            ``virtual key``.
    """

    def __init__(self, *, what: str, id: str, namespace: str) -> None:
        self.what, self.id, self.namespace = what, id, namespace
        super().__init__(
            f"There is no {what} {id!r} in namespace {namespace!r}. Check the id and the namespace; "
            f"{_WHERE_TO_LOOK.get(what, _ALL)} shows what there is."
        )


class ReservationConflict(MemoflowError):
    """A reservation or decision was already resolved in another way."""

    def __init__(self, *, what: str, id: str, state: str, asked: str) -> None:
        self.what, self.id, self.state, self.asked = what, id, state, asked
        super().__init__(
            f"The {what} {id} is already {state}; it cannot become {asked}. "
            f"Repeating the same resolution is harmless, a different one is refused.{self._look()}"
        )

    def _look(self) -> str:
        if self.what not in ("invocation", "effect"):
            return ""
        return f" Look with `memoflow reconcile show {self.id}`."
