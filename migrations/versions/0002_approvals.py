"""Human approvals: what is asked, decided and used; and the states of effects and attempts that wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Written out, not imported: this revision stays what it is when the package changes.
ATTEMPT_STATES = ("RUNNING", "COMPLETED", "FAILED", "CANCELLED", "PARKED", "LOST")
EFFECT_STATES = (
    *("AWAITING_APPROVAL", "STARTED", "DONE", "FAILED", "REFUSED", "DENIED"),
    *("OUTCOME_UNKNOWN", "SUPERSEDED", "PROVIDER_SIDE"),
)
EFFECT_COLUMNS = (
    *("id", "namespace", "activity_id", "attempt", "invocation_id", "ordinal", "execution", "call_id"),
    *("kind", "tool_namespace", "tool_name", "tool_version", "effect_class", "idempotency_key"),
    *("arguments_digest", "state", "reason", "result_digest", "result_bytes", "error_type"),
    *("decision_id", "started_at", "finished_at"),
)
ATTEMPT_COLUMNS = (
    *("id", "activity_id", "number", "worker", "state", "error_type", "claimed_at", "ended_at"),
)


def one_of(table: str, column: str, *values: str) -> sa.CheckConstraint:
    """A constraint that a column holds one of its words."""
    words = ", ".join(repr(value) for value in values)
    return sa.CheckConstraint(f"{column} IN ({words})", name=op.f(f"ck_{table}_{column}_known"))


def upgrade() -> None:
    """Let effects wait, be denied and carry a judgement; let attempts be parked; create the new tables."""
    if op.get_bind().dialect.name == "sqlite":
        # SQLite cannot alter a constraint. Nothing refers to these two tables yet.
        rebuild("effects", EFFECT_COLUMNS, effects())
        create_effect_indexes()
        rebuild("attempts", ATTEMPT_COLUMNS, attempts())
    else:
        op.add_column("effects", sa.Column("judgement", sa.Text()))
        widen("effects", EFFECT_STATES)
        widen("attempts", ATTEMPT_STATES)
    create_requests()
    create_decisions()
    create_uses()


def downgrade() -> None:
    """Never: a ledger is not taken back."""
    raise NotImplementedError("A ledger is not taken back to an older schema. Restore a backup instead.")


def rebuild(table: str, columns: Sequence[str], parts: Sequence[Any]) -> None:
    names = ", ".join(columns)
    op.create_table(f"{table}_0002", *parts)
    op.execute(f"INSERT INTO {table}_0002 ({names}) SELECT {names} FROM {table}")
    op.drop_table(table)
    op.rename_table(f"{table}_0002", table)


def widen(table: str, states: Sequence[str]) -> None:
    op.drop_constraint(op.f(f"ck_{table}_state_known"), table, type_="check")
    words = ", ".join(repr(state) for state in states)
    op.create_check_constraint(op.f(f"ck_{table}_state_known"), table, f"state IN ({words})")


def attempts() -> list[Any]:
    return [
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("activity_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("error_type", sa.Text()),
        sa.Column("claimed_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger()),
        one_of("attempts", "state", *ATTEMPT_STATES),
        sa.ForeignKeyConstraint(["activity_id"], ["activities.id"], name=op.f("fk_attempts_activity_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
        sa.UniqueConstraint("activity_id", "number", name=op.f("uq_attempts_activity_id_number")),
    ]


def effects() -> list[Any]:
    return [
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
        sa.Column("judgement", sa.Text()),
        one_of("effects", "kind", "function", "custom", "hosted"),
        one_of("effects", "state", *EFFECT_STATES),
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
    ]


def create_effect_indexes() -> None:
    op.create_index("ix_effects_activity_id", "effects", ["activity_id"])
    unknown = sa.text("state = 'OUTCOME_UNKNOWN'")
    op.create_index("ix_effects_unknown", "effects", ["started_at"], sqlite_where=unknown)


def create_requests() -> None:
    op.create_table(
        "approval_requests",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("activity_id", sa.Text(), nullable=False),
        sa.Column("invocation_id", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("tool_namespace", sa.Text(), nullable=False),
        sa.Column("tool_name", sa.Text(), nullable=False),
        sa.Column("tool_version", sa.Text(), nullable=False),
        sa.Column("arguments_digest", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=False),
        sa.Column("requester", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["activity_id"], ["activities.id"], name=op.f("fk_approval_requests_activity_id")
        ),
        sa.ForeignKeyConstraint(["id"], ["effects.id"], name=op.f("fk_approval_requests_id")),
        sa.ForeignKeyConstraint(
            ["invocation_id"], ["invocations.id"], name=op.f("fk_approval_requests_invocation_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_approval_requests")),
    )
    op.create_index(
        op.f("ix_approval_requests_namespace_idempotency_key"),
        "approval_requests",
        ["namespace", "idempotency_key"],
    )


def create_decisions() -> None:
    op.create_table(
        "approval_decisions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("requester", sa.Text(), nullable=False),
        sa.Column("approver", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("shared", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("binding_digest", sa.Text(), nullable=False),
        sa.Column("decided_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger()),
        sa.CheckConstraint(
            "lower(approver) <> lower(requester)", name=op.f("ck_approval_decisions_by_somebody_else")
        ),
        sa.CheckConstraint(
            "(verdict = 'approved') = (expires_at IS NOT NULL)",
            name=op.f("ck_approval_decisions_approved_until"),
        ),
        one_of("approval_decisions", "verdict", "approved", "denied"),
        sa.ForeignKeyConstraint(["id"], ["approval_requests.id"], name=op.f("fk_approval_decisions_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_approval_decisions")),
    )


def create_uses() -> None:
    op.create_table(
        "approval_uses",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("binding_digest", sa.Text(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["id"], ["approval_decisions.id"], name=op.f("fk_approval_uses_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_approval_uses")),
    )
