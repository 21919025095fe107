"""The seam for crash tests: named points at which a test may stop the program.

In production every call of `point` is one look at a variable that is None.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Stop", "install", "point"]

_hook: Callable[[str], None] | None = None


class Stop(BaseException):
    """Raised by a hook to simulate the death of the process.

    The core never catches it: whatever a dead process could not do is not done.
    """


def install(hook: Callable[[str], None] | None) -> Callable[[str], None] | None:
    """Set the hook called at every point, or remove it with None. Returns the hook before."""
    global _hook
    before, _hook = _hook, hook
    return before


def point(name: str) -> None:
    """A place where a process may die. The hook may raise `Stop` or kill the process."""
    if _hook is not None:
        _hook(name)
