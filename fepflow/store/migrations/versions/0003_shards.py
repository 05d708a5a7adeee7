"""Who executes which shard of a run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "shard",
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("shard", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("lease_owner", sa.Text),
        sa.Column("lease_until", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("run_id", "shard", name="pk_shard"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_shard_run", ondelete="CASCADE"),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("shard")
