"""The gateway's tables: virtual keys, whose replies the provider stores, and what inspection decided.

All are append-only.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, Table, Text, UniqueConstraint

from memoflow.ledger.columns import metadata

__all__ = ["inspections", "reply_owners", "virtual_key_revocations", "virtual_keys"]

virtual_keys = Table(
    "virtual_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("namespace", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("hint", Text, nullable=False),
    Column("account", Text, nullable=False),
    Column("models", Text, nullable=False),
    Column("endpoints", Text, nullable=False),
    Column("output_tokens", Integer),
    Column("actor", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    UniqueConstraint("namespace", "digest"),
)
"""What stands for an account at the gateway. Of the key itself a digest and its last characters are kept."""

virtual_key_revocations = Table(
    "virtual_key_revocations",
    metadata,
    Column("key_id", ForeignKey("virtual_keys.id"), primary_key=True),
    Column("namespace", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
)
"""Who revoked a key and why. A key is never given back."""

reply_owners = Table(
    "reply_owners",
    metadata,
    Column("invocation_id", ForeignKey("invocations.id"), primary_key=True),
    Column("namespace", Text, nullable=False),
    Column("account", Text, nullable=False),
    Column("response_digest", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Index(None, "namespace", "response_digest"),
)
"""The account that a stored reply of the provider belongs to, by a digest of the provider's id of it."""

inspections = Table(
    "inspections",
    metadata,
    Column("id", Text, primary_key=True),
    Column("namespace", Text, nullable=False),
    Column("invocation_id", ForeignKey("invocations.id"), nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("mode", Text, nullable=False),
    Column("decision", Text, nullable=False),
    Column("effect", Text, nullable=False),
    Column("rule", Text),
    Column("record", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    UniqueConstraint("invocation_id", "ordinal"),
)
"""What was decided about a call or a text in a request or its reply; digests, ids and lengths, never text."""
