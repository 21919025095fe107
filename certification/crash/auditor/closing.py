"""After everything was reconciled: nothing is open, and every account has paid what was billed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from certification.crash.auditor.outside import Outside
from certification.crash.auditor.tables import DIMENSIONS, Tables, amounts, with_ancestors
from certification.crash.auditor.violation import Violation
from certification.crash.auditor.wire import read_invocations

__all__ = ["audit_closing"]

EXACT = DIMENSIONS[:6]
"""Wall-clock time is measured on this side; no provider bills it."""
REJECTIONS = {400, 401, 403, 404, 405, 413, 415, 422, 429}
OPEN = {
    "reservations": "SELECT id FROM reservations WHERE state IN ('HELD', 'RECONCILE')",
    "invocations": "SELECT id FROM invocations WHERE state IN ('STARTED', 'OUTCOME_UNKNOWN')",
    "effects": "SELECT id FROM effects WHERE state IN ('STARTED', 'OUTCOME_UNKNOWN')",
    "attempts": "SELECT id FROM attempts WHERE state = 'RUNNING'",
}


def audit_closing(tables: Tables, outside: Outside) -> Iterator[Violation]:
    """What may not be left, and the sums of all accounts."""
    for table, query in OPEN.items():
        for row in tables.rows(query):
            yield Violation("LEFT_OPEN", f"{table} {row['id']}", "it should have been resolved")
    billed = _billed(tables, outside)
    charged: dict[str, list[int]] = defaultdict(lambda: [0] * len(DIMENSIONS))
    query = "SELECT b.*, a.path FROM balances b JOIN accounts a ON a.id = b.account_id"
    for row in tables.rows(query):
        if any(amounts(row, "held")) or any(amounts(row, "unknown")):
            yield Violation("LEFT_HELD", row["path"], f"in the period that began at {row['period_start']}")
        charged[row["path"]] = [
            a + b for a, b in zip(charged[row["path"]], amounts(row, "settled"), strict=True)
        ]
    for path in sorted(charged.keys() | billed.keys()):
        paid = dict(zip(EXACT, charged[path], strict=False))
        wanted = dict(zip(EXACT, billed[path], strict=True))
        if paid != wanted:
            yield Violation("NOT_EXACT", path, f"charged {paid}, billed {wanted}")


def _billed(tables: Tables, outside: Outside) -> dict[str, list[int]]:
    """What every account should have been charged, by the provider's record."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0] * len(EXACT))
    invocations = read_invocations(tables)
    for key, wires in outside.wires.items():
        for wire in wires:
            if not wire.performed and wire.status not in REJECTIONS:
                continue
            # A reply that nobody heard could ask for nothing.
            heard = any(row["response_digest"] is not None for row in invocations.get(key, ()))
            tokens = (wire.input_tokens + wire.output_tokens, wire.input_tokens, wire.output_tokens)
            figures = (*tokens, 1, wire.asked if heard else 0, wire.cost)
            for path in {path for leaf in wire.accounts for path in with_ancestors(leaf)}:
                sums[path] = [a + b for a, b in zip(sums[path], figures, strict=True)]
    return sums
