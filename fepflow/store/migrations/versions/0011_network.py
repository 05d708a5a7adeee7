"""What the network's interfaces need: keys, an audit log, stored test cases and graders, requested runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_MOMENT = sa.DateTime(timezone=True)
_PROTECTED = "rows of audit_entry do not change"


def upgrade() -> None:
    """Create the tables; a trigger keeps the audit log's rows as they are."""
    op.create_table(
        "api_key",
        sa.Column("id", sa.String(16), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("secret_hash", sa.String(64), nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("expires_at", _MOMENT),
        sa.Column("revoked_at", _MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_api_key"),
    )
    op.create_table(
        "audit_entry",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("at", _MOMENT, nullable=False),
        sa.Column("caller", sa.Text),
        sa.Column("source", sa.Text),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("resource", sa.Text),
        sa.Column("outcome", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit_entry"),
    )
    op.create_index("ix_audit_entry_at", "audit_entry", ["at"])
    op.create_table(
        "test_case",
        sa.Column("id", sa.String(200), nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_test_case"),
    )
    op.create_index("ix_test_case_created_at", "test_case", ["created_at"])
    op.create_table(
        "grader",
        sa.Column("id", sa.String(100), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("checks", sa.Text, nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_grader"),
    )
    op.create_table(
        "run_request",
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("caller", sa.Text),
        sa.Column("idempotency_key", sa.String(200)),
        sa.Column("request_hash", sa.String(64), nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("dispatched_at", _MOMENT),
        sa.PrimaryKeyConstraint("run_id", name="pk_run_request"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_run_request_run", ondelete="CASCADE"),
        sa.UniqueConstraint("idempotency_key", name="uq_run_request_idempotency_key"),
    )
    op.create_index("ix_run_request_created_at", "run_request", ["created_at"])
    _protect()


def _protect() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION audit_entry_unchanged() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{_PROTECTED}'; END $$"
        )
        op.execute(
            "CREATE TRIGGER audit_entry_unchanged BEFORE UPDATE ON audit_entry "
            "FOR EACH ROW EXECUTE FUNCTION audit_entry_unchanged()"
        )
    else:
        op.execute(
            "CREATE TRIGGER audit_entry_unchanged BEFORE UPDATE ON audit_entry "
            f"BEGIN SELECT RAISE(ABORT, '{_PROTECTED}'); END"
        )


def downgrade() -> None:
    """Drop them, with all that is in them."""
    for table in ("run_request", "grader", "test_case", "audit_entry", "api_key"):
        op.drop_table(table)
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION audit_entry_unchanged()")
