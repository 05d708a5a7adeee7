"""The tables of the store, portable between SQLite and PostgreSQL.

A test case is known by its index in its run, so (run, case index, repeat, check id) is the natural key of a check's
result: the same row cannot be there twice. All times are UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Dialect,
    ForeignKeyConstraint,
    Index,
    MetaData,
    String,
    Table,
    UniqueConstraint,
)
from sqlalchemy.orm import registry
from sqlalchemy.types import TypeDecorator
from sqlmodel import Field, SQLModel

from fepflow.store.column_types import EscapedText, JsonText

METADATA = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
    }
)


class UtcDateTime(TypeDecorator[datetime]):
    """An aware time, in UTC on both sides; SQLite has no zones of its own."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """In UTC."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """With its zone."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Row(SQLModel, registry=registry(metadata=METADATA)):
    """Base of our tables, with metadata of their own: a user's plugin may have SQLModel tables too.

    Rows are written and read through the tables below, so pydantic need not build what would validate them.
    """

    model_config = {"defer_build": True}


class RunRow(Row, table=True):
    """One execution of a suite."""

    __tablename__: ClassVar[str] = "run"

    id: str = Field(sa_column=Column(String(64), primary_key=True))
    name: str = Field(sa_column=Column(EscapedText, nullable=False, index=True))
    status: str = Field(sa_column=Column(String(16), nullable=False, index=True))
    created_at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False, index=True))
    started_at: datetime | None = Field(sa_column=Column(UtcDateTime))
    completed_at: datetime | None = Field(sa_column=Column(UtcDateTime))
    suite: dict[str, Any] = Field(sa_column=Column(JsonText, nullable=False))
    suite_path: str | None = Field(sa_column=Column(EscapedText))
    repeats: int
    n_cases: int
    tags: list[str] = Field(sa_column=Column(JsonText, nullable=False))
    flow_run_id: str | None = Field(sa_column=Column(String(64), unique=True))
    lease_owner: str | None = Field(sa_column=Column(EscapedText))
    lease_until: datetime | None = Field(sa_column=Column(UtcDateTime))
    cancel_requested_at: datetime | None = Field(sa_column=Column(UtcDateTime))
    outcome: str | None = Field(sa_column=Column(String(16)))
    metrics: Any = Field(sa_column=Column(JsonText(nullable=True)))
    verdict: Any = Field(sa_column=Column(JsonText(nullable=True)))
    stats: Any = Field(sa_column=Column(JsonText(nullable=True)))
    error: str | None = Field(sa_column=Column(EscapedText))
    suite_hash: str | None = Field(sa_column=Column(String(64)))
    cases_hash: str | None = Field(sa_column=Column(String(64)))
    cause: str | None = Field(sa_column=Column(String(16)))
    options: Any = Field(sa_column=Column(JsonText(nullable=True)))


class CaseRow(Row, table=True):
    """One test case of a run."""

    __tablename__: ClassVar[str] = "run_case"
    __table_args__ = (
        UniqueConstraint("run_id", "case_id"),
        ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
    )

    run_id: str = Field(sa_column=Column(String(64), primary_key=True))
    case_index: int = Field(primary_key=True)
    case_id: str = Field(sa_column=Column(EscapedText, nullable=False))
    data: Any = Field(sa_column=Column(JsonText, nullable=False))


class ShardRow(Row, table=True):
    """A part of a run's cases that an executor of its own works on."""

    __tablename__: ClassVar[str] = "shard"
    __table_args__ = (ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),)

    run_id: str = Field(sa_column=Column(String(64), primary_key=True))
    shard: int = Field(primary_key=True)
    lease_owner: str | None = Field(sa_column=Column(EscapedText))
    lease_until: datetime | None = Field(sa_column=Column(UtcDateTime))


class OutputRow(Row, table=True):
    """What the target gave for one repeat of one test case."""

    __tablename__: ClassVar[str] = "output"
    __table_args__ = (
        ForeignKeyConstraint(["run_id", "case_index"], ["run_case.run_id", "run_case.case_index"], ondelete="CASCADE"),
    )

    run_id: str = Field(sa_column=Column(String(64), primary_key=True))
    case_index: int = Field(primary_key=True)
    repeat: int = Field(primary_key=True)
    content_hash: str = Field(sa_column=Column(String(64), nullable=False))
    output_id: str | None = Field(sa_column=Column(EscapedText))
    value: Any = Field(sa_column=Column(JsonText, nullable=False))
    metadata_: Any = Field(sa_column=Column("metadata", JsonText(nullable=True)))
    failed: bool
    created_at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False))


class CheckResultRow(Row, table=True):
    """The result of one check of one output."""

    __tablename__: ClassVar[str] = "check_result"
    __table_args__ = (
        ForeignKeyConstraint(["run_id", "case_index"], ["run_case.run_id", "run_case.case_index"], ondelete="CASCADE"),
        # Counting and finding failures reads this index and none of the results.
        Index("ix_check_result_outcome", "run_id", "status", "passed", "case_index", "repeat"),
    )

    run_id: str = Field(sa_column=Column(String(64), primary_key=True))
    case_index: int = Field(primary_key=True)
    repeat: int = Field(primary_key=True)
    check_id: str = Field(sa_column=Column(EscapedText, primary_key=True))
    content_hash: str = Field(sa_column=Column(String(64), nullable=False))
    check_type: str = Field(sa_column=Column(EscapedText, nullable=False))
    status: str = Field(sa_column=Column(String(16), nullable=False))
    passed: bool | None
    result: Any = Field(sa_column=Column(JsonText, nullable=False))
    created_at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False))


class CachedResponseRow(Row, table=True):
    """A response of a model; `key` is the content hash of the request. Shared by all runs."""

    __tablename__: ClassVar[str] = "cached_response"

    key: str = Field(sa_column=Column(String(64), primary_key=True))
    kind: str = Field(sa_column=Column(String(16), nullable=False))
    model: str = Field(sa_column=Column(EscapedText, nullable=False, index=True))
    response_model: str = Field(sa_column=Column(EscapedText, nullable=False))
    mode: str | None = Field(sa_column=Column(String(16)))
    text: str = Field(sa_column=Column(EscapedText, nullable=False))
    prompt_tokens: int | None
    completion_tokens: int | None
    cost_picousd: int | None = Field(sa_column=Column(BigInteger))
    dropped_params: list[str] = Field(sa_column=Column(JsonText, nullable=False))
    responded_at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False, index=True))


class CalibrationRow(Row, table=True):
    """How far a judge agreed with people's labels, once. It outlives the run whose verdicts were compared."""

    __tablename__: ClassVar[str] = "calibration"
    __table_args__ = (Index("ix_calibration_judge", "judge", "rubric"),)

    id: str = Field(sa_column=Column(String(64), primary_key=True))
    created_at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False))
    judge: str = Field(sa_column=Column(String(64), nullable=False))
    rubric: str = Field(sa_column=Column(String(64), nullable=False))
    model: str = Field(sa_column=Column(EscapedText, nullable=False))
    parameters: Any = Field(sa_column=Column(JsonText, nullable=False))
    check_id: str = Field(sa_column=Column(EscapedText, nullable=False))
    field: str = Field(sa_column=Column(EscapedText, nullable=False))
    run_id: str = Field(sa_column=Column(String(64), nullable=False))
    n: int
    missing: int
    statistics: Any = Field(sa_column=Column(JsonText, nullable=False))


class EvalguardReportRow(Row, table=True):
    """A report of EvalGuard's; the id of an imported one is the content hash of its file, else it is its run's."""

    __tablename__: ClassVar[str] = "evalguard_report"

    id: str = Field(sa_column=Column(String(64), primary_key=True))
    imported_at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False, index=True))
    source: str = Field(sa_column=Column(EscapedText, nullable=False))
    report_id: str | None = Field(sa_column=Column(EscapedText, index=True))
    model_name: str | None = Field(sa_column=Column(EscapedText, index=True))
    model_source: str | None = Field(sa_column=Column(EscapedText))
    evaluated_at: datetime | None = Field(sa_column=Column(UtcDateTime))
    tasks: list[str] = Field(sa_column=Column(JsonText, nullable=False))
    report: Any = Field(sa_column=Column(JsonText, nullable=False))
    warnings: list[str] = Field(sa_column=Column(JsonText, nullable=False))


class EvalguardReportMetricRow(Row, table=True):
    """A metric of a report and its task, by which the report is found; of a task without values there is no metric."""

    __tablename__: ClassVar[str] = "evalguard_report_metric"
    __table_args__ = (
        ForeignKeyConstraint(["report_id"], ["evalguard_report.id"], ondelete="CASCADE"),
        # Finding reports reads these indexes and none of the rows.
        Index("ix_evalguard_report_metric_task", "task_ref", "metric", "report_id"),
        Index("ix_evalguard_report_metric_metric", "metric", "report_id"),
    )

    report_id: str = Field(sa_column=Column(String(64), primary_key=True))
    metric_index: int = Field(primary_key=True)
    task_ref: str | None = Field(sa_column=Column(EscapedText))
    metric: str | None = Field(sa_column=Column(EscapedText))


class EvalguardRunRow(Row, table=True):
    """A run with a verdict that was looked at for its report, and when it had ended; with a task it has one."""

    __tablename__: ClassVar[str] = "evalguard_run"
    __table_args__ = (ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),)

    run_id: str = Field(sa_column=Column(String(64), primary_key=True))
    completed_at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False))


class BaselineRow(Row, table=True):
    """A run of a suite under a name."""

    __tablename__: ClassVar[str] = "baseline"
    __table_args__ = (ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),)

    suite: str = Field(sa_column=Column(EscapedText, primary_key=True))
    name: str = Field(sa_column=Column(String(100), primary_key=True))
    run_id: str = Field(sa_column=Column(String(64), nullable=False))
    set_at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False))


RUN: Table = METADATA.tables["run"]
SHARD: Table = METADATA.tables["shard"]
CASE: Table = METADATA.tables["run_case"]
OUTPUT: Table = METADATA.tables["output"]
CHECK_RESULT: Table = METADATA.tables["check_result"]
CACHED_RESPONSE: Table = METADATA.tables["cached_response"]
CALIBRATION: Table = METADATA.tables["calibration"]
EVALGUARD_REPORT: Table = METADATA.tables["evalguard_report"]
EVALGUARD_REPORT_METRIC: Table = METADATA.tables["evalguard_report_metric"]
EVALGUARD_RUN: Table = METADATA.tables["evalguard_run"]
BASELINE: Table = METADATA.tables["baseline"]
