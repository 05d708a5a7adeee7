"""Which outputs of a run were drawn at random to be labelled."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "label_draw",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("check_id", sa.Text, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("case_ids", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_label_draw"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_label_draw_run", ondelete="CASCADE"),
    )
    op.create_index("ix_label_draw_run_id", "label_draw", ["run_id"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("label_draw")
