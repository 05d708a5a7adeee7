"""Sessions of browsers, each of an API key."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "page_session",
        sa.Column("id_hash", sa.String(64), nullable=False),
        sa.Column("key_id", sa.String(16), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id_hash", name="pk_page_session"),
        sa.ForeignKeyConstraint(["key_id"], ["api_key.id"], name="fk_page_session_api_key", ondelete="CASCADE"),
    )
    op.create_index("ix_page_session_key_id", "page_session", ["key_id", "created_at"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("page_session")
