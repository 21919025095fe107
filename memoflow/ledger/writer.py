"""The group-commit writer: every ledger write of a process goes through one of these.

Callers submit operations and get futures. A thread takes whatever has queued up while the
last commit ran, applies it in one transaction, commits once, and resolves the futures.
There are no timers: under load a batch is large by itself, and one caller never waits.

Each batch moves the writer's own row from n to n + 1. After a commit whose reply was lost,
that row says whether it arrived; if the server is still busy with it, the row's lock makes
the question wait for the answer.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import threading
import time
import weakref
from collections import deque
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, bindparam, insert, select
from sqlalchemy.exc import DBAPIError

from memoflow import faults
from memoflow.errors import ConfigurationError, LedgerUnavailable, MemoflowError
from memoflow.identity import new_id
from memoflow.ledger.database import Database
from memoflow.ledger.dialect import DATABASE_ERRORS, Trouble, forbidden, trouble
from memoflow.ledger.guards import TIMED, violated
from memoflow.ledger.schema import writers
from memoflow.ledger.statements import Sets
from memoflow.ledger.tickets import Group, Ticket, deliver
from memoflow.ledger.transaction import BatchSpoiled, Operation, Outcome, Transaction

__all__ = ["MAX_BATCH", "Writer"]

log = logging.getLogger("memoflow.ledger")
R = TypeVar("R")

MAX_BATCH: Final = 256
MAX_CLASHES: Final = 3
FIRST_PAUSE_S: Final = 0.005
LONGEST_PAUSE_S: Final = 1.0

_BATCHES = select(writers.c.batches).where(writers.c.id == bindparam("writer"))


class _Batch:
    """A batch on its way into the database, and what is known of a commit that got no answer."""

    __slots__ = ("clashes", "committing", "error", "in_doubt", "kind", "operations", "outcomes")

    def __init__(self, operations: list[Operation[Any]]) -> None:
        self.operations = operations
        self.outcomes: list[Outcome] = []
        self.clashes = 0
        self.committing = False
        self.in_doubt = False

    def fail(self, error: Exception) -> None:
        """Note what went wrong with a try, and whether its commit may have arrived all the same."""
        self.error = error
        if _too_late(error):
            self.kind = Trouble.CLASH
        elif isinstance(error, DATABASE_ERRORS):
            self.kind = trouble(error)
        else:
            # What is not the database's answer says nothing about a commit that was sent.
            self.kind = Trouble.OUTAGE if self.committing else Trouble.FAULT
        self.in_doubt |= self.committing and self.kind is Trouble.OUTAGE
        self.committing = False
        self.clashes += self.kind is Trouble.CLASH

    def over(self) -> bool:
        """Whether trying again is no use. Never while a commit is in doubt: that would write it twice."""
        return not self.in_doubt and (self.kind is Trouble.FAULT or self.clashes > MAX_CLASHES)


class Writer:
    """Commits operations in batches on its own thread.

    Submitting never blocks, so that neither an event loop nor an interrupt can lose what has happened. Who
    submits waits for the futures, which bounds the queue: it is no longer than its callers are many.

    Args:
        database: where to write.
        patience: seconds to keep trying while the database is away or in conflict, before the
            callers get `LedgerUnavailable`.
    """

    def __init__(self, database: Database, *, patience: float = 60.0) -> None:
        self._database = database
        self._patience = patience
        self._reset()
        _live.add(self)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._id: str | None = None
        self._batches = 0
        self._waiting = 0
        self._queue: deque[Group] = deque()
        self._urgent: deque[Group] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None

    def after_fork(self) -> None:
        """Start anew in a forked child: the parent's thread and queue are not ours. Closed stays closed."""
        closing = self._closing
        self._reset()
        self._closing = closing

    def submit(self, *operations: Operation[Any], urgent: bool = False) -> list[Future[Any]]:
        """Queue operations for one commit, in order; each succeeds or is refused by itself.

        Args:
            operations: what to do.
            urgent: go before everything that is queued; for what is useless when it is late.

        Returns:
            One future per operation. A future holds the operation's result or the refusal it raised.

        Raises:
            ConfigurationError: the writer is closed.
        """
        group = Group(operations)
        self._enqueue(group, self._urgent if urgent else self._queue)
        return group.futures()

    def asubmit(self, *operations: Operation[Any]) -> list[asyncio.Future[Any]]:
        """The same for a coroutine, with futures of its event loop."""
        group = Group(operations, asyncio.get_running_loop())
        self._enqueue(group, self._queue)
        return group.futures()

    @property
    def waiting(self) -> int:
        """How many operations are queued for the batches to come."""
        return self._waiting

    def _enqueue(self, group: Group, queue: deque[Group]) -> None:
        if not group.tickets:
            return
        with self._changed:
            if self._closing:
                raise ConfigurationError("The runtime is closed. Open it again with Runtime.open(...).")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="memoflow-writer", daemon=True)
                self._thread.start()
            queue.append(group)
            self._waiting += len(group.tickets)
            self._changed.notify_all()

    def record(self, operation: Operation[R]) -> R:
        """Commit one operation and return its result, or raise its refusal. Blocks until it is durable."""
        (future,) = self.submit(operation)
        result: R = future.result()
        return result

    def close(self) -> None:
        """Commit what is queued, then stop. Further submissions are refused."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while batch := self._take():
            try:
                self._commit(batch)
            except BaseException as error:
                # A simulated crash, or a fault of ours: nobody may wait for ever.
                deliver(batch, _outcomes(error, len(batch)))
                if not isinstance(error, Exception):
                    self._die(error)
                    return

    def _die(self, error: BaseException) -> None:
        with self._changed:
            self._closing = True
            orphans = [ticket for group in (*self._urgent, *self._queue) for ticket in group.tickets]
            self._urgent.clear()
            self._queue.clear()
            self._changed.notify_all()
        deliver(orphans, _outcomes(error, len(orphans)))

    def _take(self) -> list[Ticket]:
        """What has queued up, as one batch; nothing once the writer is closed and everything is done."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            batch: list[Ticket] = []
            for queue in (self._urgent, self._queue):
                while queue and (not batch or len(batch) + len(queue[0].tickets) <= MAX_BATCH):
                    batch.extend(queue.popleft().tickets)
                if queue:
                    break
            self._waiting -= len(batch)
            return batch

    def _commit(self, batch: list[Ticket]) -> None:
        try:
            outcomes = self._persist([ticket.operation for ticket in batch])
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, LedgerUnavailable):
                # One of them cannot be written. Alone, each fails or succeeds for itself.
                for ticket in batch:
                    self._commit([ticket])
                return
            outcomes = _outcomes(_told(error), len(batch))
        deliver(batch, outcomes)

    def _persist(self, operations: list[Operation[Any]]) -> list[Outcome]:
        """Apply and commit, through conflicts and outages, exactly once."""
        batch = _Batch(operations)
        deadline = time.monotonic() + self._patience
        pause = FIRST_PAUSE_S
        while not self._landed(batch):
            if batch.over():
                raise batch.error
            cause = type(getattr(batch.error, "orig", batch.error)).__name__
            if time.monotonic() > deadline:
                # Whether the last commit arrived was never learned, so neither was this writer's number.
                self._id = None
                raise LedgerUnavailable(
                    f"The ledger could not be written for {self._patience:g} s "
                    f"({batch.kind.value}: {cause}). Check the database and try again."
                ) from batch.error
            log.warning("ledger batch of %d met %s; trying again", len(operations), batch.kind.value)
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_S)
        self._batches += 1
        faults.point("commit:after")
        return batch.outcomes

    def _landed(self, batch: _Batch) -> bool:
        """Try once; whether the batch is durable now."""
        try:
            if self._id is None:
                self._register()
            with self._database.write() as connection:
                before = self._batches
                step = [(before + 1, self._id, before)]
                if Sets(connection).update(writers, ("id", "batches"), ("batches",), step)() == 1:
                    self._apply(batch, connection)
                    return True
                counted = connection.execute(_BATCHES, {"writer": self._id}).scalar()
        except Exception as error:
            batch.fail(error)
            return False
        if counted == self._batches + 1:
            return True  # The commit whose reply was lost had arrived.
        # Not the history that was written to: a failover or a restored copy has lost commits, this one too.
        self._id, batch.in_doubt = None, False
        return self._landed(batch)

    def _apply(self, batch: _Batch, connection: Connection) -> None:
        batch.in_doubt = False
        transaction = Transaction(connection, self._database.clock(connection))
        batch.outcomes = transaction.run(batch.operations)
        faults.point("commit:before")
        batch.committing = True

    def _register(self) -> None:
        writer = new_id()
        with self._database.write() as connection:
            started = self._database.clock(connection)
            connection.execute(insert(writers).values(id=writer, batches=0, started_at=started))
        self._id = writer
        self._batches = 0


def _told(error: Exception) -> BaseException:
    """What a caller hears: what its own operation raised, not that a batch could not be kept."""
    if _too_late(error):
        said = (
            "By the clock of the database an approval has expired that by the clock of this runtime has not; "
            "nothing was changed. Open the runtime without clock=…, or set that clock to the present."
        )
    elif forbidden(error):
        said = (
            "The database role may not write this to the ledger; nothing was changed. Connect with the role "
            "that may: `memoflow db roles` says which does what."
        )
    else:
        return error.__cause__ or error if isinstance(error, BatchSpoiled) else error
    refused = ConfigurationError(said)
    refused.__cause__ = error
    return refused


def _too_late(error: Exception) -> bool:
    """Whether an operation's time ran out between its look and its write; looking again shows that."""
    return isinstance(error, DBAPIError) and violated(error) in TIMED


def _outcomes(error: BaseException, count: int) -> list[Outcome]:
    """The same failure for many callers, each with an exception of its own: they raise it, and change it."""
    return [Outcome(error=error if number == 0 else _copy(error)) for number in range(count)]


def _copy(error: BaseException) -> BaseException:
    if not isinstance(error, MemoflowError):
        return error
    copied = copy.copy(error)
    copied.__cause__ = error.__cause__
    return copied


_live: weakref.WeakSet[Writer] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for writer in list(_live):
        writer.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
