"""When a run was asked to stop."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column."""
    op.add_column("run", sa.Column("cancel_requested_at", sa.DateTime(timezone=True)))


def downgrade() -> None:
    """Drop it, in place: copying the table would take the rows along that refer to it."""
    op.drop_column("run", "cancel_requested_at")
