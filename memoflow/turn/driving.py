"""What both drivers do alike: the conversation with the protocol, and what is noticed on the way."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from memoflow import faults
from memoflow.errors import CallCancelled, ConfigurationError
from memoflow.turn.crew import AsyncCrew, SyncCrew
from memoflow.turn.ports import AsyncEvents, AsyncPort, Ledger, SyncEvents, SyncPort
from memoflow.turn.results import TurnResult
from memoflow.turn.signal import CancelSignal
from memoflow.turn.steps import Collected, Dispatch, Dispatched, Interrupted, Step, Wire
from memoflow.turn.supervise import cut_short, not_tried

__all__ = ["Driving", "Streaming", "elapsed_ms"]

Port = TypeVar("Port", bound=SyncPort | AsyncPort)
Crew = TypeVar("Crew", bound=SyncCrew | AsyncCrew)
Events = TypeVar("Events", bound=SyncEvents | AsyncEvents)


# Stands for this process, and is another one in a forked child. Streams ask at every event, and asking
# the system for its number each time would be a call of the kernel.
_process = object()


def _after_fork_in_child() -> None:
    global _process
    _process = object()


os.register_at_fork(after_in_child=_after_fork_in_child)


def elapsed_ms(started: int) -> int:
    """Milliseconds since a reading of `time.monotonic_ns`."""
    return (time.monotonic_ns() - started) // 1_000_000


class Driving(ABC, Generic[Port, Crew]):
    """A turn that is being driven. `result` is there when it has ended.

    Args:
        protocol: the turn.
        ledger: where operations are committed and read.
        port: the provider.
        signal: ends the call when it is set.
        concurrency: tools that may run side by side.
    """

    def __init__(
        self,
        protocol: Generator[Step, Any, TurnResult],
        ledger: Ledger,
        port: Port,
        *,
        signal: CancelSignal | None = None,
        concurrency: int = 8,
    ) -> None:
        self.port = port
        self.result: TurnResult | None = None
        self._protocol = protocol
        self._ledger = ledger
        self._signal = signal
        self._concurrency = concurrency
        self._crew: Crew | None = None
        self._abort: BaseException | None = None
        self._resume: Callable[[Any], Step] = protocol.send
        self._told: Any = None
        self._keeping: Any = None
        self._process = _process

    # The conversation

    def _advance(self) -> Step | None:
        """The next step; None when the turn has ended, whose result is there then."""
        self.check_process()
        try:
            step = self._resume(self._told)
        except StopIteration as stop:
            self.result = stop.value
            if self._abort is not None:
                raise self._abort from None
            return None
        except Exception as error:
            if self._abort is None:
                raise
            # Everything is recorded; what the caller asked for meanwhile goes first.
            raise self._abort from error
        faults.point(f"before:{type(step).__name__}")
        return step

    def _tell(self, step: Step, answer: Any) -> None:
        faults.point(f"after:{type(step).__name__}")
        self._resume, self._told = self._protocol.send, answer

    def _fail(self, error: BaseException) -> None:
        self._resume, self._told = self._protocol.throw, error

    def check_process(self) -> None:
        """Raise in a forked child: the call, what it has open and its attempt belong to the parent.

        Raises:
            ConfigurationError: this is another process than the one that made the call.
        """
        if self._process is not _process:
            raise ConfigurationError(
                "A call cannot be continued in a forked process; it belongs to the one that made it. Read "
                "streams where they were made, and start an activity of its own in the child."
            )

    # Cancellation

    def abort(self, error: BaseException) -> None:
        """Remember a cancellation that is to leave once everything is recorded."""
        self._abort = error

    def cancelled(self) -> BaseException | None:
        """The cancellation that waits to be obeyed, if any; it is handed out once."""
        if self._abort is None and self._signal is not None and self._signal.cancelled:
            return CallCancelled(invocation_id=None, dispatched=False)
        abort, self._abort = self._abort, None
        return abort

    def _check_cancelled(self) -> None:
        if (abort := self.cancelled()) is not None:
            raise abort

    def _dismissed(self) -> Collected | None:
        """The tools that will not start because the call is to end; None where none waits."""
        assert self._crew is not None
        if (abort := self.cancelled()) is None:
            return None
        if dismissed := self._crew.dismiss():
            return Collected(tuple(dismissed), abort)
        self._abort = abort
        return None

    def unlimited(self, wire: Wire) -> bool:
        """Whether nothing but the provider can end a stream, so that nobody has to watch over it."""
        return wire.timeout is None and wire.idle_timeout is None and self._signal is None

    def forget_id(self) -> None:
        """Another request begins, whose reply has another id."""
        self._keeping = None

    @abstractmethod
    def keep(self, step: Dispatch, response_id: str) -> None:
        """Keep the id of a reply that is being streamed; the stream does not wait for it."""


class Streaming(Generic[Events]):
    """One streamed request: what was noticed of it so far, and its answer."""

    def __init__(self, driver: Driving[Any, Any], step: Dispatch, events: Events) -> None:
        self._driver = driver
        self._step = step
        self._events = events
        self._started = time.monotonic_ns()
        self._kept = False
        self._halted: Interrupted | None = None
        self._refused = driver.cancelled()
        driver.forget_id()

    def _seen(self) -> None:
        if not self._kept and self._events.response_id is not None:
            self._kept = True
            self._driver.keep(self._step, self._events.response_id)

    def _stop(self, cause: BaseException) -> None:
        self._driver.abort(cause)
        self._halted = Interrupted("CANCELLED", cause, cancelled=True)

    def abandon(self, left: BaseException) -> None:
        """The consumer went away. If the reply was complete by then, it is simply settled."""
        self._driver.check_process()
        self._driver.abort(left)
        self._halted = Interrupted("ABANDONED", left, cancelled=True)

    def _ended(self) -> Dispatched:
        if self._refused is not None:
            return not_tried(self._refused)
        elapsed, answer = elapsed_ms(self._started), self._events.answer()
        return Dispatched(answer if self._halted is None else cut_short(answer, self._halted), elapsed)
