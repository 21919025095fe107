"""Waiting for blocking work no longer than a deadline or a cancel signal allows.

Python cannot interrupt a thread that waits on a socket. So the work goes to a helper thread,
and the caller waits for it, for the clock, or for the signal, whichever comes first.
"""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from memoflow.errors import CallCancelled, MemoflowError, ProviderError
from memoflow.ledger.transaction import Outcome
from memoflow.turn.ports import Answer
from memoflow.turn.signal import CancelSignal
from memoflow.turn.steps import Arrived, Dispatched, Interrupted, NotSent

__all__ = [
    "Halted",
    "cut_short",
    "deadline_passed",
    "not_counted",
    "not_tried",
    "signalled",
    "supervised",
    "supervised_events",
]

T = TypeVar("T")
_AHEAD: Final = 16  # events a stream may run ahead of its consumer
_SIGNAL: Final = object()
_END: Final = object()


class Halted(Exception):
    """The wait ended before the work did; ``answer`` says why."""

    def __init__(self, answer: Interrupted) -> None:
        self.answer = answer
        super().__init__(answer.reason)


def deadline_passed(reason: str = "DEADLINE") -> Interrupted:
    """The answer for a request whose time ran out after it was sent. Nobody cancelled it."""
    return Interrupted(reason=reason)


def signalled() -> Interrupted:
    """The answer for a request whose cancel signal came after it was sent."""
    error = CallCancelled(invocation_id=None, dispatched=True)
    return Interrupted(reason="CANCELLED", error=error, cancelled=True)


def cut_short(answer: Answer, halted: Interrupted) -> Answer:
    """The answer of a stream that was left early: its reply if that was complete by then, else unknown."""
    if isinstance(answer, Arrived):
        return answer
    response_id = answer.response_id if isinstance(answer, Interrupted) else None
    return Interrupted(halted.reason, halted.error, response_id=response_id, cancelled=halted.cancelled)


def not_tried(abort: BaseException) -> Dispatched:
    """The answer for a request that was cancelled before it was sent."""
    return Dispatched(NotSent("cancelled", abort, entered=False), 0)


def not_counted(halted: Halted, seconds: float | None) -> MemoflowError:
    """What a caller is told whose input the provider had not counted by then; nothing was reserved yet."""
    if halted.answer.cancelled:
        return CallCancelled(invocation_id=None, dispatched=False)
    return ProviderError(
        f"The provider did not count the input tokens within {seconds:g} s; nothing was reserved and nothing "
        "was generated. Pass input_tokens=…, leave count_input out, or allow more time."
    )


def supervised(work: Callable[[], T], timeout: float | None, signal: CancelSignal | None) -> T:
    """Run ``work`` on a helper thread and wait for it.

    Raises:
        Halted: the time ran out or the signal came; the work goes on unheeded.
        Exception: whatever the work raised.
    """
    inbox: queue.SimpleQueue[Outcome] = queue.SimpleQueue()

    def carry_out() -> None:
        try:
            inbox.put(Outcome(work()))
        except Exception as error:
            inbox.put(Outcome(error=error))

    def halt() -> None:
        inbox.put(Outcome(error=Halted(signalled())))

    _start(carry_out)
    unsubscribe = signal.subscribe(halt) if signal is not None else None
    try:
        found = inbox.get(timeout=timeout)
    except queue.Empty:
        raise Halted(deadline_passed()) from None
    finally:
        if unsubscribe is not None:
            unsubscribe()
    if found.error is not None:
        raise found.error
    result: T = found.value
    return result


def supervised_events(
    events: Iterator[T], timeout: float | None, idle_timeout: float | None, signal: CancelSignal | None
) -> Iterator[T]:
    """The events of a stream, with a limit on the whole and on the wait for each.

    Raises:
        Halted: a limit was reached or the signal came.
    """
    # Simple queues take and give without a lock of Python's own, several times as fast. That one of tokens
    # bounds the other: an event needs one of them to go into it.
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    room: queue.SimpleQueue[None] = queue.SimpleQueue()
    for _ in range(_AHEAD):
        room.put(None)
    stopped = threading.Event()

    def pump() -> None:
        for event in events:
            room.get()
            if stopped.is_set():
                return
            inbox.put(event)
        inbox.put(_END)

    ends = None if timeout is None else time.monotonic() + timeout
    _start(pump)
    unsubscribe = signal.subscribe(lambda: inbox.put(_SIGNAL)) if signal is not None else None
    try:
        while True:
            event = _next(inbox, ends, idle_timeout)
            if event is _END:
                return
            if event is _SIGNAL:
                raise Halted(signalled())
            room.put(None)
            yield event
    finally:
        stopped.set()
        room.put(None)
        if unsubscribe is not None:
            unsubscribe()


def _next(inbox: queue.SimpleQueue[Any], ends: float | None, idle_timeout: float | None) -> Any:
    left = None if ends is None else max(0.0, ends - time.monotonic())
    waits = [seconds for seconds in (left, idle_timeout) if seconds is not None]
    try:
        return inbox.get(timeout=min(waits) if waits else None)
    except queue.Empty:
        total = ends is not None and time.monotonic() >= ends
        raise Halted(deadline_passed("DEADLINE" if total else "IDLE_TIMEOUT")) from None


def _start(work: Callable[[], None]) -> None:
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name="memoflow-call", daemon=True).start()
