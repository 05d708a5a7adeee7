"""What EvalGuard's reports are found by, and which runs have one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from fepflow.evalguard.report import metrics_of
from fepflow.store.tables import EscapedText, JsonText, indexable

revision = "0012"
down_revision = "0011"

_REPORTS_AT_ONCE = 100
_LIMIT = 1_200


def upgrade() -> None:
    """Create the tables, and enter the metrics of the reports that are there."""
    op.create_table(
        "evalguard_report_metric",
        sa.Column("report_id", sa.String(64), nullable=False),
        sa.Column("metric_index", sa.Integer, nullable=False),
        sa.Column("task_ref", sa.Text),
        sa.Column("metric", sa.Text),
        sa.PrimaryKeyConstraint("report_id", "metric_index", name="pk_evalguard_report_metric"),
        sa.ForeignKeyConstraint(
            ["report_id"],
            ["evalguard_report.id"],
            name="fk_evalguard_report_metric_evalguard_report",
            ondelete="CASCADE",
        ),
    )
    for name, columns in (("task", ["task_ref", "metric", "report_id"]), ("metric", ["metric", "report_id"])):
        op.create_index(f"ix_evalguard_report_metric_{name}", "evalguard_report_metric", columns)
    op.create_table(
        "evalguard_run",
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_evalguard_run"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_evalguard_run_run", ondelete="CASCADE"),
    )
    _enter_metrics()


def _enter_metrics() -> None:
    connection = op.get_bind()
    report = sa.table("evalguard_report", sa.column("id"), sa.column("report", JsonText()))
    texts = [sa.column(name, EscapedText()) for name in ("report_id", "task_ref", "metric")]
    metric = sa.table("evalguard_report_metric", sa.column("metric_index"), *texts)
    ids = connection.execute(sa.select(report.c.id).order_by(report.c.id)).scalars().all()
    for start in range(0, len(ids), _REPORTS_AT_ONCE):
        some = sa.select(report).where(report.c.id.in_(ids[start : start + _REPORTS_AT_ONCE]))
        rows = [
            {
                "report_id": report_id,
                "metric_index": index,
                "task_ref": indexable(task, _LIMIT),
                "metric": indexable(name, _LIMIT),
            }
            for report_id, document in connection.execute(some).all()
            for index, (task, name, _) in enumerate(metrics_of(document))
        ]
        if rows:
            connection.execute(sa.insert(metric), rows)


def downgrade() -> None:
    """Drop them, with the reports of runs: there they would be taken for imported ones."""
    op.execute("DELETE FROM evalguard_report WHERE id IN (SELECT run_id FROM evalguard_run)")
    op.drop_table("evalguard_run")
    op.drop_table("evalguard_report_metric")
