"""The first schema: budgets, activities, invocations, effects, outputs and decisions."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Written out, not imported: this revision stays what it is when the package changes.
DIMENSIONS = (
    "total_tokens",
    "input_tokens",
    "output_tokens",
    "model_calls",
    "tool_calls",
    "cost",
    "wall_clock_ms",
)
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def amounts(prefix: str, *, nullable: bool) -> list[sa.Column[Any]]:
    """One integer column per dimension."""
    default = None if nullable else sa.text("0")
    return [
        sa.Column(f"{prefix}_{name}", sa.BigInteger(), server_default=default, nullable=nullable)
        for name in DIMENSIONS
    ]


def not_negative(table: str, prefix: str) -> sa.CheckConstraint:
    """A constraint that no amount under this prefix is below zero."""
    condition = " AND ".join(f"{prefix}_{name} >= 0" for name in DIMENSIONS)
    return sa.CheckConstraint(condition, name=op.f(f"ck_{table}_{prefix}_not_negative"))


def one_of(table: str, column: str, *values: str) -> sa.CheckConstraint:
    """A constraint that a column holds one of its words."""
    words = ", ".join(repr(value) for value in values)
    return sa.CheckConstraint(f"{column} IN ({words})", name=op.f(f"ck_{table}_{column}_known"))


def upgrade() -> None:
    """Create every table and index."""
    create_accounts()
    create_activities()
    create_decisions()
    create_evidence()
    create_outputs()
    create_writers()
    create_attempts()
    create_balances()
    create_policies()
    create_turns()
    create_invocations()
    create_journal()
    create_effects()
    create_reservations()


def downgrade() -> None:
    """Never: a ledger is not taken back."""
    raise NotImplementedError("A ledger is not taken back to an older schema. Restore a backup instead.")


def create_accounts() -> None:
    op.create_table(
        "accounts",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("parent_id", SERIAL),
        sa.Column("period", sa.Text(), nullable=False),
        sa.Column("time_zone", sa.Text(), nullable=False),
        sa.Column("currency", sa.Text()),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("policy_version", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        one_of("accounts", "period", "none", "hour", "day", "week", "month"),
        one_of("accounts", "state", "OPEN", "CLOSED"),
        sa.ForeignKeyConstraint(["parent_id"], ["accounts.id"], name=op.f("fk_accounts_parent_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_accounts")),
        sa.UniqueConstraint("namespace", "path", name=op.f("uq_accounts_namespace_path")),
    )


def create_activities() -> None:
    op.create_table(
        "activities",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("workflow_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("activity_id", sa.Text(), nullable=False),
        sa.Column("activity_type", sa.Text(), nullable=False),
        sa.Column("activity_version", sa.Text(), nullable=False),
        sa.Column("input_digest", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("lease_expires_at", sa.BigInteger(), nullable=False),
        sa.Column("output_digest", sa.Text()),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        one_of("activities", "state", "RUNNING", "FREE", "COMPLETED"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_activities")),
        sa.UniqueConstraint(
            "namespace",
            "workflow_id",
            "run_id",
            "activity_id",
            name=op.f("uq_activities_namespace_workflow_id_run_id_activity_id"),
        ),
    )


def create_decisions() -> None:
    op.create_table(
        "decisions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("target_id", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("evidence_digest", sa.Text()),
        *amounts("actual", nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        one_of("decisions", "kind", "invocation", "effect", "unpriced"),
        one_of("decisions", "verdict", "settle", "release", "happened", "did_not_happen", "allow"),
        sa.CheckConstraint(
            "verdict NOT IN ('release', 'did_not_happen') OR evidence_digest IS NOT NULL",
            name=op.f("ck_decisions_freed_with_proof"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_decisions")),
    )
    op.create_index(op.f("ix_decisions_target_id"), "decisions", ["target_id"])


def create_evidence() -> None:
    op.create_table(
        "evidence",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("activity_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("subject_id", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("state", sa.Text()),
        sa.Column("input_tokens", sa.BigInteger()),
        sa.Column("output_tokens", sa.BigInteger()),
        sa.Column("digest", sa.Text()),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evidence")),
    )
    op.create_index(op.f("ix_evidence_subject_id"), "evidence", ["subject_id"])


def create_outputs() -> None:
    op.create_table(
        "outputs",
        sa.Column("owner_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("binding", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("nonce", sa.LargeBinary()),
        sa.Column("ciphertext", sa.LargeBinary()),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger()),
        sa.Column("purged_at", sa.BigInteger()),
        one_of("outputs", "kind", "reply", "result", "output", "response_id"),
        sa.PrimaryKeyConstraint("owner_id", "kind", name=op.f("pk_outputs")),
    )
    op.create_index(
        "ix_outputs_expires_at",
        "outputs",
        ["expires_at"],
        sqlite_where=sa.text("purged_at IS NULL"),
        postgresql_where=sa.text("purged_at IS NULL"),
    )


def create_writers() -> None:
    op.create_table(
        "writers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("batches", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_writers")),
    )


def create_attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("activity_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("error_type", sa.Text()),
        sa.Column("claimed_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger()),
        one_of("attempts", "state", "RUNNING", "COMPLETED", "FAILED", "CANCELLED", "LOST"),
        sa.ForeignKeyConstraint(["activity_id"], ["activities.id"], name=op.f("fk_attempts_activity_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
        sa.UniqueConstraint("activity_id", "number", name=op.f("uq_attempts_activity_id_number")),
    )


def create_balances() -> None:
    op.create_table(
        "balances",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("account_id", SERIAL, nullable=False),
        sa.Column("period_start", sa.BigInteger(), nullable=False),
        sa.Column("period_end", sa.BigInteger()),
        *amounts("settled", nullable=False),
        *amounts("held", nullable=False),
        *amounts("unknown", nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("head", sa.Text(), nullable=False),
        not_negative("balances", "held"),
        not_negative("balances", "settled"),
        not_negative("balances", "unknown"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_balances_account_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_balances")),
        sa.UniqueConstraint("account_id", "period_start", name=op.f("uq_balances_account_id_period_start")),
    )


def create_policies() -> None:
    op.create_table(
        "policies",
        sa.Column("account_id", SERIAL, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        *amounts("hard", nullable=True),
        *amounts("soft", nullable=True),
        sa.Column("strict_input", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_policies_account_id")),
        sa.PrimaryKeyConstraint("account_id", "version", name=op.f("pk_policies")),
    )


def create_turns() -> None:
    op.create_table(
        "turns",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("activity_id", sa.Text(), nullable=False),
        sa.Column("replay_key", sa.Text(), nullable=False),
        sa.Column("api", sa.Text(), nullable=False),
        sa.Column("request_digest", sa.Text(), nullable=False),
        sa.Column("executors_digest", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["activity_id"], ["activities.id"], name=op.f("fk_turns_activity_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_turns")),
        sa.UniqueConstraint("activity_id", "replay_key", name=op.f("uq_turns_activity_id_replay_key")),
    )


def create_invocations() -> None:
    op.create_table(
        "invocations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("activity_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("turn_id", sa.Text()),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("api", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("request_digest", sa.Text(), nullable=False),
        sa.Column("input_basis", sa.Text(), nullable=False),
        sa.Column("input_measured", sa.BigInteger()),
        sa.Column("output_cap", sa.BigInteger()),
        sa.Column("price_version", sa.Text()),
        sa.Column("metadata", sa.Text()),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("finish_reason", sa.Text()),
        sa.Column("http_status", sa.Integer()),
        sa.Column("error_code", sa.Text()),
        sa.Column("error_type", sa.Text()),
        sa.Column("response_digest", sa.Text()),
        sa.Column("reply_model", sa.Text()),
        sa.Column("service_tier", sa.Text()),
        sa.Column("input_tokens", sa.BigInteger()),
        sa.Column("cached_input_tokens", sa.BigInteger()),
        sa.Column("cache_write_tokens", sa.BigInteger()),
        sa.Column("output_tokens", sa.BigInteger()),
        sa.Column("reasoning_tokens", sa.BigInteger()),
        sa.Column("cost", sa.BigInteger()),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger()),
        one_of("invocations", "input_basis", "bound", "estimate", "counted", "declared", "none"),
        one_of("invocations", "state", "STARTED", "SUCCEEDED", "FAILED", "CANCELLED", "OUTCOME_UNKNOWN"),
        sa.ForeignKeyConstraint(["activity_id"], ["activities.id"], name=op.f("fk_invocations_activity_id")),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name=op.f("fk_invocations_turn_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_invocations")),
    )
    op.create_index("ix_invocations_activity_id", "invocations", ["activity_id"])
    op.create_index("ix_invocations_turn_id", "invocations", ["turn_id"])
    op.create_index(
        "ix_invocations_unknown",
        "invocations",
        ["started_at"],
        sqlite_where=sa.text("state = 'OUTCOME_UNKNOWN'"),
        postgresql_where=sa.text("state = 'OUTCOME_UNKNOWN'"),
    )


def create_journal() -> None:
    op.create_table(
        "journal",
        sa.Column("balance_id", SERIAL, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("reservation_id", sa.Text(), nullable=False),
        sa.Column("policy_version", sa.Integer(), nullable=False),
        *amounts("settled", nullable=False),
        *amounts("held", nullable=False),
        *amounts("unknown", nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        one_of("journal", "event", "reserve", "settle", "release", "unknown"),
        sa.ForeignKeyConstraint(["balance_id"], ["balances.id"], name=op.f("fk_journal_balance_id")),
        sa.PrimaryKeyConstraint("balance_id", "seq", name=op.f("pk_journal")),
    )
    op.create_index(op.f("ix_journal_reservation_id"), "journal", ["reservation_id"])


def create_effects() -> None:
    op.create_table(
        "effects",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("activity_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("invocation_id", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("execution", sa.Integer(), nullable=False),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("tool_namespace", sa.Text(), nullable=False),
        sa.Column("tool_name", sa.Text(), nullable=False),
        sa.Column("tool_version", sa.Text(), nullable=False),
        sa.Column("effect_class", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text()),
        sa.Column("arguments_digest", sa.Text()),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("result_digest", sa.Text()),
        sa.Column("result_bytes", sa.BigInteger()),
        sa.Column("error_type", sa.Text()),
        sa.Column("decision_id", sa.Text()),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger()),
        one_of("effects", "kind", "function", "custom", "hosted"),
        one_of(
            "effects",
            "state",
            "STARTED",
            "DONE",
            "FAILED",
            "REFUSED",
            "OUTCOME_UNKNOWN",
            "SUPERSEDED",
            "PROVIDER_SIDE",
        ),
        sa.ForeignKeyConstraint(["activity_id"], ["activities.id"], name=op.f("fk_effects_activity_id")),
        sa.ForeignKeyConstraint(["invocation_id"], ["invocations.id"], name=op.f("fk_effects_invocation_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_effects")),
        sa.UniqueConstraint(
            "invocation_id", "ordinal", "execution", name=op.f("uq_effects_invocation_id_ordinal_execution")
        ),
        sa.UniqueConstraint(
            "namespace",
            "idempotency_key",
            "execution",
            name=op.f("uq_effects_namespace_idempotency_key_execution"),
        ),
    )
    op.create_index("ix_effects_activity_id", "effects", ["activity_id"])
    op.create_index(
        "ix_effects_unknown",
        "effects",
        ["started_at"],
        sqlite_where=sa.text("state = 'OUTCOME_UNKNOWN'"),
        postgresql_where=sa.text("state = 'OUTCOME_UNKNOWN'"),
    )


def create_reservations() -> None:
    op.create_table(
        "reservations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text()),
        *amounts("reserved", nullable=False),
        *amounts("actual", nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("resolved_at", sa.BigInteger()),
        sa.Column("decision_id", sa.Text()),
        one_of("reservations", "state", "HELD", "SETTLED", "RELEASED", "RECONCILE"),
        not_negative("reservations", "reserved"),
        sa.ForeignKeyConstraint(["id"], ["invocations.id"], name=op.f("fk_reservations_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reservations")),
    )
    op.create_index(
        "ix_reservations_open",
        "reservations",
        ["created_at"],
        sqlite_where=sa.text("state IN ('HELD', 'RECONCILE')"),
        postgresql_where=sa.text("state IN ('HELD', 'RECONCILE')"),
    )
