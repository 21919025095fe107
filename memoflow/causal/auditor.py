"""The causal audit of what a ledger holds: ``rt.audit``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import IO

from memoflow.causal.findings import AuditResult
from memoflow.causal.jsonl import write_jsonl
from memoflow.causal.ledger import ledger_rules, records_of
from memoflow.causal.record import CausalRecord
from memoflow.causal.strict.audit import audit_strict
from memoflow.causal.strict.rules import StrictRules
from memoflow.errors import NotFound
from memoflow.ledger.causes import cause_rows, cause_rows_of
from memoflow.ledger.database import Database

__all__ = ["Auditor"]


class Auditor:
    """Says why what a run did was permitted. It only reads, and holds no more than an index of the run."""

    def __init__(self, database: Database, namespace: str) -> None:
        self._database = database
        self._namespace = namespace

    def check(
        self, *, workflow_id: str, run_id: str | None = None, rules: StrictRules | None = None
    ) -> AuditResult:
        """Audit a run, or all runs of a workflow, by the strict rules.

        Args:
            workflow_id: the business process.
            run_id: this run of it; all of them if left out.
            rules: see `StrictRules`; what permits a ledger's own rows is known without being named there.

        Raises:
            NotFound: there is no such run in this namespace.
            LedgerUnavailable: the database cannot be reached.
        """
        with self.records(workflow_id=workflow_id, run_id=run_id) as records:
            return audit_strict(records, ledger_rules(rules))

    def export(self, file: IO[bytes], *, workflow_id: str, run_id: str | None = None) -> int:
        """Write the causal records of a run as JSON Lines, which `memoflow audit check` reads.

        Returns:
            How many were written.

        Raises:
            NotFound: there is no such run in this namespace; nothing was written.
            LedgerUnavailable: the database cannot be reached.
        """
        with self.records(workflow_id=workflow_id, run_id=run_id) as records:
            return write_jsonl(records, file)

    @contextmanager
    def records(self, *, workflow_id: str, run_id: str | None = None) -> Iterator[Iterator[CausalRecord]]:
        """The causal records of a run, causes before effects, read while they are asked for.

        Raises:
            NotFound: there is no such run in this namespace.
            LedgerUnavailable: the database cannot be reached.
        """
        with self._database.reading() as connection:
            rows = cause_rows(connection, self._namespace, workflow_id, run_id)
            if (first := next(rows, None)) is None:
                run = workflow_id if run_id is None else f"{workflow_id}/{run_id}"
                raise NotFound(what="run", id=run, namespace=self._namespace)
            yield records_of(chain([first], rows), partial(cause_rows_of, connection, self._namespace))
