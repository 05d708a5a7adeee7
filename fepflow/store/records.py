"""What goes into the store and comes out of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import uuid4

from fepflow.protocol.model import utc_now
from fepflow.protocol.model_response import Kind
from fepflow.protocol.results import CheckResult
from fepflow.protocol.status import StatusText
from fepflow.protocol.test_case import Output, TestCase

RunStatus = Literal["pending", "running", "completed", "failed", "cancelled", "interrupted"]
Outcome = Literal["pass", "fail", "inconclusive"]
Cause = Literal["command", "schedule", "automation", "api", "pytest", "evaluate", "network"]
"""What began a run: the command line, Prefect's schedule or automation, its API or UI, a test, a request to evaluate
outputs that exist (FEP 5), or one for a run whose target is called at guarded addresses only."""


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to be created. `suite` is the suite's document with its `${NAME}` references, never their values.

    `started_at` is for what is over when it is stored; else a run starts when its lease is first taken. `suite_hash`
    is the content hash of what the suite measures, `options` what was asked of this run beyond the suite. It begins
    with its first `n_cases` cases (None: with all), see `Leases.extend_run`.
    """

    id: str
    name: str
    suite: dict[str, Any]
    suite_path: str | None
    repeats: int
    tags: list[str] = dataclasses.field(default_factory=list)
    flow_run_id: str | None = None
    started_at: datetime | None = None
    suite_hash: str | None = None
    cause: Cause | None = None
    options: dict[str, Any] | None = None
    n_cases: int | None = None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as the store knows it. Times are aware, in UTC; `outcome` is there once the run is completed.

    `cases_hash` is the content hash of the set of its cases. Runs of older versions have no hashes and no cause.
    """

    id: str
    name: str
    status: RunStatus
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    suite: dict[str, Any]
    suite_path: str | None
    repeats: int
    n_cases: int
    tags: list[str]
    flow_run_id: str | None
    lease_owner: str | None
    lease_until: datetime | None
    cancel_requested_at: datetime | None
    outcome: Outcome | None
    metrics: Any
    verdict: Any
    stats: Any
    error: str | None
    suite_hash: str | None = None
    cases_hash: str | None = None
    cause: Cause | None = None
    options: Any = None

    @property
    def calls(self) -> int:
        """How many outputs it is to have, as far as it is planned."""
        return self.n_cases * self.repeats

    @property
    def is_requested(self) -> bool:
        """Whether it was requested over the network, which no suite file and no caller can say or deny."""
        return self.cause == "network"

    @property
    def sample(self) -> str | None:
        """In words, that the run has a random sample of the cases only."""
        found = (self.options or {}).get("sample")
        if not found or found["of"] == self.n_cases:
            return None
        return f"a random sample of {self.n_cases} of {found['of']} test cases (seed {found['seed']})"


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
    """An output that is in the store."""

    output: Output
    content_hash: str
    failed: bool


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One check's result, as plain data; `result` is a CheckResult (FEP 2.3.4) as JSON, None where it was not read."""

    case_index: int
    repeat: int
    check_id: str
    status: StatusText
    passed: bool | None
    result: dict[str, Any] | None


class FailedCheck(NamedTuple):
    """A check of an output that failed, or ended in error."""

    case_index: int
    repeat: int
    check_id: str
    in_error: bool


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The results of one repeat of one case; `output` is None while it is missing."""

    case_index: int
    repeat: int
    case: TestCase
    output: Output | None
    checks: list[CheckResult]


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts of what is in the store. `outputs` includes the failed ones, `checks` every status.

    `passed` and `failed` count completed checks with that answer, `error` and `skipped` the others.
    """

    outputs: int
    failed_outputs: int
    checks: int
    passed: int
    failed: int
    error: int
    skipped: int


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
class Calibration:
    """How far a judge agreed with people's labels, in one run.

    `judge` is the content hash of who judges (model and parameters), `rubric` that of what by (prompt, response
    format, samples); `field` is the field of its responses that was compared. `n` labels were, `missing` had no
    verdict. `statistics` are kappa and the rest, as JSON.
    """

    judge: str
    rubric: str
    model: str
    parameters: dict[str, Any]
    check_id: str
    field: str
    run_id: str
    n: int
    missing: int
    statistics: dict[str, Any]
    id: str = dataclasses.field(default_factory=lambda: uuid4().hex)
    created_at: datetime = dataclasses.field(default_factory=utc_now)


@dataclass(frozen=True, slots=True)
class LabelDraw:
    """Cases of a run, in random order, drawn by a seed from all that a check has judged, so that people label them."""

    run_id: str
    check_id: str
    seed: int
    case_ids: list[str]
    id: str = dataclasses.field(default_factory=lambda: uuid4().hex)
    created_at: datetime = dataclasses.field(default_factory=utc_now)


@dataclass(frozen=True, slots=True, order=True)
class Baseline:
    """A run of a suite under a name."""

    suite: str
    name: str
    run_id: str
    set_at: datetime


@dataclass(frozen=True, slots=True)
class RunRequest:
    """That a run was requested over the network: by whom, and with what.

    `kind` is the interface's. `idempotency_key` is what the caller gave, made unique to caller and kind; the same key
    with another `request_hash` is a conflict. `dispatched_at` is when Prefect was told of the run.
    """

    run_id: str
    kind: str
    caller: str | None
    idempotency_key: str | None
    request_hash: str
    request: Any
    created_at: datetime
    dispatched_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Grader:
    """A named list of checks, each as FEP declares it (2.3)."""

    id: str
    name: str
    checks: list[dict[str, Any]]
    created_at: datetime


class RunFigures(NamedTuple):
    """A run with its verdict's metrics, without the suite."""

    id: str
    created_at: datetime
    outcome: Outcome
    metrics: Any


FailureKind = Literal["failed", "error"]


@dataclass(frozen=True, slots=True)
class RunFilter:
    """What runs are wanted; None: any. `since` is included, `until` is not; both are about the time of creation."""

    suite: str | None = None
    outcome: Outcome | None = None
    status: RunStatus | None = None
    tag: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run without its suite and its metrics."""

    id: str
    name: str
    status: RunStatus
    outcome: Outcome | None
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    n_cases: int
    repeats: int
    tags: list[str]
    suite_path: str | None
    cause: Cause | None
    error: str | None
    verdict: Any

    @property
    def reason(self) -> str | None:
        """What decided the verdict; of a run without one, what stopped it."""
        reasons = (self.verdict or {}).get("reasons") or ()
        return reasons[0] if reasons else self.error


class OutputFacts(NamedTuple):
    """What an output says of its call."""

    case_index: int
    repeat: int
    failed: bool
    metadata: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class CheckMark:
    """How one check of one output came out; `passed` is None for one without a yes or no."""

    status: StatusText
    passed: bool | None


@dataclass(frozen=True, slots=True)
class GridRow:
    """A case with its outputs by repeat, and how its checks came out by repeat and check id; both count from 0.

    The checks are in the order declared.
    """

    case_index: int
    case: TestCase
    outputs: dict[int, StoredOutput] = field(default_factory=dict)
    marks: dict[tuple[int, str], CheckMark] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewLabel:
    """What a person (`labelled_by`) says of one output: what `field` of the check's response should be.

    `label` is a boolean, a number or a word; None withdraws what the person said before. `draw_id` is the draw by
    which the output was shown, None if it was shown otherwise.
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
    created_at: datetime = dataclasses.field(default_factory=utc_now)


@dataclass(frozen=True, slots=True)
class StoredLabel(NewLabel):
    """A label that is in the store; of two, the one with the greater `id` is newer."""

    _: dataclasses.KW_ONLY
    id: int
    case_id: str


@dataclass(frozen=True, slots=True)
class StoredReport:
    """A report, as a document of EvalGuard 4.4, and the file, or the suite, that it came from.

    `report_id` is the id that it has itself, `evaluated_at` its date; `warnings` say what could not be taken as it was.
    """

    id: str
    source: str
    report_id: str | None
    model_name: str | None
    model_source: str | None
    evaluated_at: datetime | None
    tasks: list[str]
    report: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    imported_at: datetime = field(default_factory=utc_now)


@dataclass(frozen=True, slots=True)
class ReportFilter:
    """Which reports are wanted. A task and a metric are wanted together: the task has to have the metric."""

    model_name: str | None = None
    model_source: str | None = None
    task_ref: str | None = None
    metric: str | None = None


RequestedRun = tuple[RunRecord, RunRequest]


OPERATION = "operation"
"""The kind of the requests of operations."""


@dataclass(frozen=True, slots=True)
class OperationRecord:
    """What is known of an operation without its results. Times are aware, in UTC."""

    id: str
    status: RunStatus
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    n_cases: int
    flow_run_id: str | None
    error: str | None


class LeaseHolder(NamedTuple):
    """The executor of a shard, and whether its lease is valid and its process, as far as one can see, alive."""

    owner: str
    alive: bool


KeyState = Literal["active", "expired", "revoked"]


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key of a program. Of its secret there is the SHA-256 only, in hex. Times are aware, in UTC."""

    id: str
    name: str
    secret_hash: str = dataclasses.field(repr=False)
    scopes: list[str]
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    created_at: datetime = dataclasses.field(default_factory=utc_now)

    def state_at(self, now: datetime) -> KeyState:
        """Whether it may be used at that time."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A request: who did what to which resource, from where, and what came of it.

    `caller` is `key:ID`, `jwt:SUBJECT`, or `cli:USER` for the command line, None for anybody; `outcome` an HTTP status,
    the name of a gRPC status code, `begun` or `done`.
    """

    caller: str | None
    source: str | None
    action: str
    resource: str | None
    outcome: str
    at: datetime = dataclasses.field(default_factory=utc_now)
