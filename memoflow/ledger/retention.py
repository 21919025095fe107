"""Erasing protected values whose time is over."""

from __future__ import annotations

from dataclasses import dataclass

from memoflow.ledger.outputs import purge_expired
from memoflow.ledger.transaction import Needs, Transaction

__all__ = ["PurgeExpired"]


@dataclass(frozen=True, slots=True)
class PurgeExpired:
    """Erase the ciphertext of one namespace's expired values. States, figures and digests stay."""

    namespace: str

    def needs(self, needs: Needs) -> None:
        """Nothing."""

    def apply(self, tx: Transaction) -> int:
        """Erase; returns how many values."""
        # What was recorded in this very batch cannot have expired.
        return purge_expired(tx.connection, self.namespace, tx.now)
