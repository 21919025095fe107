"""The protected output store: what must be restored, encrypted and bound to its owner.

The additional data of every ciphertext names the activity's identity, the place of the value in
it and the digest of what it answers. A row that was moved, swapped or altered does not decrypt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, select, update

from memoflow.canonical import canonical
from memoflow.errors import ResultNotRetained
from memoflow.identity import ActivityIdentity
from memoflow.keyring import KeyNotFound, KeyRing, SealBroken, Sealed
from memoflow.ledger import schema as s
from memoflow.ledger.transaction import Transaction

__all__ = ["OutputRow", "Vault", "keep_output", "purge_expired", "read_output"]

DAY_US: Final = 86_400_000_000


@dataclass(frozen=True, slots=True)
class OutputRow:
    """One encrypted value, as stored. ``retain_us`` counts from when it is written; None keeps it."""

    owner_id: str
    kind: str
    binding: str
    key_id: str
    nonce: bytes | None
    ciphertext: bytes | None
    retain_us: int | None = None


class Vault:
    """Seals and opens the values of activities with a key ring.

    Args:
        keys: the key ring; its first key seals.
        retention_days: how long values are kept; None keeps them until purged by hand.
    """

    def __init__(self, keys: KeyRing, *, retention_days: int | None) -> None:
        self._keys = keys
        self._retain_us = None if retention_days is None else retention_days * DAY_US

    def seal(
        self, identity: ActivityIdentity, owner_id: str, kind: str, *, place: str, binding: str, value: bytes
    ) -> OutputRow:
        """Encrypt a value for one place of one activity."""
        sealed = self._keys.seal(value, _bound_to(identity, kind, place, binding))
        return OutputRow(
            owner_id, kind, binding, sealed.key_id, sealed.nonce, sealed.ciphertext, self._retain_us
        )

    def open(
        self, identity: ActivityIdentity, row: OutputRow | None, *, place: str, binding: str, what: str
    ) -> bytes:
        """Decrypt a value.

        Raises:
            ResultNotRetained: it was purged, was never kept, its key is not on the ring, or it was altered.
        """
        if row is None or row.ciphertext is None or row.nonce is None:
            raise ResultNotRetained(what=what, digest=None, reason="it was purged or never kept")
        sealed = Sealed(row.key_id, row.nonce, row.ciphertext)
        try:
            return self._keys.open(sealed, _bound_to(identity, row.kind, place, binding))
        except KeyNotFound:
            reason = f"key {row.key_id!r} is not on the key ring"
        except SealBroken:
            reason = "it does not decrypt under this identity and place; it was altered or moved"
        raise ResultNotRetained(what=what, digest=None, reason=reason)


def _bound_to(identity: ActivityIdentity, kind: str, place: str, binding: str) -> bytes:
    return canonical(
        [
            "memoflow-output-1",
            identity.namespace,
            identity.workflow_id,
            identity.run_id,
            identity.activity_type,
            identity.activity_id,
            kind,
            place,
            binding,
        ]
    )


def keep_output(tx: Transaction, namespace: str, row: OutputRow) -> None:
    """Store a sealed value in this batch."""
    tx.insert(
        s.outputs,
        owner_id=row.owner_id,
        kind=row.kind,
        namespace=namespace,
        binding=row.binding,
        key_id=row.key_id,
        nonce=row.nonce,
        ciphertext=row.ciphertext,
        created_at=tx.now,
        expires_at=None if row.retain_us is None else tx.now + row.retain_us,
    )


def read_output(connection: Connection, owner_id: str, kind: str) -> OutputRow | None:
    """The stored value of an owner, or None."""
    row = connection.execute(
        select(s.outputs).where(s.outputs.c.owner_id == owner_id, s.outputs.c.kind == kind)
    ).one_or_none()
    if row is None:
        return None
    return OutputRow(row.owner_id, row.kind, row.binding, row.key_id, row.nonce, row.ciphertext)


def purge_expired(connection: Connection, namespace: str, now: int) -> int:
    """Erase the ciphertext of values whose time is over; their digests stay. Returns how many."""
    c = s.outputs.c
    result = connection.execute(
        update(s.outputs)
        .where(c.namespace == namespace, c.purged_at.is_(None), c.expires_at <= now)
        .values(nonce=None, ciphertext=None, purged_at=now)
    )
    return result.rowcount
