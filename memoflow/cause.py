"""Why something is done: the id of the record that what comes next descends from.

A record is a row of the ledger (an activity, an invocation, a tool effect, an approval) or one of another
log that its caller names. It is carried by a context variable, so each thread and each task has its own:
branches that run side by side never take one another's cause for theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token

from memoflow.identity import check_name

__all__ = ["caused_by", "current_cause", "set_cause"]

_cause: ContextVar[str | None] = ContextVar("memoflow_cause", default=None)


def current_cause() -> str | None:
    """The record that is the cause of what is done here, or None outside of everything."""
    return _cause.get()


def set_cause(id: str) -> None:
    """Let what follows in this context descend from a record.

    Raises:
        InvalidRequest: it cannot be an id.
    """
    _cause.set(check_name("cause", id))


@contextmanager
def caused_by(id: str) -> Iterator[None]:
    """The same for a block.

    Raises:
        InvalidRequest: it cannot be an id.
    """
    token: Token[str | None] = _cause.set(check_name("cause", id))
    try:
        yield
    finally:
        # A coroutine that the collector drops ends in another context, which never had it.
        with suppress(ValueError):
            _cause.reset(token)
