"""The suite: what is evaluated, with which checks, and what must hold, as the sections of one YAML or JSON document.

`fepflow.suite_file` reads it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, model_validator

from fepflow.durations import seconds
from fepflow.errors import JSONPathError
from fepflow.jsonpath import compile_path
from fepflow.protocol.check import Check, CheckId
from fepflow.protocol.test_case import TestCase
from fepflow.template import compile_template

Impact = Literal["no_measurable", "very_low", "low", "moderate", "high", "severe"]
"""EvalGuard's impact levels, from best to worst (EvalGuard 4.3.3)."""

IMPACTS: tuple[str, ...] = get_args(Impact)

PREVIOUS = "previous"
"""The baseline that is the run before."""

LIMIT_NAME = "[^/%&<>]+"
"""What Prefect takes as the name of a global limit."""


def _size(value: Any) -> Any:
    if isinstance(value, str):
        match = re.fullmatch(r"(\d+)\s*(kB|KB|MB|GB)", value.strip())
        if not match:
            raise ValueError("a size reads like 500kB or 10MB")
        return int(match[1]) * {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9}[match[2][0]]
    return value


def _path(value: Any) -> Any:
    if isinstance(value, str) and not value.startswith("$"):
        raise ValueError(f"a JSONPath starts with $: did you mean $.{value.lstrip('.')}?")
    if isinstance(value, str):
        _refuse_invalid_paths(lambda: compile_path(value))
    return value


def _body(value: Any) -> Any:
    _refuse_invalid_paths(lambda: compile_template(value))
    return value


def _baseline(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(rf"{PREVIOUS}|[0-9a-f]{{4,32}}", value):
        raise ValueError(f"must be {PREVIOUS}, or a run's id or its beginning, as `fepflow list` shows it")
    return value


def _refuse_invalid_paths(compile: Callable[[], object]) -> None:
    try:
        compile()
    except JSONPathError as error:
        raise ValueError(str(error)) from None


Duration = Annotated[
    float,
    BeforeValidator(seconds, json_schema_input_type=float | str),
    Field(gt=0, description="Seconds, or a text such as 500ms, 30s, 2m, 1h, 7d."),
]
ByteSize = Annotated[int, BeforeValidator(_size, json_schema_input_type=int | str), Field(gt=0)]
JSONPathText = Annotated[str, BeforeValidator(_path), Field(description="A JSONPath, starting with $.")]


class Section(BaseModel):
    """A part of the suite file: unknown fields are mistakes, and values are never shown in errors."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True, frozen=True)


class HttpTarget(Section):
    """An HTTP endpoint that is called once a test case."""

    url: str = Field(
        repr=False,
        pattern=r"^https?://[^\s/]",
        description="Address, http or https.",
        json_schema_extra={"pattern": r"^(https?://[^\s/]|\$\{)"},  # in the file it may be a reference yet
    )
    method: Literal["POST", "PUT", "GET"] = "POST"
    headers: dict[str, str] = Field({}, repr=False, description="Request headers; secrets only as ${NAME}.")
    body: Annotated[Any, BeforeValidator(_body)] = Field(
        {"input": "$.test_case.input"}, description="JSON body; JSONPaths over the test case inside."
    )
    output: JSONPathText | None = Field(None, description="Where the answer is; default: all of it.")
    metadata: dict[str, JSONPathText] = Field({}, description="What else to keep of the answer, by name.")
    max_bytes: ByteSize = Field(10_000_000, description="Largest answer, decompressed: bytes, or 10MB.")


class ScriptedTarget(Section):
    """Recorded outputs from a file: the evaluation of outputs that exist already."""

    path: str = Field(description="File of recorded outputs (.jsonl, .json, .yaml, .csv, each also .gz).")
    format: Literal["jsonl", "json", "yaml", "csv"] | None = Field(None, description="Default: by the file's ending.")
    id: JSONPathText | None = Field(None, description="A record's test case id; default: by order.")
    output: JSONPathText = Field("$.value", description="Where the output is in a record.")
    metadata: dict[str, JSONPathText] = Field({}, description="What else to keep of a record, by name.")


class Target(Section):
    """The system under test, and how patiently it is asked."""

    http: HttpTarget | None = None
    scripted: ScriptedTarget | None = None
    timeout: Duration = Field(30.0, description="Deadline of one whole call.")
    connect_timeout: Duration = Field(5.0, description="Deadline of the connection.")
    read_timeout: Duration | None = Field(None, description="Longest silence while reading; default: the timeout.")
    case_timeout: Duration | None = Field(None, description="Deadline of a case, all its attempts and waits together.")
    attempts: Annotated[int, Field(ge=1, le=20)] = Field(3, description="Calls of a case in its batch.")
    retries: Annotated[int, Field(ge=0, le=10)] = Field(
        2, description="Prefect's retries of a case that has failed after its attempts, in a task run of its own."
    )
    concurrency: Annotated[int, Field(ge=1, le=1000)] = Field(
        16, description="Calls under way at once; fewer while the target says 429 or 503, or does not answer in time."
    )
    requests_per_minute: Annotated[float, Field(gt=0)] | None = Field(None, description="Calls a minute, at most.")
    limits: list[Annotated[str, Field(pattern=f"^{LIMIT_NAME}$")]] = Field(
        [], description="Global limits of Prefect, by name, that this run shares with others (`fepflow limits`)."
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> Target:
        if (self.http is None) == (self.scripted is None):
            raise ValueError("give exactly one of http, scripted")
        return self


class Dataset(Section):
    """Test cases from a file, and where their parts are in a record.

    Without mappings a record is a test case as FEP 2.1 has it; other fields of a record go to the case's metadata.
    """

    path: str = Field(description="File of test cases (.jsonl, .json, .yaml, .csv, each also .gz).")
    format: Literal["jsonl", "json", "yaml", "csv"] | None = Field(None, description="Default: by the file's ending.")
    id: JSONPathText | None = None
    input: JSONPathText | None = None
    expected: JSONPathText | None = None
    metadata: dict[str, JSONPathText] | None = None


class Metric(Section):
    """A number over a check's results, with its interval."""

    id: CheckId
    check: CheckId = Field(description="Id of the check whose results are aggregated.")
    aggregate: Literal["mean"] = "mean"
    value: JSONPathText | None = Field(None, description="Default: $.passed, then $.response.passed.")


class Gate(Section):
    """What must hold for a pass."""

    max_impact: Impact | None = Field(None, description="Worst EvalGuard impact that still passes.")
    min: dict[str, float] = Field({}, description="Smallest value that still passes, by metric.")
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = Field(0.95, description="Confidence of the intervals.")
    verdict: Literal["interval", "point"] = Field("interval", description="Judge by interval, or by value alone.")


class ModelDefaults(Section):
    """What holds for all checks that ask a model of one kind, unless they say otherwise themselves."""

    llm_config: dict[str, Any] = Field(
        {}, alias="model_config", description="Which model, and how it is asked; as the checks have it."
    )
    provider_config: dict[str, Any] = Field({}, description="Where the model is; as the checks have it.")
    concurrency: Annotated[int, Field(ge=1, le=1000)] = Field(
        16, description="Requests under way at once, for each provider, address and key."
    )


class JudgeDefaults(ModelDefaults):
    """The suite's judge: what holds for its `llm_judge` checks."""

    samples: Annotated[int, Field(ge=1)] | None = Field(
        None, description="How often it is asked; as the checks have it."
    )


class Budget(Section):
    """What the answers of a run may cost: the target's as they say themselves in their metadata (`tokens`, `usd`), and
    those of models that checks ask."""

    tokens: Annotated[int, Field(gt=0)] | None = None
    usd: Annotated[float, Field(gt=0)] | None = None

    @property
    def limits(self) -> dict[str, float]:
        """What is limited, by its name in an output's metadata."""
        return {name: limit for name in ("tokens", "usd") if (limit := getattr(self, name)) is not None}


class Suite(Section):
    """A suite of test cases against one target."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    description: str | None = None
    task: str | None = Field(None, description="EvalGuard task id, by which thresholds are looked up.")
    target: Target
    test_cases: str | Dataset | list[TestCase]
    repeats: Annotated[int, Field(ge=1, le=1000)] = Field(1, description="How often each case is called and checked.")
    checks: list[Check] = Field([], description="Checks of every case; a case may carry its own.")
    judge: JudgeDefaults | None = Field(None, description="The model of the llm_judge checks that name none.")
    embedding: ModelDefaults | None = Field(
        None, description="The model of the semantic_similarity checks that name none."
    )
    metrics: list[Metric] | None = Field(None, description="Default: for each check the mean of passed.")
    thresholds: str | dict[str, Any] | None = Field(None, description="EvalGuard file or folder, or inline.")
    gate: Gate | None = Field(None, description="Default: every check passes; with thresholds, max_impact low.")
    deadline: Duration | None = Field(None, description="Deadline of a run: no call is made after it.")
    budget: Budget | None = Field(None, description="What the answers of a run may cost: no call is made after that.")
    baseline: Annotated[str, BeforeValidator(_baseline)] | None = Field(
        None, description="The run to show beside this one: previous, or a run's id or its beginning."
    )
    cache: bool = Field(True, description="Use models' answers that are kept; false asks anew, and replaces them.")
    shards: Annotated[int, Field(ge=1, le=100)] = Field(
        1, description="Parts that a run is split into, each executed by a worker of the pool, on whatever machine."
    )
    plugins: list[str] = Field([], description="Python files with custom checks.")
    tags: list[str] = []
    batch_size: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Calls a batch; default: one call each up to 25 calls, then about 12 batches."
    )

    @property
    def dataset(self) -> Dataset | None:
        """The file of test cases, if they come from one."""
        return Dataset(path=self.test_cases) if isinstance(self.test_cases, str) else self._dataset_or_none()

    def _dataset_or_none(self) -> Dataset | None:
        return self.test_cases if isinstance(self.test_cases, Dataset) else None


def check_ids(checks: Sequence[Check], taken: Sequence[str] = ()) -> list[str]:
    """The id of each check: its own, else its type, else its type with a number (`contains-2`)."""
    used = {*taken, *(check.id for check in checks if check.id)}
    ids = []
    for check in checks:
        name, number = check.id or check.type, 1
        while not check.id and name in used:
            number += 1
            name = f"{check.type}-{number}"
        used.add(name)
        ids.append(name)
    return ids


def suite_schema() -> dict[str, Any]:
    """The JSON Schema of suite files."""
    schema = TypeAdapter(Suite).json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "fepflow suite", **schema}
