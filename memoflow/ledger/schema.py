"""The ledger's tables.

Every row belongs to a namespace, every amount is an integer, every time is UTC integer
microseconds, every id is UUIDv7 text. No column can hold a prompt, a reply, arguments or
a result in the clear: ``outputs`` holds ciphertext, everything else identities, states,
digests and counters.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from memoflow.ledger.approval_tables import approval_decisions, approval_requests, approval_uses
from memoflow.ledger.columns import (
    Serial,
    amount_columns,
    amount_values,
    metadata,
    never_negative,
    one_of,
    partial_index,
    read_amounts,
)
from memoflow.ledger.gateway_tables import (
    inspections,
    reply_owners,
    virtual_key_revocations,
    virtual_keys,
)

__all__ = [
    "amount_columns",
    "amount_values",
    "approval_decisions",
    "approval_requests",
    "approval_uses",
    "inspections",
    "metadata",
    "never_negative",
    "one_of",
    "partial_index",
    "read_amounts",
    "reply_owners",
    "virtual_key_revocations",
    "virtual_keys",
]

writers = Table(
    "writers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("batches", BigInteger, nullable=False),
    Column("started_at", BigInteger, nullable=False),
)
"""One row per writer: how many batches it committed; after a lost reply, whether the last one arrived."""

accounts = Table(
    "accounts",
    metadata,
    Column("id", Serial, primary_key=True, autoincrement=True),
    Column("namespace", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("parent_id", ForeignKey("accounts.id")),
    Column("period", Text, nullable=False),
    Column("time_zone", Text, nullable=False),
    Column("currency", Text),
    Column("state", Text, nullable=False),
    Column("policy_version", Integer, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("namespace", "path"),
    one_of("period", "none", "hour", "day", "week", "month"),
    one_of("state", "OPEN", "CLOSED"),
)

policies = Table(
    "policies",
    metadata,
    Column("account_id", ForeignKey("accounts.id"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("state", Text, nullable=False),
    *amount_columns("hard", nullable=True),
    *amount_columns("soft", nullable=True),
    Column("strict_input", Integer, nullable=False, server_default=text("0")),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    PrimaryKeyConstraint("account_id", "version"),
)
"""Every version of an account's limits, who set it and why; append-only."""

balances = Table(
    "balances",
    metadata,
    Column("id", Serial, primary_key=True, autoincrement=True),
    Column("account_id", ForeignKey("accounts.id"), nullable=False),
    Column("period_start", BigInteger, nullable=False),
    Column("period_end", BigInteger),
    *amount_columns("settled"),
    *amount_columns("held"),
    *amount_columns("unknown"),
    Column("seq", BigInteger, nullable=False),
    Column("head", Text, nullable=False),
    UniqueConstraint("account_id", "period_start"),
    *never_negative("settled", "held", "unknown"),
)
"""The running sums of one account in one period, and the head of its journal's hash chain."""

journal = Table(
    "journal",
    metadata,
    Column("balance_id", ForeignKey("balances.id"), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("event", Text, nullable=False),
    Column("reservation_id", Text, nullable=False),
    Column("policy_version", Integer, nullable=False),
    *amount_columns("settled"),
    *amount_columns("held"),
    *amount_columns("unknown"),
    Column("hash", Text, nullable=False),
    PrimaryKeyConstraint("balance_id", "seq"),
    Index(None, "reservation_id"),
    one_of("event", "reserve", "settle", "release", "unknown"),
)
"""Every change of every balance, as signed differences; append-only and hash-chained per balance."""

activities = Table(
    "activities",
    metadata,
    Column("id", Text, primary_key=True),
    Column("namespace", Text, nullable=False),
    Column("workflow_id", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("activity_id", Text, nullable=False),
    Column("activity_type", Text, nullable=False),
    Column("activity_version", Text, nullable=False),
    Column("input_digest", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("lease_expires_at", BigInteger, nullable=False),
    Column("output_digest", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("cause", Text),
    UniqueConstraint("namespace", "workflow_id", "run_id", "activity_id"),
    one_of("state", "RUNNING", "FREE", "COMPLETED"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", Text, primary_key=True),
    Column("activity_id", ForeignKey("activities.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("worker", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("error_type", Text),
    Column("claimed_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    UniqueConstraint("activity_id", "number"),
    one_of("state", "RUNNING", "COMPLETED", "FAILED", "CANCELLED", "PARKED", "LOST"),
)

turns = Table(
    "turns",
    metadata,
    Column("id", Text, primary_key=True),
    Column("namespace", Text, nullable=False),
    Column("activity_id", ForeignKey("activities.id"), nullable=False),
    Column("replay_key", Text, nullable=False),
    Column("api", Text, nullable=False),
    Column("request_digest", Text, nullable=False),
    Column("executors_digest", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("activity_id", "replay_key"),
)
"""What a replay key is bound to."""

invocations = Table(
    "invocations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("namespace", Text, nullable=False),
    Column("activity_id", ForeignKey("activities.id"), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("turn_id", ForeignKey("turns.id")),
    Column("round", Integer, nullable=False),
    Column("provider", Text, nullable=False),
    Column("api", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("request_digest", Text, nullable=False),
    Column("input_basis", Text, nullable=False),
    Column("input_measured", BigInteger),
    Column("output_cap", BigInteger),
    Column("price_version", Text),
    Column("metadata", Text),
    Column("state", Text, nullable=False),
    Column("reason", Text),
    Column("finish_reason", Text),
    Column("http_status", Integer),
    Column("error_code", Text),
    Column("error_type", Text),
    Column("response_digest", Text),
    Column("reply_model", Text),
    Column("service_tier", Text),
    Column("input_tokens", BigInteger),
    Column("cached_input_tokens", BigInteger),
    Column("cache_write_tokens", BigInteger),
    Column("output_tokens", BigInteger),
    Column("reasoning_tokens", BigInteger),
    Column("cost", BigInteger),
    Column("started_at", BigInteger, nullable=False),
    Column("finished_at", BigInteger),
    Column("cause", Text),
    one_of("state", "STARTED", "SUCCEEDED", "FAILED", "CANCELLED", "OUTCOME_UNKNOWN"),
    one_of("input_basis", "bound", "estimate", "counted", "declared", "none"),
)
Index("ix_invocations_activity_id", invocations.c.activity_id)
Index("ix_invocations_turn_id", invocations.c.turn_id)
partial_index("ix_invocations_unknown", invocations.c.started_at, where="state = 'OUTCOME_UNKNOWN'")

reservations = Table(
    "reservations",
    metadata,
    Column("id", ForeignKey("invocations.id"), primary_key=True),
    Column("namespace", Text, nullable=False),
    Column("account", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text),
    *amount_columns("reserved"),
    *amount_columns("actual", nullable=True),
    Column("created_at", BigInteger, nullable=False),
    Column("resolved_at", BigInteger),
    Column("decision_id", Text),
    one_of("state", "HELD", "SETTLED", "RELEASED", "RECONCILE"),
    *never_negative("reserved"),
)
"""What one invocation holds. A reservation bears the id of its invocation."""
partial_index("ix_reservations_open", reservations.c.created_at, where="state IN ('HELD', 'RECONCILE')")

effects = Table(
    "effects",
    metadata,
    Column("id", Text, primary_key=True),
    Column("namespace", Text, nullable=False),
    Column("activity_id", ForeignKey("activities.id"), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("invocation_id", ForeignKey("invocations.id"), nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("execution", Integer, nullable=False),
    Column("call_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("tool_namespace", Text, nullable=False),
    Column("tool_name", Text, nullable=False),
    Column("tool_version", Text, nullable=False),
    Column("effect_class", Text, nullable=False),
    Column("idempotency_key", Text),
    Column("arguments_digest", Text),
    Column("state", Text, nullable=False),
    Column("reason", Text),
    Column("result_digest", Text),
    Column("result_bytes", BigInteger),
    Column("error_type", Text),
    Column("decision_id", Text),
    Column("started_at", BigInteger, nullable=False),
    Column("finished_at", BigInteger),
    Column("judgement", Text),
    Column("claim", Text),
    UniqueConstraint("invocation_id", "ordinal", "execution"),
    UniqueConstraint("namespace", "idempotency_key", "execution"),
    one_of("kind", "function", "custom", "hosted"),
    one_of(
        "state",
        *("AWAITING_APPROVAL", "STARTED", "DONE", "FAILED", "REFUSED", "DENIED"),
        *("OUTCOME_UNKNOWN", "SUPERSEDED", "PROVIDER_SIDE"),
    ),
)
"""One row per execution of a tool call. A further execution of the same call is a further row.

``judgement`` is what the judges of a call said, as names, digests and codes (JSON); ``claim`` the digest of
what the model claimed about it, and where that is not so.
"""
Index("ix_effects_activity_id", effects.c.activity_id)
partial_index("ix_effects_unknown", effects.c.started_at, where="state = 'OUTCOME_UNKNOWN'")

outputs = Table(
    "outputs",
    metadata,
    Column("owner_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("binding", Text, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("nonce", LargeBinary),
    Column("ciphertext", LargeBinary),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("purged_at", BigInteger),
    PrimaryKeyConstraint("owner_id", "kind"),
    one_of("kind", "reply", "result", "output", "response_id"),
)
"""The protected store: what must be restored, encrypted. Owners are invocations, effects and activities."""
partial_index("ix_outputs_expires_at", outputs.c.expires_at, where="purged_at IS NULL")

decisions = Table(
    "decisions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("namespace", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("target_id", Text, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("evidence_digest", Text),
    *amount_columns("actual", nullable=True),
    Column("at", BigInteger, nullable=False),
    one_of("kind", "invocation", "effect", "unpriced"),
    one_of("verdict", "settle", "release", "happened", "did_not_happen", "allow"),
    CheckConstraint(
        "verdict NOT IN ('release', 'did_not_happen') OR evidence_digest IS NOT NULL", name="freed_with_proof"
    ),
    Index(None, "target_id"),
)
"""Who decided what about an unknown, when and why; append-only."""

evidence = Table(
    "evidence",
    metadata,
    Column("id", Text, primary_key=True),
    Column("namespace", Text, nullable=False),
    Column("activity_id", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("subject_id", Text, nullable=False),
    Column("event", Text, nullable=False),
    Column("state", Text),
    Column("input_tokens", BigInteger),
    Column("output_tokens", BigInteger),
    Column("digest", Text),
    Column("at", BigInteger, nullable=False),
    Index(None, "subject_id"),
)
"""Writes of attempts that had lost their lease: refused, and kept because they may tell what happened."""
