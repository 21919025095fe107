"""Who is acting now: the current run and the current attempt, carried by context variables."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from memoflow.budget import Budget
from memoflow.canonical import Digester
from memoflow.cause import caused_by, current_cause, set_cause
from memoflow.errors import ConfigurationError, LeaseLost, NoActivityContext
from memoflow.identity import ActivityIdentity
from memoflow.ledger.activities import ExtendLease
from memoflow.ledger.holdings import chain_of
from memoflow.ledger.outputs import Vault
from memoflow.ledger.transaction import Operation
from memoflow.pricing import PriceBook
from memoflow.turn import Attempt, Bench, Ledger

__all__ = ["Current", "Host", "Run", "Undo", "current", "current_run", "entered", "joined"]

Undo = Callable[[Any], Operation[Any] | None]
"""Makes the operation that takes back what an operation gave, if there is anything to take back."""


class Host(Protocol):
    """What an activity and its calls need of the runtime they belong to."""

    @property
    def namespace(self) -> str:
        """Tenant boundary."""

    @property
    def ledger(self) -> Ledger:
        """The database and its writer."""

    @property
    def vault(self) -> Vault:
        """The protected output store's keys."""

    @property
    def digester(self) -> Digester:
        """How digests are made."""

    @property
    def prices(self) -> PriceBook:
        """Prices of models."""

    @property
    def bench(self) -> Bench:
        """Who judges the calls of models."""

    @property
    def approval_us(self) -> int:
        """How long a person may be waited for, in microseconds."""

    @property
    def lease_us(self) -> int:
        """How long an attempt may be silent, in microseconds."""

    @property
    def worker(self) -> str:
        """The name of this worker."""

    def commit(self, operation: Operation[Any], undo: Undo | None = None) -> Any:
        """Record an operation durably; blocks. An interrupt waits for that, and for what undoes it."""

    async def acommit(self, operation: Operation[Any], undo: Undo | None = None) -> Any:
        """The same without blocking the event loop; a cancellation waits."""

    def watch(self, attempt: Current) -> None:
        """Keep an attempt's lease alive."""

    def forget(self, attempt: Current) -> None:
        """Stop keeping it."""

    def remaining(self, accounts: tuple[str, ...]) -> Budget:
        """What may still be reserved on these accounts."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a workflow: its ids, and the accounts that everything in it is charged to.

    ``outer`` are those accounts without the one that an activity names for itself; ``requester`` is on whose
    behalf approvals are asked for, if the run says so; ``cause`` is the record that what is started in it
    descends from.
    """

    workflow_id: str
    run_id: str
    accounts: tuple[str, ...] = ()
    outer: tuple[str, ...] = ()
    requester: str | None = None
    cause: str | None = None


@dataclass(slots=True, eq=False)
class Current:
    """The attempt that is running: ``rt.current()`` inside an activity.

    Attributes:
        run: the run it belongs to.
        lost: set once another attempt has taken over.
        on_lost: called then, from the thread that keeps leases.
        abandoned: whether nobody can carry it on, because its event loop was closed under it.
    """

    host: Host = field(repr=False)
    record: Attempt = field(repr=False)
    run: Run
    lost: LeaseLost | None = None
    on_lost: Callable[[], None] | None = field(default=None, repr=False)
    abandoned: Callable[[], bool] = field(default=lambda: False, repr=False)
    pid: int = field(default_factory=os.getpid, repr=False)

    @property
    def identity(self) -> ActivityIdentity:
        """The activity."""
        return self.record.identity

    @property
    def attempt(self) -> int:
        """Number of this attempt, from 1."""
        return self.record.fence.attempt

    @property
    def accounts(self) -> tuple[str, ...]:
        """Budget accounts its calls are charged to."""
        return self.run.accounts

    @property
    def cause(self) -> str:
        """Id of the record that the calls made here descend from, and the activities started here.

        The activity itself to begin with; in a tool, the tool's effect. Give it away (a text that other
        processes can name), or set it to the id of another record, such as ``result.invocations[-1].id``
        for a call that follows from an earlier one. Tasks and threads that branch off have their own.
        """
        return current_cause() or self.record.fence.activity_id

    @cause.setter
    def cause(self, id: str) -> None:
        set_cause(id)

    def charged(self, account: str | None) -> tuple[str, ...]:
        """The accounts of a call that names one of its own, which stands in for the activity's."""
        return self.accounts if account is None else joined(self.run.outer, account)

    def check(self) -> None:
        """Raise if this attempt may not go on.

        Raises:
            LeaseLost: another attempt has taken over.
            ConfigurationError: this is a forked child; the attempt belongs to its parent.
        """
        if self.pid != os.getpid():
            raise ConfigurationError(
                "An attempt cannot be continued in a forked process. Start an activity of its own there."
            )
        if self.lost is not None:
            raise self.lost

    def heartbeat(self) -> None:
        """Extend the lease now, instead of waiting for the runtime to do so.

        Blocks for one commit; in an async activity await `aheartbeat`.

        Raises:
            LeaseLost: another attempt has taken over.
        """
        self.check()
        self.host.commit(self._extension())

    async def aheartbeat(self) -> None:
        """`heartbeat` without blocking the event loop."""
        self.check()
        await self.host.acommit(self._extension())

    def _extension(self) -> ExtendLease:
        return ExtendLease(self.record.fence, self.host.lease_us)

    def remaining_budget(self) -> Budget:
        """What may still be reserved on this attempt's accounts; None in a dimension without a limit.

        Blocks for one query; in an async activity await `aremaining_budget`.
        """
        self.check()
        return self.host.remaining(self.accounts)

    async def aremaining_budget(self) -> Budget:
        """`remaining_budget` without blocking the event loop."""
        self.check()
        return await asyncio.to_thread(self.host.remaining, self.accounts)


def joined(accounts: tuple[str, ...], account: str | None) -> tuple[str, ...]:
    """The accounts of a run with one more, unless one of them is charged with it anyway."""
    if account is None or any(account in chain_of(other) for other in accounts):
        return accounts
    return (*accounts, account)


_current: ContextVar[Current | None] = ContextVar("memoflow_current", default=None)
_run: ContextVar[Run | None] = ContextVar("memoflow_run", default=None)


def current(what: str) -> Current:
    """The running attempt.

    Raises:
        NoActivityContext: there is none; ``what`` was called outside an activity.
    """
    found = _current.get()
    if found is None:
        raise NoActivityContext(what)
    found.check()
    return found


def current_run() -> Run | None:
    """The run that encloses the caller, or None."""
    return _run.get()


@contextmanager
def entered(run: Run, attempt: Current | None = None) -> Iterator[None]:
    """Make a run, and an attempt if there is one, current for a block."""
    run_token = _run.set(run)
    token = None if attempt is None else _current.set(attempt)
    cause = run.cause if attempt is None else attempt.record.fence.activity_id
    try:
        with nullcontext() if cause is None else caused_by(cause):
            yield
    finally:
        # A coroutine that the collector drops ends in another context, which never had it.
        with suppress(ValueError):
            _run.reset(run_token)
            if token is not None:
                _current.reset(token)
