"""The gateway: virtual keys, whose replies the provider stores, and what inspection decided."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the gateway's tables."""
    create_virtual_keys()
    create_revocations()
    create_reply_owners()
    create_inspections()


def downgrade() -> None:
    """Never: a ledger is not taken back."""
    raise NotImplementedError("A ledger is not taken back to an older schema. Restore a backup instead.")


def create_virtual_keys() -> None:
    op.create_table(
        "virtual_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("hint", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("models", sa.Text(), nullable=False),
        sa.Column("endpoints", sa.Text(), nullable=False),
        sa.Column("output_tokens", sa.Integer()),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_virtual_keys")),
        sa.UniqueConstraint("namespace", "digest", name=op.f("uq_virtual_keys_namespace_digest")),
    )


def create_revocations() -> None:
    op.create_table(
        "virtual_key_revocations",
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["key_id"], ["virtual_keys.id"], name=op.f("fk_virtual_key_revocations_key_id")
        ),
        sa.PrimaryKeyConstraint("key_id", name=op.f("pk_virtual_key_revocations")),
    )


def create_reply_owners() -> None:
    op.create_table(
        "reply_owners",
        sa.Column("invocation_id", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("response_digest", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["invocation_id"], ["invocations.id"], name=op.f("fk_reply_owners_invocation_id")
        ),
        sa.PrimaryKeyConstraint("invocation_id", name=op.f("pk_reply_owners")),
    )
    op.create_index(
        op.f("ix_reply_owners_namespace_response_digest"), "reply_owners", ["namespace", "response_digest"]
    )


def create_inspections() -> None:
    op.create_table(
        "inspections",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("invocation_id", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=False),
        sa.Column("effect", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text()),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["invocation_id"], ["invocations.id"], name=op.f("fk_inspections_invocation_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_inspections")),
        sa.UniqueConstraint("invocation_id", "ordinal", name=op.f("uq_inspections_invocation_id_ordinal")),
    )
