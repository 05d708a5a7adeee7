"""Baselines: runs of a suite under a name."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "baseline",
        sa.Column("suite", sa.Text, nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("set_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("suite", "name", name="pk_baseline"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_baseline_run", ondelete="CASCADE"),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("baseline")
