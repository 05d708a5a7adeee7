"""What models answered, to be used again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "model_answer",
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("model_answered", sa.Text, nullable=False),
        sa.Column("mode", sa.String(16)),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("prompt_tokens", sa.Integer),
        sa.Column("completion_tokens", sa.Integer),
        sa.Column("cost", sa.BigInteger),
        sa.Column("not_honoured", sa.Text, nullable=False),
        sa.Column("answered_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_model_answer"),
    )
    for column in ("model", "answered_at"):
        op.create_index(f"ix_model_answer_{column}", "model_answer", [column])


def downgrade() -> None:
    """Drop it: what was answered is asked again."""
    op.drop_table("model_answer")
