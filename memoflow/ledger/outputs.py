"""The protected output store: what must be restored, encrypted and bound to its owner.

The additional data of every ciphertext names the activity's identity, the place of the value in
it and the digest of what it answers. A row that was moved, swapped or altered does not decrypt.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from memoflow.canonical import canonical
from memoflow.errors import ResultNotRetained
from memoflow.identity import ActivityIdentity
from memoflow.keyring import KeyNotFound, KeyRing, SealBroken, Sealed
from memoflow.ledger import schema as s
from memoflow.ledger.transaction import Transaction
from memoflow.periods import DAY_US

__all__ = [
    "OutputRow",
    "Vault",
    "keep_output",
    "purge_expired",
    "read_output",
    "sealed_with",
    "sealing_key",
]


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
        self,
        identity: ActivityIdentity,
        owner_id: str,
        kind: str,
        *,
        place: str,
        binding: str,
        value: bytes,
        key_id: str | None = None,
    ) -> OutputRow:
        """Encrypt a value for one place of one activity; with the current key, or the one named.

        Raises:
            KeyNotFound: that key is not on the ring.
        """
        sealed = self._keys.seal(value, _bound_to(identity, kind, place, binding), key_id=key_id)
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
        sealed, key_id = Sealed(row.key_id, row.nonce, row.ciphertext), None
        try:
            return self._keys.open(sealed, _bound_to(identity, row.kind, place, binding))
        except KeyNotFound:
            key_id, reason = row.key_id, f"key {row.key_id!r} is not on the key ring"
        except SealBroken:
            reason = "it does not decrypt under this identity and place; it was altered or moved"
        raise ResultNotRetained(what=what, digest=None, reason=reason, key_id=key_id)


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


def sealing_key(connection: Connection, namespace: str, invocation_id: str) -> str | None:
    """The key for what is added to an invocation afterwards; None where nothing was sealed yet.

    It is the key of its reply, because whoever restores that can open what is added to it; where no
    reply is kept, the key of what was sealed last. The first key of whoever adds might be known to no worker.
    """
    c = s.outputs.c
    of_reply = (c.owner_id == invocation_id, c.kind == "reply", c.purged_at.is_(None))
    last = select(c.key_id).where(c.namespace == namespace).order_by(c.created_at.desc()).limit(1)
    found: str | None = connection.scalar(select(c.key_id).where(*of_reply)) or connection.scalar(last)
    return found


def sealed_with(connection: Connection) -> str | None:
    """A key that something in the ledger is sealed with, in any namespace; None where nothing is."""
    c = s.outputs.c
    found: str | None = connection.scalar(select(c.key_id).where(c.purged_at.is_(None)).limit(1))
    return found


def purge_expired(connection: Connection, namespace: str, now: int) -> int:
    """Erase the ciphertext of values whose time is over; their digests stay. Returns how many."""
    c = s.outputs.c
    result = connection.execute(
        update(s.outputs)
        .where(c.namespace == namespace, c.purged_at.is_(None), c.expires_at <= now)
        .values(nonce=None, ciphertext=None, purged_at=now)
    )
    return result.rowcount
