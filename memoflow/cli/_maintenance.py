"""``memoflow verify`` and ``memoflow purge``."""

from __future__ import annotations

import typer

from memoflow.cli._open import open_ledger
from memoflow.cli._options import AsJson, DatabaseUrl, Namespace
from memoflow.cli._screen import say, show_json, show_table

__all__ = ["purge", "verify"]


def verify(database: DatabaseUrl = None, namespace: Namespace = None, json: AsJson = False) -> None:
    """Recompute every balance, chain and state, and name what differs. Exit code 1 if anything does.

    All namespaces are checked unless one is named.
    """
    from memoflow.ledger.verify import verify as findings

    with open_ledger(database, namespace) as ledger:
        found = ledger.database.read(lambda connection: findings(connection, namespace))
    if json:
        show_json({"items": found, "next": None})
    elif found:
        rows = [(finding.code, finding.table, finding.id, finding.message) for finding in found]
        show_table(("CODE", "TABLE", "ROW", "WHAT DIFFERS"), rows, empty="")
    else:
        say("Everything agrees: balances, hash chains, states and guards.")
    raise typer.Exit(1 if found else 0)


def purge(database: DatabaseUrl = None, namespace: Namespace = None) -> None:
    """Erase protected outputs whose retention is over. Their digests stay; nothing is run again for it."""
    from memoflow.ledger.retention import PurgeExpired

    with open_ledger(database, namespace) as ledger:
        erased = ledger.record(PurgeExpired(ledger.namespace))
    say(f"Erased {erased} expired outputs.")
