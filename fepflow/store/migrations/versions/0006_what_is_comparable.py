"""What tells whether two runs can be compared: their suite, cases, cause and options."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_COLUMNS = {"suite_hash": sa.String(64), "cases_hash": sa.String(64), "cause": sa.String(16), "options": sa.Text()}


def upgrade() -> None:
    """Add the columns; runs from before stay without them."""
    for name, kind in _COLUMNS.items():
        op.add_column("run", sa.Column(name, kind))


def downgrade() -> None:
    """Drop them, in place: copying the table would take the rows along that refer to it."""
    for name in _COLUMNS:
        op.drop_column("run", name)
