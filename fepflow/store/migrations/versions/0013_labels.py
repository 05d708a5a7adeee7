"""What people say of single outputs, for the judges that are compared with them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "label",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("case_index", sa.Integer, nullable=False),
        sa.Column("repeat", sa.Integer, nullable=False),
        sa.Column("check_id", sa.Text, nullable=False),
        sa.Column("field", sa.Text, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("labelled_by", sa.Text, nullable=False),
        sa.Column("draw_id", sa.String(64)),
        sa.PrimaryKeyConstraint("id", name="pk_label"),
        sa.ForeignKeyConstraint(
            ["run_id", "case_index"],
            ["run_case.run_id", "run_case.case_index"],
            name="fk_label_run_case",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["draw_id"], ["label_draw.id"], name="fk_label_label_draw", ondelete="SET NULL"),
    )
    op.create_index("ix_label_run_id", "label", ["run_id", "case_index"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("label")
