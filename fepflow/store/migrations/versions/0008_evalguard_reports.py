"""EvalGuard reports that were imported."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_INDEXED = ("imported_at", "report_id", "model_name")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "evalguard_report",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("imported_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("report_id", sa.Text),
        sa.Column("model_name", sa.Text),
        sa.Column("model_source", sa.Text),
        sa.Column("evaluated_at", sa.DateTime(timezone=True)),
        sa.Column("tasks", sa.Text, nullable=False),
        sa.Column("report", sa.Text, nullable=False),
        sa.Column("warnings", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_evalguard_report"),
    )
    for column in _INDEXED:
        op.create_index(f"ix_evalguard_report_{column}", "evalguard_report", [column])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("evalguard_report")
