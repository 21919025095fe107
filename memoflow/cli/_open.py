"""Opening a ledger for one command: nothing is created, and keys are read only where they are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from memoflow.approvals import Approvals
from memoflow.budgets import Budgets
from memoflow.canonical import Digester
from memoflow.ledger.approvals import MayApprove, anybody
from memoflow.ledger.database import Database
from memoflow.ledger.keyfile import stored_ring
from memoflow.ledger.outputs import Vault
from memoflow.ledger.transaction import Operation
from memoflow.ledger.writer import Writer
from memoflow.pricing import PriceBook
from memoflow.reconcile import Reconciler
from memoflow.settings import MemoflowSettings

if TYPE_CHECKING:
    from memoflow.causal.auditor import Auditor

__all__ = ["Ledger", "database_url", "open_ledger"]

T = TypeVar("T")


class Ledger:
    """An open ledger and what commands do with it."""

    def __init__(self, url: str, namespace: str, settings: MemoflowSettings) -> None:
        self.namespace = namespace
        self._url = url
        self._settings = settings
        self.database = Database(url)
        self._writer: Writer | None = None

    @property
    def writer(self) -> Writer:
        """The writer, started by the first command that records something."""
        if self._writer is None:
            self._writer = Writer(self.database, patience=10.0)
        return self._writer

    @cached_property
    def budgets(self) -> Budgets:
        """The accounts."""
        return Budgets(self.database, self.writer, self.namespace)

    @property
    def digester(self) -> Digester:
        """How digests are made."""
        return self._settings.digester()

    def auditor(self) -> Auditor:
        """The causal audit of runs."""
        from memoflow.causal.auditor import Auditor

        return Auditor(self.database, self.namespace)

    def reconciler(self, prices: PriceBook | None = None) -> Reconciler:
        """The queue of unknowns."""
        return Reconciler(
            self.database,
            self.writer,
            self.namespace,
            self._vault(),
            digester=self.digester,
            prices=prices,
        )

    def approvals(self) -> Approvals:
        """What waits for a person."""
        return Approvals(
            self.database,
            self.writer,
            self.namespace,
            self._vault(),
            digester=self._settings.digester(),
            may_approve=self._may_approve(),
        )

    def _may_approve(self) -> MayApprove:
        if self._settings.audit_rules is None:
            return anybody
        # Here and not at the top: only operators that have rules pay for what reads them.
        from memoflow.causal.config import load_strict
        from memoflow.causal.gate import approver_check

        return approver_check(load_strict(self._settings.audit_rules))

    def read(self, query: Callable[..., T], *arguments: Any) -> T:
        """Run a query of this namespace."""
        return self.database.read(lambda connection: query(connection, self.namespace, *arguments))

    def now(self) -> int:
        """UTC microseconds by the ledger's clock."""
        return self.database.read(self.database.clock)

    def record(self, operation: Operation[T]) -> T:
        """Record one operation."""
        return self.writer.record(operation)

    def close(self) -> None:
        """Record what is queued and close the connections."""
        if self._writer is not None:
            self._writer.close()
        self.database.close()

    def _vault(self) -> Vault | None:
        keys = self._settings.key_ring() or stored_ring(self.database)
        return None if keys is None else Vault(keys, retention_days=self._settings.output_retention)


def database_url(given: str | None, settings: MemoflowSettings) -> str:
    """The ledger's URL."""
    url = given or settings.database_url
    if url is None:
        raise typer.BadParameter(
            "No ledger was named. Pass --database sqlite:///memoflow.db or set MEMOFLOW_DATABASE_URL."
        )
    return url


@contextmanager
def open_ledger(url: str | None, namespace: str | None) -> Iterator[Ledger]:
    """An existing ledger with a current schema, for one command.

    Raises:
        ConfigurationError: there is none, or it has another schema.
    """
    settings = MemoflowSettings() if namespace is None else MemoflowSettings(namespace=namespace)
    url = database_url(url, settings)
    ledger = Ledger(url, settings.namespace, settings)
    try:
        yield ledger
    finally:
        ledger.close()
