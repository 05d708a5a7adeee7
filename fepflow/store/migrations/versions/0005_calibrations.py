"""How far judges agree with people."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "calibration",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("judge", sa.String(64), nullable=False),
        sa.Column("rubric", sa.String(64), nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("parameters", sa.Text, nullable=False),
        sa.Column("check_id", sa.Text, nullable=False),
        sa.Column("member", sa.Text, nullable=False),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("n", sa.Integer, nullable=False),
        sa.Column("missing", sa.Integer, nullable=False),
        sa.Column("figures", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_calibration"),
    )
    op.create_index("ix_calibration_judge", "calibration", ["judge", "rubric"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("calibration")
