"""Recomputing the whole ledger from its journal, and naming what differs.

Nothing here is shared with the code that writes, but the tables, the form of the hash
chain and who is the same person: a rule that the writer gets wrong is not got wrong in the
same way twice. Rows are streamed in the order of keys, so memory does not grow with the
ledger, and time grows with its number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection

from memoflow.ledger import guards
from memoflow.ledger.dialect import begin_snapshot
from memoflow.ledger.verify._activities import activity_findings
from memoflow.ledger.verify._approvals import approval_findings
from memoflow.ledger.verify._balances import balance_findings
from memoflow.ledger.verify._effects import effect_findings
from memoflow.ledger.verify._finding import Finding
from memoflow.ledger.verify._references import reference_findings
from memoflow.ledger.verify._reservations import reservation_findings

__all__ = ["Finding", "findings", "verify"]


def verify(connection: Connection, namespace: str | None = None) -> list[Finding]:
    """Everything that is wrong with the ledger, in a fixed order; an empty list if nothing is.

    Args:
        connection: best one that has not run anything yet: then all tables are read from one snapshot,
            while others go on writing.
        namespace: only the rows of this namespace; of all if None.
    """
    return list(findings(connection, namespace))


def findings(connection: Connection, namespace: str | None = None) -> Iterator[Finding]:
    """The same one by one, as they are found: for a ledger that may hold very many, or for the first only."""
    begin_snapshot(connection)
    yield from balance_findings(connection, namespace)
    yield from reservation_findings(connection, namespace)
    yield from effect_findings(connection, namespace)
    yield from approval_findings(connection, namespace)
    yield from activity_findings(connection, namespace)
    yield from reference_findings(connection, namespace)
    for guard in guards.missing(connection):
        message = (
            f"The guard {guard.trigger} is missing, so nothing keeps {guard.table} to its rule: {guard.rule}."
        )
        yield Finding("GUARD_MISSING", guard.table, guard.trigger, message)
