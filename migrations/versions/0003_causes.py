"""Causes of activities and their calls, and what models claim about tool calls."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns. What is there already descends from nothing that was named."""
    for table in ("activities", "invocations"):
        op.add_column(table, sa.Column("cause", sa.Text()))
    op.add_column("effects", sa.Column("claim", sa.Text()))


def downgrade() -> None:
    """Never: a ledger is not taken back."""
    raise NotImplementedError("A ledger is not taken back to an older schema. Restore a backup instead.")
