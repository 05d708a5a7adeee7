"""The store's schema, portable between SQLite and PostgreSQL, and the plain values that repositories take and return.

Some tables have a class whose objects are their rows: a `RunRecord` is a row of the table `run`. Tables with many rows
(cases, outputs, check results), and those whose rows are never handled as objects, have none: plain values cost a tenth
of mapped objects, and making a class costs every command 3 ms.

A test case is identified by its index in its run, so (run, case index, repeat, check id) is the natural key of a
check's result, and no row can be stored twice. All times are aware, in UTC.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal, NamedTuple, Self
from uuid import uuid4

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    event,
    text,
)
from sqlalchemy.orm import registry
from sqlmodel import Field, SQLModel

from fepflow.datasets.addresses import of_origin
from fepflow.protocol.content_hash import Kind
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckResult, StatusText
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.database import EscapedText, JsonText, OptionalJson, UtcDateTime

RunStatus = Literal["pending", "running", "completed", "failed", "cancelled", "interrupted"]
UNDER_WAY = ("pending", "running")
"""Statuses of runs that are not over."""

Outcome = Literal["pass", "fail", "inconclusive"]
Cause = Literal["command", "schedule", "automation", "api", "pytest", "evaluate", "network", "import", "rescore"]
"""Cause of a run: the command line, Prefect's schedule or automation, its API or UI, a test, a request to evaluate
outputs that exist (FEP 5), one for a run whose target is called at guarded addresses only, an import of another
tool's results, or the wish to judge the outputs of an earlier run anew."""
FailureKind = Literal["failed", "error"]
KeyState = Literal["active", "expired", "revoked"]

FILTERS = "filters"
"""The option of a run that has only some of the suite's cases, which are no random sample: how they were chosen, as the
command line says it."""

PART_OPTIONS = ("sample", "suite_cases", FILTERS)
"""The options of a run that say which part of the suite's cases it has."""

REUSE_OUTPUTS = "reuse_outputs"
"""The option of a run that takes outputs of earlier runs in place of calls."""

REPLACED = "set"
"""The option of a run with values in place of its suite's: their paths and values."""

RESCORING = "rescoring"
"""The option of a run whose outputs are of an earlier one."""

FROM_FILE = "file"
"""The option of a run that was read from a file of results: its path."""

HAS_SUITE = "has_suite"
"""The option of such a run that says whether the file has the suite."""

OPERATION = "operation"
"""The kind of the requests whose runs are FEP's operations."""

METADATA = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
    }
)

_HAS_BLOB = text("blob IS NOT NULL")  # few outputs have one
_BLOB_INDEX = Index("ix_output_blob", "blob", sqlite_where=_HAS_BLOB)

# SQLModel's `sa_type` is annotated as a class, and takes a type with its length as well.
_WORD: Any = String(16)


class Row(SQLModel, registry=registry(metadata=METADATA)):
    """Base of the tables, with separate metadata, because a user's plugin may have SQLModel tables, too.

    A row belongs to no session. pydantic builds no validators for it: the values are fepflow's own, and a name may
    contain characters that pydantic refuses.
    """

    model_config = {"defer_build": True}

    def values(self) -> dict[str, Any]:
        """Return the values of all columns by name."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    def replaced(self, **changes: Any) -> Self:
        """Return a copy with other values; nothing is stored."""
        return type(self)(**{**self.values(), **changes})


def _id_field() -> Any:
    return Field(default_factory=lambda: uuid4().hex, primary_key=True, max_length=64)


def _run_field(*, primary_key: bool = False, index: bool = False) -> Any:
    return Field(foreign_key="run.id", ondelete="CASCADE", max_length=64, primary_key=primary_key, index=index)


def _run_key() -> Column[str]:
    return Column("run_id", String(64), ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)


def _case_key() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["run_id", "case_index"], ["run_case.run_id", "run_case.case_index"], ondelete="CASCADE"
    )


class RunRecord(Row, table=True):
    """One execution of a suite; a completed run has an `outcome`.

    A run to create needs an `id`, `name`, `suite` and `repeats`. It begins with its first `n_cases` cases (0: all), see
    `Leases.extend_run`. `created_at` may be the time of another tool's evaluation. `started_at` is for a run that is
    over when it is stored.

    `suite` is the suite's document with its `${NAME}` references, never their values. `suite_hash` is the content hash
    of what the suite measures, `cases_hash` that of the set of its cases, `target_hash` that of the target's requests,
    with its address. `version` is the name of the target's version, if one was given. `options` are the run's own
    options. `rescored_from` is the id of the run whose outputs are judged again. `takeovers` counts how often another
    executor took the run over because its own was gone, and `takeovers_left` how often one still may: never, unless a
    deployment started it.
    """

    __tablename__: ClassVar[str] = "run"

    id: str = Field(primary_key=True, max_length=64)
    name: str = Field(sa_type=EscapedText, index=True)
    status: RunStatus = Field(default="pending", sa_type=_WORD, index=True)
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime, index=True)
    started_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    completed_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    suite: dict[str, Any] = Field(sa_type=JsonText)
    suite_path: str | None = Field(default=None, sa_type=EscapedText)
    repeats: int
    n_cases: int = Field(default=0)
    tags: list[str] = Field(default_factory=list, sa_type=JsonText)
    flow_run_id: str | None = Field(default=None, max_length=64, unique=True)
    lease_owner: str | None = Field(default=None, sa_type=EscapedText)
    lease_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    cancel_requested_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    outcome: Outcome | None = Field(default=None, sa_type=_WORD)
    metrics: Any = Field(default=None, sa_type=OptionalJson, nullable=True)
    verdict: Any = Field(default=None, sa_type=OptionalJson, nullable=True)
    stats: Any = Field(default=None, sa_type=OptionalJson, nullable=True)
    error: str | None = Field(default=None, sa_type=EscapedText)
    suite_hash: str | None = Field(default=None, max_length=64)
    cases_hash: str | None = Field(default=None, max_length=64)
    target_hash: str | None = Field(default=None, max_length=64)
    version: str | None = Field(default=None, sa_type=EscapedText)
    cause: Cause | None = Field(default=None, sa_type=_WORD)
    options: Any = Field(default=None, sa_type=OptionalJson, nullable=True)
    rescored_from: str | None = Field(default=None, max_length=64)
    takeovers: int = Field(default=0)
    takeovers_left: int = Field(default=0)

    @property
    def rescoring(self) -> dict[str, Any]:
        """The `outputs_of`, `gate_only`, `unanswered`, `target` and `notes` of a rescored run; empty for others.

        See `fepflow.tasks.create_rescore`.
        """
        noted: dict[str, Any] = (self.options or {}).get(RESCORING, {})
        return noted

    @property
    def title(self) -> str:
        """The run's name in Prefect, which distinguishes a rescored run from a measurement."""
        return self.name if self.rescored_from is None else f"{self.name} (rescored)"

    @property
    def asked_in(self) -> str:
        """The id of the run in which the target was called for the outputs: this one, unless it is rescored."""
        return str(self.rescoring.get("outputs_of", self.id))

    @property
    def file(self) -> str | None:
        """The file from which the run was read for a comparison; None for a run of the store."""
        return (self.options or {}).get(FROM_FILE)

    @property
    def has_suite(self) -> bool:
        """True if the suite is known as it was declared, and not only from results."""
        return bool((self.options or {}).get(HAS_SUITE, True))

    @property
    def short_name(self) -> str:
        """The beginning of the id, or the file, as a name for people."""
        return self.file or self.id[:8]

    @property
    def is_under_way(self) -> bool:
        """True until the run is over."""
        return self.status in UNDER_WAY

    @property
    def calls(self) -> int:
        """The planned number of outputs."""
        return self.n_cases * self.repeats

    @property
    def reuses_outputs(self) -> bool:
        """True if outputs of earlier runs replace calls."""
        return bool((self.options or {}).get(REUSE_OUTPUTS))

    @property
    def is_requested(self) -> bool:
        """True for a run that was requested over the network; no suite file or caller can set or hide it."""
        return self.cause == "network"

    @property
    def variants_id(self) -> str | None:
        """The common id of the runs of a suite's variants, which were started together."""
        return (self.options or {}).get("variants")

    @property
    def variant(self) -> dict[str, Any] | None:
        """The run's variant of its suite."""
        return self.suite.get("variant")

    @property
    def sample(self) -> str | None:
        """A phrase for people if the run has only a random sample of the cases."""
        sample = (self.options or {}).get("sample")
        if not sample or sample["of"] == self.n_cases:
            return None
        return f"a random sample of {self.n_cases} of {sample['of']} test cases (seed {sample['seed']})"

    @property
    def filtered(self) -> str | None:
        """A phrase for people if the run has only chosen cases of the suite."""
        options = self.options or {}
        if not options.get(FILTERS):
            return None
        return f"{self.n_cases} of {options['suite_cases']} test cases ({', '.join(options[FILTERS])})"

    @property
    def origin(self) -> dict[str, Any] | None:
        """The `url`, `revision`, `sha256` and `bytes` of test cases from an address; None for others."""
        origin: dict[str, Any] | None = (self.options or {}).get("origin")
        return origin

    @property
    def origin_phrase(self) -> str | None:
        """A phrase for people about the origin."""
        return of_origin(self.origin) if self.origin else None

    @property
    def import_phrase(self) -> str | None:
        """A phrase for people about the imported file of another tool; None for other runs."""
        origin = (self.options or {}).get("import")
        if not origin:
            return None
        version = f" {origin['version']}" if "version" in origin else ""
        return f"{origin['file']} ({origin['format']}{version}, sha256 {origin['sha256'][:12]})"

    @property
    def reason(self) -> str | None:
        """The deciding reason of the verdict; without a verdict, the error that stopped the run."""
        reasons = (self.verdict or {}).get("reasons") or ()
        return reasons[0] if reasons else self.error

    @property
    def part(self) -> str | None:
        """A phrase for people if the run has only a part of the suite's cases, by filters, a random sample, or both."""
        return "; ".join(filter(None, (self.filtered, self.sample))) or None


CASE = Table(
    "run_case",
    METADATA,
    _run_key(),
    Column("case_index", Integer, primary_key=True),
    Column("case_id", EscapedText, nullable=False),
    Column("data", JsonText, nullable=False),
    UniqueConstraint("run_id", "case_id"),
)
"""The test cases of runs."""

SHARD = Table(
    "shard",
    METADATA,
    _run_key(),
    Column("shard", Integer, primary_key=True),
    Column("lease_owner", EscapedText),
    Column("lease_until", UtcDateTime),
)
"""Parts of runs' cases, each with its own executor."""

BLOB = Table(
    "blob",
    METADATA,
    Column("digest", String(64), primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("noted_at", UtcDateTime, nullable=False),
)
"""The blobs of large outputs, by the SHA-256 of their content; several outputs may share one. `size` is in bytes.

`noted_at` is when a writer last announced that it would write it.
"""

OUTPUT = Table(
    "output",
    METADATA,
    Column("run_id", String(64), primary_key=True),
    Column("case_index", Integer, primary_key=True),
    Column("repeat", Integer, primary_key=True),
    Column("content_hash", String(64), nullable=False),
    Column("output_id", EscapedText),
    Column("value", JsonText, nullable=False),
    Column("metadata", OptionalJson),
    Column("failed", Boolean, nullable=False),
    Column("reused_from", String(64)),
    Column("blob", String(64), ForeignKey("blob.digest")),
    Column("created_at", UtcDateTime, nullable=False),
    _case_key(),
    Index("ix_output_content_hash", "content_hash"),  # by which an output of an earlier run is found
    _BLOB_INDEX,
)
"""The target's outputs, one for each repeat of a test case; `reused_from` is the id of the earlier run that made it.

If large parts are in a `blob`, `value` is the beginning, and the metadata's large entries are null.
"""

CHECK_RESULT = Table(
    "check_result",
    METADATA,
    Column("run_id", String(64), primary_key=True),
    Column("case_index", Integer, primary_key=True),
    Column("repeat", Integer, primary_key=True),
    Column("check_id", EscapedText, primary_key=True),
    Column("content_hash", String(64), nullable=False),
    Column("check_type", EscapedText, nullable=False),
    Column("status", String(16), nullable=False),
    Column("passed", Boolean),
    Column("result", JsonText, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    _case_key(),
    # Counting and finding failures reads this index and none of the results.
    Index("ix_check_result_outcome", "run_id", "status", "passed", "case_index", "repeat"),
)
"""The results of checks, one for each check of an output."""

CACHED_RESPONSE = Table(
    "cached_response",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("model", EscapedText, nullable=False, index=True),
    Column("response_model", EscapedText, nullable=False),
    Column("mode", String(16)),
    Column("text", EscapedText, nullable=False),
    Column("prompt_tokens", Integer),
    Column("completion_tokens", Integer),
    Column("cost_picousd", BigInteger),
    Column("dropped_params", JsonText, nullable=False),
    Column("responded_at", UtcDateTime, nullable=False, index=True),
)
"""Responses of models; `key` is the content hash of the request. All runs share them."""


class Calibration(Row, table=True):
    """The agreement of a judge with people's labels in one run. It outlives the run.

    `judge` is the content hash of the model and its parameters, `rubric` that of the prompt, the response format and
    the number of samples. `field` is the compared field of its responses. There were `n` labels, `missing` of them
    without a verdict. `statistics` are kappa and the rest, as JSON.
    """

    __tablename__: ClassVar[str] = "calibration"
    __table_args__ = (Index("ix_calibration_judge", "judge", "rubric"),)

    id: str = _id_field()
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
    judge: str = Field(max_length=64)
    rubric: str = Field(max_length=64)
    model: str = Field(sa_type=EscapedText)
    parameters: dict[str, Any] = Field(sa_type=JsonText)
    check_id: str = Field(sa_type=EscapedText)
    field: str = Field(sa_type=EscapedText)
    run_id: str = Field(max_length=64)
    n: int
    missing: int
    statistics: dict[str, Any] = Field(sa_type=JsonText)


class LabelDraw(Row, table=True):
    """Cases of a run, drawn by a seed from all that a check has judged, in random order, for labelling.

    They were drawn from all together (`random`), or from those that the check passed and those that it failed
    (`by_verdict`).
    """

    __tablename__: ClassVar[str] = "label_draw"

    id: str = _id_field()
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
    run_id: str = _run_field(index=True)
    check_id: str = Field(sa_type=EscapedText)
    seed: int = Field(sa_type=BigInteger)
    design: str = Field(default="random", max_length=16)
    case_ids: list[str] = Field(sa_type=JsonText)


LABEL = Table(
    "label",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("created_at", UtcDateTime, nullable=False),
    Column("run_id", String(64), nullable=False),
    Column("case_index", Integer, nullable=False),
    Column("repeat", Integer, nullable=False),
    Column("check_id", EscapedText, nullable=False),
    Column("field", EscapedText, nullable=False),
    Column("label", JsonText, nullable=False),
    Column("note", EscapedText, nullable=False),
    Column("labelled_by", EscapedText, nullable=False),
    Column("draw_id", String(64), ForeignKey("label_draw.id", ondelete="SET NULL")),
    Column("disputed", Boolean, nullable=False),
    _case_key(),
    Index("ix_label_run_id", "run_id", "case_index"),
)
"""People's labels of outputs. Rows are only added; JSON's null as a label withdraws the previous one."""


class PreferenceRow(Row, table=True):
    """A person's or a judge's preference between two outputs, by their contents: it outlives their runs.

    `pair` is the content hash of the case and both outputs, `preferred` and `left_output` are those of an output; None
    as the preferred one is a tie. A judge's name is that of its model.
    """

    __tablename__: ClassVar[str] = "preference"

    pair: str = Field(primary_key=True, max_length=64)
    question_hash: str = Field(primary_key=True, max_length=64)
    is_judge: bool = Field(primary_key=True)
    given_by: str = Field(sa_type=EscapedText, primary_key=True)
    question: str = Field(sa_type=EscapedText)
    preferred: str | None = Field(max_length=64)
    left_output: str | None = Field(default=None, max_length=64)
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)


class StoredReport(Row, table=True):
    """A report, as a document of EvalGuard 4.4, and the file or suite that it came from.

    The `id` of an imported one is the content hash of its file, else it is its run's. `report_id` is the report's own
    id, `evaluated_at` its date. `warnings` say what could not be read unchanged.
    """

    __tablename__: ClassVar[str] = "evalguard_report"

    id: str = Field(primary_key=True, max_length=64)
    imported_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime, index=True)
    source: str = Field(sa_type=EscapedText)
    report_id: str | None = Field(sa_type=EscapedText, index=True)
    model_name: str | None = Field(sa_type=EscapedText, index=True)
    model_source: str | None = Field(sa_type=EscapedText)
    evaluated_at: datetime | None = Field(sa_type=UtcDateTime)
    tasks: list[str] = Field(sa_type=JsonText)
    report: dict[str, Any] = Field(sa_type=JsonText)
    warnings: list[str] = Field(default_factory=list, sa_type=JsonText)


REPORT_METRIC = Table(
    "evalguard_report_metric",
    METADATA,
    Column("report_id", String(64), ForeignKey("evalguard_report.id", ondelete="CASCADE"), primary_key=True),
    Column("metric_index", Integer, primary_key=True),
    Column("task_ref", EscapedText),
    Column("metric", EscapedText),
    # Finding reports reads these indexes and none of the rows.
    Index("ix_evalguard_report_metric_task", "task_ref", "metric", "report_id"),
    Index("ix_evalguard_report_metric_metric", "metric", "report_id"),
)
"""The metrics of reports and their tasks, to find reports by; a task without values has no metric."""

REPORTED_RUN = Table("evalguard_run", METADATA, _run_key(), Column("completed_at", UtcDateTime, nullable=False))
"""Runs with a verdict whose report was considered, and when they had ended; with a task a run has a report."""


class Baseline(Row, table=True):
    """A run of a suite under a name, with the ids of `others` of the same cases that are pooled with it."""

    __tablename__: ClassVar[str] = "baseline"

    suite: str = Field(sa_type=EscapedText, primary_key=True)
    name: str = Field(primary_key=True, max_length=100)
    run_id: str = _run_field()
    others: list[str] = Field(default_factory=list, sa_type=JsonText)
    set_at: datetime = Field(sa_type=UtcDateTime)


class ApiKey(Row, table=True):
    """A key of a program that calls over the network. Only the SHA-256 of its secret is stored, in hex."""

    __tablename__: ClassVar[str] = "api_key"

    id: str = Field(primary_key=True, max_length=16)
    name: str = Field(sa_type=EscapedText)
    secret_hash: str = Field(max_length=64, repr=False)
    scopes: list[str] = Field(sa_type=JsonText)
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
    expires_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UtcDateTime)

    def state_at(self, now: datetime) -> KeyState:
        """Return whether the key may be used at that time."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"


PAGE_SESSION = Table(
    "page_session",
    METADATA,
    Column("id_hash", String(64), primary_key=True),
    Column("key_id", String(16), ForeignKey("api_key.id", ondelete="CASCADE"), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
    Index("ix_page_session_key_id", "key_id", "created_at"),
)
"""Browsers that have signed in to the pages with a key; only the SHA-256 of a session's id is stored."""

AUDIT_ENTRY = Table(
    "audit_entry",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("at", UtcDateTime, nullable=False, index=True),
    Column("caller", EscapedText),
    Column("source", EscapedText),
    Column("action", EscapedText, nullable=False),
    Column("resource", EscapedText),
    Column("outcome", String(32), nullable=False),
)
"""An `AuditEntry` for each row. A trigger refuses changes of them."""

TEST_CASE = Table(
    "test_case",
    METADATA,
    Column("id", String(200), primary_key=True),
    Column("data", JsonText, nullable=False),
    Column("created_at", UtcDateTime, nullable=False, index=True),
)
"""Test cases that were stored over the network and are used by their ids."""


class Grader(Row, table=True):
    """A named list of checks that was stored over the network, each in FEP's form (2.3)."""

    __tablename__: ClassVar[str] = "grader"

    id: str = Field(primary_key=True, max_length=100)
    name: str = Field(sa_type=EscapedText)
    checks: list[dict[str, Any]] = Field(sa_type=JsonText)
    created_at: datetime = Field(sa_type=UtcDateTime)


class RunRequest(Row, table=True):
    """A caller's request for a run over the network.

    `kind` is the interface's. `idempotency_key` is the caller's, made unique for caller and kind; the same key with
    another `request_hash` is a conflict. `dispatched_at` is when the run was handed to Prefect.
    """

    __tablename__: ClassVar[str] = "run_request"

    run_id: str = _run_field(primary_key=True)
    kind: str = Field(max_length=16)
    caller: str | None = Field(sa_type=EscapedText)
    idempotency_key: str | None = Field(max_length=200, unique=True)
    request_hash: str = Field(max_length=64)
    request: Any = Field(sa_type=JsonText)
    created_at: datetime = Field(sa_type=UtcDateTime, index=True)
    dispatched_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


METRIC_TOTAL = Table(
    "metric_total",
    METADATA,
    Column("metric", String(32), primary_key=True),
    Column("suite", EscapedText, primary_key=True),
    Column("label", String(64), primary_key=True),
    Column("value", BigInteger, nullable=False),
)
"""Totals over all runs, which never decrease, even if runs are deleted; see `fepflow.store.totals`."""

RequestedRun = tuple[RunRecord, RunRequest]

RUN: Table = METADATA.tables["run"]
CALIBRATION: Table = METADATA.tables["calibration"]
LABEL_DRAW: Table = METADATA.tables["label_draw"]
PREFERENCE: Table = METADATA.tables["preference"]
REPORT: Table = METADATA.tables["evalguard_report"]
BASELINE: Table = METADATA.tables["baseline"]
API_KEY: Table = METADATA.tables["api_key"]
GRADER: Table = METADATA.tables["grader"]
RUN_REQUEST: Table = METADATA.tables["run_request"]


@event.listens_for(OUTPUT, "before_create")
def _complete_blob_index(table: Table, connection: Connection, **_: Any) -> None:
    """Say for PostgreSQL, too, which rows the index has. At import, that would load all drivers of PostgreSQL, which
    takes every command on SQLite 0.1 s."""
    if connection.dialect.name == "postgresql":
        _BLOB_INDEX.dialect_kwargs["postgresql_where"] = _HAS_BLOB


@dataclass(frozen=True, slots=True)
class RunFilter:
    """The runs to select; None: any. `since` is included, `until` is not; both are about the time of creation."""

    suite: str | None = None
    outcome: Outcome | None = None
    status: RunStatus | None = None
    tag: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class RunFigures(NamedTuple):
    """A run with its verdict's metrics, without the suite."""

    id: str
    created_at: datetime
    outcome: Outcome
    metrics: Any


class LeaseHolder(NamedTuple):
    """The executor of a shard; `alive` if its lease is valid and, as far as is known, its process runs."""

    owner: str
    alive: bool


class NewOutput(NamedTuple):
    """The target's output for one repeat of the case at `case_index`; both count from 0."""

    case_index: int
    repeat: int
    content_hash: str
    output: Output


class NewCheckResult(NamedTuple):
    """One check's result; `passed` is None for an error, a skip, or a check without a yes or no."""

    case_index: int
    repeat: int
    check_id: str
    content_hash: str
    result: CheckResult
    passed: bool | None


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """An output in the store. `blob` is the digest of its large parts, if they were not read, or are lost."""

    output: Output
    content_hash: str
    failed: bool
    blob: str | None = None


class OutputFacts(NamedTuple):
    """An output without its value, but with the `metadata` of its call."""

    case_index: int
    repeat: int
    failed: bool
    metadata: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One check's result, as plain data; `result` is a CheckResult (FEP 2.3.4) as JSON, or None if it was not read."""

    case_index: int
    repeat: int
    check_id: str
    status: StatusText
    passed: bool | None
    result: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The results of one repeat of one case; `output` is None while it is missing."""

    case_index: int
    repeat: int
    case: TestCase
    output: Output | None
    checks: list[CheckResult]


@dataclass(frozen=True, slots=True)
class CheckMark:
    """The outcome of one check of one output; `passed` is None for one without a yes or no. The score is there if it
    was read."""

    status: StatusText
    passed: bool | None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class GridRow:
    """A case with its outputs by repeat, and the marks of its checks by repeat and check id; both count from 0.

    The checks are in the order declared.
    """

    case_index: int
    case: TestCase
    outputs: dict[int, StoredOutput] = dataclasses.field(default_factory=dict)
    marks: dict[tuple[int, str], CheckMark] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts of a run's rows. `outputs` includes failed ones, and those `reused` from earlier runs; `checks` has every
    status.

    `passed` and `failed` count completed checks with that answer, `error` and `skipped` the others.
    """

    outputs: int
    failed_outputs: int
    checks: int
    passed: int
    failed: int
    error: int
    skipped: int
    reused: int = 0


@dataclass(frozen=True, slots=True)
class CheckCounts:
    """The results of one check in a run, counted; `unjudged` completed without a yes or no."""

    check_id: str
    passed: int
    failed: int
    error: int
    skipped: int
    unjudged: int


@dataclass(frozen=True, slots=True)
class CacheTotals:
    """The cached responses of one model. `cost_usd` is that of all whose cost is known; `unpriced` are the others."""

    kind: Kind
    model: str
    answers: int
    characters: int
    cost_usd: float | None
    unpriced: int
    oldest: datetime
    newest: datetime


@dataclass(frozen=True, slots=True)
class NewLabel:
    """A person's (`labelled_by`) label of one output: what `field` of the check's response should be.

    `label` is a boolean, a number or a word; None withdraws the person's previous label. `draw_id` is the draw that
    showed the output, or None; `disputed` if it was shown early because it is disputed.
    """

    run_id: str
    case_index: int
    repeat: int
    check_id: str
    field: str
    label: bool | float | str | None
    labelled_by: str
    note: str = ""
    draw_id: str | None = None
    disputed: bool = False
    created_at: datetime = dataclasses.field(default_factory=utc_now)


@dataclass(frozen=True, slots=True)
class StoredLabel(NewLabel):
    """A label in the store; of two, the one with the greater `id` is newer."""

    _: dataclasses.KW_ONLY
    id: int
    case_id: str


@dataclass(frozen=True, slots=True)
class ReportFilter:
    """The reports to select. If a task and a metric are given, the task must have the metric."""

    model_name: str | None = None
    model_source: str | None = None
    task_ref: str | None = None
    metric: str | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A request over the network: time, caller, operation, resource, address and outcome.

    `caller` is `key:ID`, `jwt:SUBJECT`, or `cli:USER` for the command line, None for anybody. `outcome` is an HTTP
    status, the name of a gRPC status code, `begun` or `done`. It is a plain class, because every request makes one.
    """

    caller: str | None
    source: str | None
    action: str
    resource: str | None
    outcome: str
    at: datetime = dataclasses.field(default_factory=utc_now)
