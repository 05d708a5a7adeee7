"""Runs, their test cases, outputs and check results."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the four tables."""
    time = sa.DateTime(timezone=True)
    op.create_table(
        "run",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("created_at", time, nullable=False),
        sa.Column("started_at", time),
        sa.Column("completed_at", time),
        sa.Column("suite", sa.Text, nullable=False),
        sa.Column("suite_path", sa.Text),
        sa.Column("repeats", sa.Integer, nullable=False),
        sa.Column("n_cases", sa.Integer, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("flow_run_id", sa.String(64)),
        sa.Column("lease_owner", sa.Text),
        sa.Column("lease_until", time),
        sa.Column("outcome", sa.String(16)),
        sa.Column("metrics", sa.Text),
        sa.Column("verdict", sa.Text),
        sa.Column("stats", sa.Text),
        sa.Column("error", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_run"),
        sa.UniqueConstraint("flow_run_id", name="uq_run_flow_run_id"),
    )
    for column in ("name", "status", "created_at"):
        op.create_index(f"ix_run_{column}", "run", [column])

    op.create_table(
        "run_case",
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("case_id", sa.Text, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "position", name="pk_run_case"),
        sa.UniqueConstraint("run_id", "case_id", name="uq_run_case_run_id_case_id"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_run_case_run", ondelete="CASCADE"),
    )

    op.create_table(
        "output",
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("repeat", sa.Integer, nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("output_id", sa.Text),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("metadata", sa.Text),
        sa.Column("failed", sa.Boolean, nullable=False),
        sa.Column("created_at", time, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "position", "repeat", name="pk_output"),
        sa.ForeignKeyConstraint(
            ["run_id", "position"],
            ["run_case.run_id", "run_case.position"],
            name="fk_output_run_case",
            ondelete="CASCADE",
        ),
    )

    op.create_table(
        "check_result",
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("repeat", sa.Integer, nullable=False),
        sa.Column("check_id", sa.Text, nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("check_type", sa.Text, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("passed", sa.Boolean),
        sa.Column("result", sa.Text, nullable=False),
        sa.Column("created_at", time, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "position", "repeat", "check_id", name="pk_check_result"),
        sa.ForeignKeyConstraint(
            ["run_id", "position"],
            ["run_case.run_id", "run_case.position"],
            name="fk_check_result_run_case",
            ondelete="CASCADE",
        ),
    )
    op.create_index("ix_check_result_outcome", "check_result", ["run_id", "status", "passed", "position", "repeat"])


def downgrade() -> None:
    """Drop them."""
    for table in ("check_result", "output", "run_case", "run"):
        op.drop_table(table)
