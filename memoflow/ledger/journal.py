"""The hash chain of a balance's journal: what is hashed, and how.

The chain starts at `GENESIS`. Each row's hash covers the one before it and every column
that has a meaning, as decimal or text fields joined by a separator that no field can hold.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from memoflow.budget import Amounts

__all__ = ["GENESIS", "Entry", "entry_hash"]

GENESIS: Final = "0" * 64


class Entry(NamedTuple):
    """One journal row: signed differences of settled, held and unknown."""

    balance_id: int
    seq: int
    at: int
    event: str
    reservation_id: str
    policy_version: int
    settled: Amounts
    held: Amounts
    unknown: Amounts


def entry_hash(previous: str, entry: Entry) -> str:
    """The hash of a row that follows the row hashed as ``previous``; 64 hexadecimal digits (SHA-256)."""
    fields = (
        previous,
        entry.balance_id,
        entry.seq,
        entry.at,
        entry.event,
        entry.reservation_id,
        entry.policy_version,
        *entry.settled,
        *entry.held,
        *entry.unknown,
    )
    return hashlib.sha256("\x1f".join(map(str, fields)).encode()).hexdigest()
