"""The tables of the store, portable between SQLite and PostgreSQL.

A test case is known by its index in its run, so (run, case index, repeat, check id) is the natural key of a check's
result: the same row cannot be there twice. All times are UTC.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, ClassVar, overload

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
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import registry
from sqlalchemy.types import TypeDecorator
from sqlmodel import Field, SQLModel

from fepflow.json.codec import Encoded, decode, encode

METADATA = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
    }
)


MAX_INDEXED = 2_000
"""Letters of a text, escapes included, that an index takes; PostgreSQL's take 2,700."""
_KEPT = 100
SHORTEST_CUT = _KEPT + len(r"\u2026 ") + 64
"""Letters that a column has at least of a text that `indexable` has cut: its beginning, and a SHA-256."""

_PLAIN = re.compile(r"[ !#-\[\]-~]*")  # what JSON writes as it is


class JsonText(TypeDecorator[Any]):
    """A JSON value in a TEXT column. None is JSON's `null`; in a nullable column it is SQL's NULL."""

    impl = Text
    cache_ok = True

    def __init__(self, *, nullable: bool = False) -> None:
        self.nullable = nullable
        super().__init__()

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """As text, once."""
        if isinstance(value, Encoded):
            return str(value)
        return None if value is None and self.nullable else str(encode(value))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """As it was."""
        return None if value is None else decode(value)


class EscapedText(TypeDecorator[str]):
    """Text with JSON's escapes, so that names and messages may hold NUL characters and lone surrogates."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """With escapes."""
        if value is None or _PLAIN.fullmatch(value):
            return value
        return json.dumps(value)[1:-1]

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Without."""
        return value if value is None or "\\" not in value else str(json.loads(f'"{value}"'))


@overload
def indexable(text: str, limit: int = MAX_INDEXED) -> str: ...
@overload
def indexable(text: str | None, limit: int = MAX_INDEXED) -> str | None: ...
def indexable(text: str | None, limit: int = MAX_INDEXED) -> str | None:
    """A text as an index takes it: one of more letters, escapes included, is cut, and told from others by its SHA-256.

    The columns of an index share what it takes.
    """
    if text is None or len(encode(text)) <= limit:
        return text
    return f"{text[:_KEPT]}… {sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


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


class LabelDrawRow(Row, table=True):
    """Cases of a run that were drawn at random, so that people label what a judge has judged."""

    __tablename__: ClassVar[str] = "label_draw"
    __table_args__ = (ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),)

    id: str = Field(sa_column=Column(String(64), primary_key=True))
    created_at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False))
    run_id: str = Field(sa_column=Column(String(64), nullable=False, index=True))
    check_id: str = Field(sa_column=Column(EscapedText, nullable=False))
    seed: int = Field(sa_column=Column(BigInteger, nullable=False))
    case_ids: list[str] = Field(sa_column=Column(JsonText, nullable=False))


class LabelRow(Row, table=True):
    """What a person said of one output. Rows are only added; JSON's null as a label withdraws the one before."""

    __tablename__: ClassVar[str] = "label"
    __table_args__ = (
        ForeignKeyConstraint(["run_id", "case_index"], ["run_case.run_id", "run_case.case_index"], ondelete="CASCADE"),
        ForeignKeyConstraint(["draw_id"], ["label_draw.id"], ondelete="SET NULL"),
        Index("ix_label_run_id", "run_id", "case_index"),
    )

    id: int | None = Field(default=None, primary_key=True)
    created_at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False))
    run_id: str = Field(sa_column=Column(String(64), nullable=False))
    case_index: int
    repeat: int
    check_id: str = Field(sa_column=Column(EscapedText, nullable=False))
    field: str = Field(sa_column=Column(EscapedText, nullable=False))
    label: Any = Field(sa_column=Column(JsonText, nullable=False))
    note: str = Field(sa_column=Column(EscapedText, nullable=False))
    labelled_by: str = Field(sa_column=Column(EscapedText, nullable=False))
    draw_id: str | None = Field(sa_column=Column(String(64)))


class ApiKeyRow(Row, table=True):
    """A key of a program that calls the network's interfaces; of its secret there is only the SHA-256."""

    __tablename__: ClassVar[str] = "api_key"

    id: str = Field(sa_column=Column(String(16), primary_key=True))
    name: str = Field(sa_column=Column(EscapedText, nullable=False))
    secret_hash: str = Field(sa_column=Column(String(64), nullable=False))
    scopes: list[str] = Field(sa_column=Column(JsonText, nullable=False))
    created_at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False))
    expires_at: datetime | None = Field(sa_column=Column(UtcDateTime))
    revoked_at: datetime | None = Field(sa_column=Column(UtcDateTime))


class AuditEntryRow(Row, table=True):
    """A request over the network: who did what, when, from where, and what came of it. A trigger refuses changes."""

    __tablename__: ClassVar[str] = "audit_entry"

    id: int | None = Field(default=None, primary_key=True)
    at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False, index=True))
    caller: str | None = Field(sa_column=Column(EscapedText))
    source: str | None = Field(sa_column=Column(EscapedText))
    action: str = Field(sa_column=Column(EscapedText, nullable=False))
    resource: str | None = Field(sa_column=Column(EscapedText))
    outcome: str = Field(sa_column=Column(String(32), nullable=False))


class PageSessionRow(Row, table=True):
    """A browser that has signed in to the pages with a key; of the session's id there is only the SHA-256."""

    __tablename__: ClassVar[str] = "page_session"
    __table_args__ = (
        ForeignKeyConstraint(["key_id"], ["api_key.id"], ondelete="CASCADE"),
        Index("ix_page_session_key_id", "key_id", "created_at"),
    )

    id_hash: str = Field(sa_column=Column(String(64), primary_key=True))
    key_id: str = Field(sa_column=Column(String(16), nullable=False))
    created_at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False))
    expires_at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False))


class TestCaseRow(Row, table=True):
    """A test case that was given over the network and is used by its id."""

    __tablename__: ClassVar[str] = "test_case"

    id: str = Field(sa_column=Column(String(200), primary_key=True))
    data: Any = Field(sa_column=Column(JsonText, nullable=False))
    created_at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False, index=True))


class GraderRow(Row, table=True):
    """A named list of checks that was given over the network."""

    __tablename__: ClassVar[str] = "grader"

    id: str = Field(sa_column=Column(String(100), primary_key=True))
    name: str = Field(sa_column=Column(EscapedText, nullable=False))
    checks: Any = Field(sa_column=Column(JsonText, nullable=False))
    created_at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False))


class RunRequestRow(Row, table=True):
    """That a run was requested over the network, by whom and with what, and whether Prefect has been told of it."""

    __tablename__: ClassVar[str] = "run_request"
    __table_args__ = (
        UniqueConstraint("idempotency_key"),
        ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
    )

    run_id: str = Field(sa_column=Column(String(64), primary_key=True))
    kind: str = Field(sa_column=Column(String(16), nullable=False))
    caller: str | None = Field(sa_column=Column(EscapedText))
    idempotency_key: str | None = Field(sa_column=Column(String(200)))
    request_hash: str = Field(sa_column=Column(String(64), nullable=False))
    request: Any = Field(sa_column=Column(JsonText, nullable=False))
    created_at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False, index=True))
    dispatched_at: datetime | None = Field(sa_column=Column(UtcDateTime))


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
LABEL_DRAW: Table = METADATA.tables["label_draw"]
LABEL: Table = METADATA.tables["label"]
API_KEY: Table = METADATA.tables["api_key"]
AUDIT_ENTRY: Table = METADATA.tables["audit_entry"]
PAGE_SESSION: Table = METADATA.tables["page_session"]
TEST_CASE: Table = METADATA.tables["test_case"]
GRADER: Table = METADATA.tables["grader"]
RUN_REQUEST: Table = METADATA.tables["run_request"]
