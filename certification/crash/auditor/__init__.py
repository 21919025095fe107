"""The independent auditor: it believes the tables, the provider and the tools, and compares them.

It shares no code with the ledger and imports nothing of memoflow: rows are read by plain drivers, the hash
chain, the balances and the rules are stated here once more, from their description and not from their code.
What the world outside saw comes from files that the provider, the tools and the workers wrote themselves:

- ``provider.jsonl``: every request that arrived, whether it was performed, and what was billed
- ``tools.jsonl``: every execution that reached the outside world
- ``worker-*.jsonl``: everything that was acknowledged to a worker
- ``operator.jsonl``: every decision that was acknowledged to the operator
"""

from __future__ import annotations

from pathlib import Path

from certification.crash.auditor.books import audit_books
from certification.crash.auditor.closing import audit_closing
from certification.crash.auditor.effects import audit_effects
from certification.crash.auditor.outside import Outside
from certification.crash.auditor.promises import audit_promises
from certification.crash.auditor.tables import open_tables
from certification.crash.auditor.violation import Violation
from certification.crash.auditor.wire import audit_wire

__all__ = ["Violation", "audit"]


def audit(url: str, evidence: Path, *, final: bool = False) -> list[Violation]:
    """Everything that is wrong, in one snapshot of the database; an empty list if nothing is.

    Args:
        url: ``sqlite:///file.db`` or ``postgresql://…``.
        evidence: the directory with the files of the world outside.
        final: everything was reconciled, so nothing may be left open and every sum must be exact.
    """
    outside = Outside.read(evidence)
    with open_tables(url) as tables:
        found = [
            *audit_books(tables),
            *audit_wire(tables, outside),
            *audit_effects(tables, outside),
            *audit_promises(tables, outside),
        ]
        return [*found, *audit_closing(tables, outside)] if final else found
