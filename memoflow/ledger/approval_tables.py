"""The tables of human approvals: what is asked, what was decided, and what was begun because of it.

All three are append-only, and a row of each bears the id of the effect that it is about: one request, one
decision and one use at most, by construction. What may be written into them is held by guards.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Index, Integer, Table, Text, text

from memoflow.ledger.columns import metadata, one_of

__all__ = ["approval_decisions", "approval_requests", "approval_uses"]

approval_requests = Table(
    "approval_requests",
    metadata,
    Column("id", Text, ForeignKey("effects.id"), primary_key=True),
    Column("namespace", Text, nullable=False),
    Column("activity_id", Text, ForeignKey("activities.id"), nullable=False),
    Column("invocation_id", Text, ForeignKey("invocations.id"), nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("tool_namespace", Text, nullable=False),
    Column("tool_name", Text, nullable=False),
    Column("tool_version", Text, nullable=False),
    Column("arguments_digest", Text, nullable=False),
    Column("idempotency_key", Text, nullable=False),
    Column("requester", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Index(None, "namespace", "idempotency_key"),
)
"""What a worker asks to be allowed. Nothing has happened yet; the effect is AWAITING_APPROVAL."""

approval_decisions = Table(
    "approval_decisions",
    metadata,
    Column("id", Text, ForeignKey("approval_requests.id"), primary_key=True),
    Column("namespace", Text, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("requester", Text, nullable=False),
    Column("approver", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("shared", Integer, nullable=False, server_default=text("0")),
    Column("binding_digest", Text, nullable=False),
    Column("decided_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    one_of("verdict", "approved", "denied"),
    CheckConstraint("lower(approver) <> lower(requester)", name="by_somebody_else"),
    CheckConstraint("(verdict = 'approved') = (expires_at IS NOT NULL)", name="approved_until"),
)
"""Who allowed or refused it, until when and why. ``shared``: the model may be told the reason."""

approval_uses = Table(
    "approval_uses",
    metadata,
    Column("id", Text, ForeignKey("approval_decisions.id"), primary_key=True),
    Column("namespace", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("binding_digest", Text, nullable=False),
    Column("used_at", BigInteger, nullable=False),
)
"""That an approval was used up: written in the transaction in which its effect is begun."""
