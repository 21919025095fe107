"""The runtime: an open ledger, and what a program does with it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar

from memoflow.activity import Activity
from memoflow.budget import Budget
from memoflow.budgets import Budgets
from memoflow.canonical import Digester
from memoflow.context import Current, Undo, current
from memoflow.errors import ConfigurationError
from memoflow.identity import check_name, check_person
from memoflow.judges import configured_judges
from memoflow.keyring import KeyRing
from memoflow.leases import LeaseKeeper
from memoflow.ledger.account_queries import remaining
from memoflow.ledger.accounts import check_path
from memoflow.ledger.approvals import MAX_WAIT_US
from memoflow.ledger.database import Clock, Database
from memoflow.ledger.dialect import database_now, normalise_url
from memoflow.ledger.keyfile import make_ring
from memoflow.ledger.migrate import check, upgrade
from memoflow.ledger.outputs import Vault
from memoflow.ledger.transaction import Operation
from memoflow.ledger.writer import Writer
from memoflow.pricing import PriceBook
from memoflow.retry import Retry
from memoflow.scope import RunScope
from memoflow.turn import APPROVAL_LAPSES_US, Bench, Judge, Ledger

if TYPE_CHECKING:
    from memoflow.approvals import Approvals
    from memoflow.causal.auditor import Auditor
    from memoflow.causal.strict.rules import StrictRules
    from memoflow.inspection import Inspector
    from memoflow.reconcile import Reconciler

__all__ = ["Runtime"]

P = ParamSpec("P")
R = TypeVar("R")


class Runtime:
    """An open ledger. Use `Runtime.open`, and close it when the program ends (it is a context manager).

    One runtime serves all threads and event loops of a process.

    Attributes:
        budgets: accounts and their limits.
        bench: who judges the calls of models.
        prices: prices of models.
    """

    def __init__(
        self,
        database: Database,
        *,
        namespace: str,
        keys: KeyRing,
        digester: Digester,
        prices: PriceBook,
        lease_seconds: int,
        retention_days: int | None,
        worker: str,
        judges: Iterable[Judge] = (),
        approval_us: int = APPROVAL_LAPSES_US,
    ) -> None:
        self.namespace = check_name("namespace", namespace)
        self.ledger = Ledger(database, Writer(database))
        self.vault = Vault(keys, retention_days=retention_days)
        self.digester = digester
        self.prices = prices
        self.lease_us = lease_seconds * 1_000_000
        self.worker = check_name("worker", worker)
        self.bench = Bench(judges)
        self.approval_us = approval_us
        self.budgets = Budgets(database, self.ledger.writer, namespace)
        self._leases = LeaseKeeper(self.ledger.writer, self.lease_us)

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        namespace: str | None = None,
        keys: KeyRing | None = None,
        digester: Digester | None = None,
        prices: PriceBook | None = None,
        lease_seconds: int | None = None,
        worker: str | None = None,
        judges: Iterable[Judge] = (),
        audit_rules: StrictRules | Path | str | None = None,
        inspection: Inspector | Path | str | None = None,
        approval_window: timedelta | None = None,
        clock: Clock = database_now,
    ) -> Self:
        """Open a ledger. What is not given comes from `MemoflowSettings` (``MEMOFLOW_…``).

        A SQLite file that does not exist yet is created with the current schema, and without a
        configured key a key file beside it (mode 0600). A key file that is gone again is not replaced: a
        new key could not open what the old one sealed. Other databases are never changed here.

        Args:
            url: ``sqlite:///memoflow.db`` or ``postgresql+psycopg://…``.
            namespace: tenant boundary of everything this runtime reads and writes.
            keys: key ring of the protected output store; its first key encrypts.
            digester: keyed digests, if plain ones could be guessed.
            prices: prices of models, needed where an account limits cost.
            lease_seconds: how long an attempt may be silent before another may take over, 1 to 86400.
            worker: name of this worker in the record of attempts.
            judges: who is asked about every tool call of a model before it may begin.
            audit_rules: rules of the causal audit, or a file of them, by which every call is judged too.
            inspection: an inspector, a policy file, or ``shipped``: by which every call is inspected. With a
                file the mode is ``shadow`` unless a setting says otherwise.
            approval_window: how long a call may wait for a person before it lapses; 7 days if left out.
            clock: UTC microseconds of a connection; the database's own unless a test brings another.

        Raises:
            ConfigurationError: the URL, a key or a setting cannot be used, or the key file is gone.
            SchemaOutdated: `memoflow db upgrade` is needed.
            LedgerUnavailable: the database cannot be reached.
        """
        from memoflow.settings import MemoflowSettings

        # Before anything is paid: what cannot seal or price would show only after a reply has come.
        for name, value, kind in (
            ("keys", keys, KeyRing),
            ("digester", digester, Digester),
            ("prices", prices, PriceBook),
        ):
            if value is not None and not isinstance(value, kind):
                raise ConfigurationError(
                    f"Runtime.open takes a {kind.__name__} as {name}, not {type(value).__name__}. "
                    + _MADE_BY[name]
                )
        given = {"database_url": url, "namespace": namespace, "lease_seconds": lease_seconds}
        settings = MemoflowSettings(**{name: value for name, value in given.items() if value is not None})
        url = settings.database_url
        if url is None:
            raise ConfigurationError(
                "No database was named. Pass Runtime.open('sqlite:///memoflow.db') "
                "or set MEMOFLOW_DATABASE_URL."
            )
        _create_sqlite(url)
        database = Database(url, clock=clock)
        digester = digester or settings.digester()
        try:
            configured = configured_judges(
                database, settings, digester, audit_rules=audit_rules, inspection=inspection
            )
            judges = (*configured, *judges)
            ring = keys if keys is not None else settings.key_ring() or make_ring(database)
        except BaseException:
            database.close()
            raise
        return cls(
            database,
            namespace=settings.namespace,
            keys=ring,
            digester=digester,
            prices=prices or PriceBook(),
            lease_seconds=settings.lease_seconds,
            retention_days=settings.output_retention,
            worker=worker or f"{socket.gethostname()}:{os.getpid()}",
            judges=judges,
            approval_us=_window_us(approval_window),
        )

    @cached_property
    def reconcile(self) -> Reconciler:
        """The queue of unknown outcomes and decisions on it."""
        # Here and not at the top: importing memoflow is to be cheap, and few programs decide themselves.
        from memoflow.reconcile import Reconciler

        return Reconciler(
            self.ledger.database,
            self.ledger.writer,
            self.namespace,
            self.vault,
            digester=self.digester,
            prices=self.prices,
        )

    @cached_property
    def approvals(self) -> Approvals:
        """What waits for a person, and decisions on it."""
        from memoflow.approvals import Approvals

        return Approvals(
            self.ledger.database,
            self.ledger.writer,
            self.namespace,
            self.vault,
            digester=self.digester,
            may_approve=self.bench.may_approve,
        )

    @cached_property
    def audit(self) -> Auditor:
        """Why what was done in a run was permitted."""
        from memoflow.causal.auditor import Auditor

        return Auditor(self.ledger.database, self.namespace)

    # Activities and runs

    def activity(
        self,
        *,
        version: str,
        name: str | None = None,
        budget: str | None = None,
        retry: Retry | None = None,
        requester: str | None = None,
    ) -> Callable[[Callable[P, R]], Activity[P, R]]:
        """Make a function an activity; start it with ``.run(...)``.

        Args:
            version: part of what the activity is; another version is another activity.
            name: its type; the function's name if left out.
            budget: the account its calls are charged to, with all its ancestors.
            retry: how often to try when a failure is known to be safe to retry; once if left out.
            requester: on whose behalf it asks for approvals, where its run does not say;
                ``agent:<name>`` if left out. Whoever this is may not approve.
        """
        if budget is not None and not isinstance(budget, str):
            raise ConfigurationError(
                "An activity's budget is the path of an account, for example 'acme/support'. "
                "Limit a run with rt.run(budget=Budget(...)), a call with its own budget=."
            )
        if budget is not None:
            check_path(budget)
        return lambda function: Activity(
            self,
            function,
            version=version,
            name=name,
            budget=budget,
            retry=retry,
            requester=requester,
        )

    def run(
        self,
        *,
        workflow_id: str,
        run_id: str | None = None,
        budget: Budget | None = None,
        under: str | None = None,
        requester: str | None = None,
        cause: str | None = None,
    ) -> RunScope:
        """A run of a workflow, as a context manager (``with`` or ``async with``).

        Activities started inside belong to it. With a budget, all of them together, with their retries
        and sub-agents, stay within it and within the account it stands under.

        Args:
            workflow_id: the business process.
            run_id: this run of it. Without one a new one is made, and nothing is found again later.
            budget: what the run may use in all. Another one on a later entry replaces it, but never what
                somebody else has set on the run's account since.
            under: the account the run's budget is part of; needed with ``budget``.
            requester: on whose behalf it runs. Approvals are asked for in this name, which may not give them.
            cause: id of the record that what is started in it descends from, for example
                ``rt.current().cause`` of an activity in another process.
        """
        if budget is not None and under is None:
            raise ConfigurationError(
                "rt.run(budget=…) needs under='<account>', the account that the run's budget is part of."
            )
        asking = None if requester is None else check_person("requester", requester)
        why = None if cause is None else check_name("cause", cause)
        return RunScope(self, check_name("workflow_id", workflow_id), run_id, budget, under, asking, why)

    def current(self) -> Current:
        """The attempt that is running.

        Raises:
            NoActivityContext: called outside an activity.
        """
        return current("rt.current()")

    # What activities use

    def commit(self, operation: Operation[Any], undo: Undo | None = None) -> Any:
        """Record an operation durably; blocks. An interrupt waits for that, and for what undoes it."""
        (future,) = self.ledger.writer.submit(operation)
        interrupted: BaseException | None = None
        while True:
            try:
                value = future.result()
                break
            except KeyboardInterrupt as interrupt:
                interrupted = interrupt
        if interrupted is None:
            return value
        if undo is not None and (back := undo(value)) is not None:
            self.commit(back)
        raise interrupted

    async def acommit(self, operation: Operation[Any], undo: Undo | None = None) -> Any:
        """The same without blocking the event loop; a cancellation waits."""
        (work,) = self.ledger.writer.asubmit(operation)
        cancelled: BaseException | None = None
        while not work.done():
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError as error:
                cancelled = error
            except Exception:
                break
        if cancelled is None:
            return work.result()
        if work.exception() is None and undo is not None and (back := undo(work.result())) is not None:
            await self.acommit(back)
        raise cancelled

    def watch(self, attempt: Current) -> None:
        """Keep an attempt's lease alive."""
        self._leases.watch(attempt)

    def forget(self, attempt: Current) -> None:
        """Stop keeping it."""
        self._leases.forget(attempt)

    def remaining(self, accounts: tuple[str, ...]) -> Budget:
        """What may still be reserved on these accounts and their ancestors."""
        database = self.ledger.database
        return database.read(
            lambda connection: remaining(connection, self.namespace, accounts, database.clock(connection))
        )

    def close(self) -> None:
        """Record what is queued and close the database. Closing twice is harmless."""
        self._leases.close()
        self.ledger.writer.close()
        self.ledger.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_MADE_BY: Final = {
    "keys": "KeyRing.parse(text) reads an exported ring.",
    "digester": "Digester(key, key_id) makes one.",
    "prices": "PriceBook({model: Price(...)}) makes one.",
}


def _window_us(window: timedelta | None) -> int:
    """Microseconds for which a person may be waited for.

    Raises:
        ConfigurationError: it is no positive timedelta.
    """
    if window is None:
        return APPROVAL_LAPSES_US
    if (
        not isinstance(window, timedelta)
        or not 0 < (us := window // timedelta(microseconds=1)) <= MAX_WAIT_US
    ):
        raise ConfigurationError(
            "approval_window must be a positive timedelta of a hundred years at most, for example "
            "timedelta(days=2)."
        )
    return us


def _create_sqlite(url: str) -> None:
    """Give a SQLite file without any schema the current one; an outdated one is left for the operator."""
    if normalise_url(url).get_backend_name() == "sqlite" and check(url).found is None:
        upgrade(url)
