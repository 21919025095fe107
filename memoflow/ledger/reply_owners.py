"""Whose account a reply belongs to that the provider stores, by a digest of the provider's id of it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, literal, select

from memoflow.ledger import schema as s
from memoflow.ledger.transaction import Needs, Transaction

__all__ = ["OwnReply", "owns_reply"]


@dataclass(frozen=True, slots=True, eq=False)
class OwnReply:
    """Note that an invocation's reply belongs to an account. Goes with the settlement of the invocation."""

    namespace: str
    invocation_id: str
    account: str
    response_digest: str

    def needs(self, needs: Needs) -> None:
        """Nothing."""

    def apply(self, tx: Transaction) -> None:
        """Note it."""
        tx.insert(
            s.reply_owners,
            invocation_id=self.invocation_id,
            namespace=self.namespace,
            account=self.account,
            response_digest=self.response_digest,
            created_at=tx.now,
        )


def owns_reply(connection: Connection, namespace: str, account: str, response_digest: str) -> bool:
    """Whether a reply with this digest of its id was made for an account."""
    c = s.reply_owners.c
    query = select(literal(1)).where(
        c.namespace == namespace, c.response_digest == response_digest, c.account == account
    )
    return connection.execute(query.limit(1)).first() is not None
