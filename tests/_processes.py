"""Real processes for tests of deaths and races.

They are forked from a server process that has imported what they need and has no threads: as separate as
processes that were started anew, without the second it takes to import everything.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any

__all__ = ["Child", "start", "together"]

PATIENCE_S = 60.0
PRELOADED = ["__main__", "tests._warm"]

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(PRELOADED)


class Child:
    """A process that runs one function and reports what it returned or raised."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any]) -> None:
        self._inbox, outbox = context.Pipe(duplex=False)
        self._process: ForkServerProcess = context.Process(
            target=_report, args=(outbox, function, args), daemon=True
        )
        self._process.start()
        # Only the child holds the other end now, so its death is noticed at once.
        outbox.close()

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process.pid is not None
        return self._process.pid

    def kill(self) -> None:
        """Kill it as the system would, with no chance to clean up."""
        self._process.kill()

    def exit_code(self) -> int:
        """Wait for its end; the negative number of the signal if one ended it."""
        self._process.join(PATIENCE_S)
        assert self._process.exitcode is not None, "the process did not end in time"
        self._inbox.close()
        return self._process.exitcode

    def result(self) -> Any:
        """Wait for its end and return what the function did, or raise what it raised."""
        assert self._inbox.poll(PATIENCE_S), "the process did not answer in time"
        try:
            outcome, value = self._inbox.recv()
        except EOFError:
            raise AssertionError(f"The process ended with code {self.exit_code()} and no answer.") from None
        assert self.exit_code() == 0
        if outcome == "raised":
            raise value
        return value


def _report(outbox: Connection, function: Callable[..., Any], args: Sequence[Any]) -> None:
    try:
        outbox.send(("returned", function(*args)))
    except BaseException as error:
        outbox.send(("raised", error))
    finally:
        outbox.close()


def start(function: Callable[..., Any], *args: Any) -> Child:
    """Run a function of an importable module in a process of its own."""
    return Child(function, args)


def together(function: Callable[..., Any], number: int, *args: Any) -> list[Any]:
    """Run ``function(barrier, index, *args)`` in so many processes; what each returned."""
    barrier = context.Barrier(number, timeout=PATIENCE_S)
    children = [start(function, barrier, index, *args) for index in range(number)]
    return [child.result() for child in children]
