"""Running the tools of one reply side by side, up to a limit, and saying how each ended.

When one fails in a way that leaves the call, those that have not started never will; those
that run are let finish, so that each outcome is known and recorded before the exception leaves.
A call that is cancelled waits for its threads too, but not for ever: what is left then is unknown,
and the thread goes on unheeded.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from memoflow import faults
from memoflow.cause import caused_by
from memoflow.errors import ToolKnownFailure
from memoflow.turn.steps import Execution, Finished, NotStarted, Raised, Returned, TimedOut

__all__ = ["THREAD_GRACE_S", "AsyncCrew", "SyncCrew"]

THREAD_GRACE_S: Final = 5.0
"""How long a cancelled call waits for a plain tool that runs; then what the tool did is not known."""

Ending = Returned | Raised | TimedOut | NotStarted


class _Roster:
    """Who waits, who runs, and whether anybody else may start."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.waiting: deque[Execution] = deque()
        self.running: dict[str, Execution] = {}

    def next(self) -> Execution | None:
        """The next execution to start, if there is room for one."""
        if not self.waiting or len(self.running) >= self.limit:
            return None
        execution = self.waiting.popleft()
        self.running[execution.effect_id] = execution
        return execution

    def ended(self, execution: Execution, ending: Ending) -> list[Finished]:
        """Take an ending in; returns it, and what will not be started because of it."""
        if isinstance(ending, Raised) and isinstance(ending.error, faults.Stop):
            raise ending.error
        if self.running.pop(execution.effect_id, None) is None:
            return []  # It was given up before: a timed-out thread that came back late.
        finished = [Finished(execution, ending)]
        fatal = isinstance(ending, TimedOut) or (
            isinstance(ending, Raised) and not isinstance(ending.error, ToolKnownFailure)
        )
        return finished + self.dismiss() if fatal else finished

    def dismiss(self) -> list[Finished]:
        """Nobody else starts."""
        dismissed = [Finished(execution, NotStarted()) for execution in self.waiting]
        self.waiting.clear()
        return dismissed


def _call(execution: Execution) -> Ending:
    """Run a tool to its end on this thread."""
    try:
        with caused_by(execution.effect_id):
            value = execution.tool.invoke(execution.arguments, execution.call)
            if execution.tool.is_async:
                value = asyncio.run(value)
        return Returned(value)
    except BaseException as error:
        # Also an exit or an interrupt: what the tool did until then has to be recorded first.
        return Raised(error)


def _on_thread(execution: Execution, report: Callable[[Ending], None]) -> None:
    # Daemon threads, not a pool: a tool that never returns must not keep the process alive.
    context = contextvars.copy_context()

    def work() -> None:
        report(context.run(_call, execution))

    threading.Thread(target=work, name=f"memoflow-tool-{execution.tool.name}", daemon=True).start()


class SyncCrew:
    """Tools on threads; a single one without a timeout runs on the caller's own."""

    def __init__(self, executions: tuple[Execution, ...], limit: int) -> None:
        self._roster = _Roster(limit)
        self._roster.waiting.extend(executions)
        # An async tool needs an event loop of its own, and this thread may have one running.
        self._inline = len(executions) == 1 and not (
            executions[0].tool.is_async or executions[0].tool.timeout is not None
        )
        self._inbox: queue.SimpleQueue[tuple[Execution, Ending]] = queue.SimpleQueue()
        self._deadlines: dict[str, float] = {}
        self._interrupted = False

    def collect(self) -> tuple[list[Finished], BaseException | None]:
        """Wait for at least one ending; with it, an interrupt from the keyboard if one came."""
        if self._inline:
            execution = self._roster.next()
            assert execution is not None
            return self._roster.ended(execution, _call(execution)), None
        abort: BaseException | None = None
        finished: list[Finished] = []
        while not finished:
            try:
                self._start_waiting()
                finished = self._wait()
            except KeyboardInterrupt as interrupt:
                finished = self._give_up(interrupt) if self._interrupted else self._roster.dismiss()
                self._interrupted, abort = True, interrupt
        return finished, abort

    def dismiss(self) -> list[Finished]:
        """Nobody else starts."""
        self._inline = False
        return self._roster.dismiss()

    def _start_waiting(self) -> None:
        while (execution := self._roster.next()) is not None:
            if execution.tool.timeout is not None:
                self._deadlines[execution.effect_id] = time.monotonic() + execution.tool.timeout
            _on_thread(execution, lambda ending, one=execution: self._inbox.put((one, ending)))  # type: ignore[misc]

    def _wait(self) -> list[Finished]:
        running = self._roster.running
        due = [self._deadlines[id] for id in running if id in self._deadlines]
        timeout = max(0.0, min(due) - time.monotonic()) if due else None
        try:
            return self._roster.ended(*self._inbox.get(timeout=timeout))
        except queue.Empty:
            now = time.monotonic()
            late = [one for id, one in running.items() if self._deadlines.get(id, now + 1) <= now]
            return [end for one in late for end in self._roster.ended(one, TimedOut(one.tool.timeout or 0))]

    def _give_up(self, interrupt: BaseException) -> list[Finished]:
        """A second interrupt: stop waiting for what runs; what it did is not known."""
        running = list(self._roster.running.values())
        return [end for one in running for end in self._roster.ended(one, Raised(interrupt))]


class AsyncCrew:
    """Tools as tasks; plain functions on threads, so that the event loop never waits for one."""

    def __init__(self, executions: tuple[Execution, ...], limit: int) -> None:
        self._roster = _Roster(limit)
        self._roster.waiting.extend(executions)
        self._inbox: asyncio.Queue[tuple[Execution, Ending]] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()

    async def collect(self) -> tuple[list[Finished], BaseException | None]:
        """Wait for at least one ending; with it, a cancellation of the caller if one came."""
        abort: BaseException | None = None
        finished: list[Finished] = []
        while not finished:
            self._start_waiting()
            try:
                finished = self._roster.ended(*await self._inbox.get())
            except asyncio.CancelledError as cancelled:
                abort = cancelled
                finished = self._roster.dismiss()
                for task in self._tasks:
                    task.cancel()
        return finished, abort

    def dismiss(self) -> list[Finished]:
        """Nobody else starts."""
        return self._roster.dismiss()

    def _start_waiting(self) -> None:
        while (execution := self._roster.next()) is not None:
            task = asyncio.create_task(self._work(execution))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, execution: Execution) -> None:
        self._inbox.put_nowait((execution, await self._run(execution)))

    async def _run(self, execution: Execution) -> Ending:
        deadline = asyncio.timeout(execution.tool.timeout)
        work: Coroutine[Any, Any, Ending] = (
            self._await_tool(execution)
            if execution.tool.is_async
            else self._await_thread(execution, deadline)
        )
        try:
            async with deadline:
                return await work
        except TimeoutError:
            return TimedOut(execution.tool.timeout or 0)
        except asyncio.CancelledError as cancelled:
            return Raised(cancelled)

    @staticmethod
    async def _await_tool(execution: Execution) -> Ending:
        try:
            with caused_by(execution.effect_id):
                return Returned(await execution.tool.invoke(execution.arguments, execution.call))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return Raised(error)

    async def _await_thread(self, execution: Execution, deadline: asyncio.Timeout) -> Ending:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Ending] = loop.create_future()

        def deliver(ending: Ending) -> None:
            if not done.done():
                done.set_result(ending)

        def report(ending: Ending) -> None:
            try:
                loop.call_soon_threadsafe(deliver, ending)
            except RuntimeError:
                return  # The loop is closed: the call was given up long ago.

        _on_thread(execution, report)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            # A thread cannot be cancelled. Unless its time is up, its real outcome is worth a wait, which a
            # second cancellation ends; without an end of its own a tool that hangs would never let go.
            if deadline.expired() or not (await asyncio.wait([done], timeout=THREAD_GRACE_S))[0]:
                raise
        return done.result()
