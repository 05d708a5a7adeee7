"""The suite: a target, test cases, checks and the conditions for a pass, as sections of one YAML or JSON document.

`fepflow.suite.reader` reads it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, FiniteFloat, TypeAdapter, model_validator
from pydantic.json_schema import SkipJsonSchema

from fepflow.protocol.check import Check, CheckId, id_of_type
from fepflow.protocol.test_case import TestCase
from fepflow.suite.target import Target
from fepflow.suite.values import (
    AGGREGATE_PATTERN,
    PREVIOUS,
    Aggregate,
    Duration,
    JSONPathText,
    Section,
    is_baseline_name,
    parse_aggregate,
)

Impact = Literal["no_measurable", "very_low", "low", "moderate", "high", "severe"]
"""EvalGuard's impact levels, from best to worst (EvalGuard 4.3.3)."""

IMPACTS: tuple[str, ...] = get_args(Impact)


def _baseline(value: Any) -> Any:
    if (
        isinstance(value, str)
        and not re.fullmatch(rf"{PREVIOUS}|[0-9a-f]{{4,32}}", value)
        and not is_baseline_name(value)
    ):
        raise ValueError(f"must be {PREVIOUS}, the name of a baseline (`fepflow baseline list`), or a run's id")
    return value


def _range(value: list[float]) -> list[float]:
    if not (math.isfinite(value[0]) and math.isfinite(value[1]) and value[0] < value[1]):
        raise ValueError("a range is two numbers, the least and the largest value, such as [0, 1]")
    return value


def _aggregate(value: str) -> str:
    parse_aggregate(value)
    return value


def _one_path(value: Any) -> Any:
    if isinstance(value, dict):
        raise ValueError(
            "must be one path, such as $.answer; an object of several fields is `metadata: {NAME: $.field, ...}`, "
            "and checks read it as $.test_case.metadata.NAME"
        )
    return value


def _of_case(value: Any) -> Any:
    if not isinstance(value, str) or value.startswith("$.test_case."):
        return value
    name = value.removeprefix("$.").removeprefix("metadata.")
    path = name if re.fullmatch(r"\w+", name) else "document"
    raise ValueError(f"a cluster is told by the test case: a path such as $.test_case.metadata.{path}")


RecordPath = Annotated[JSONPathText, BeforeValidator(_one_path)]
"""The path to a part of a test case in a record. A mapping of names to paths is what `metadata` takes."""


class Dataset(Section):
    """Test cases from a file, with the paths of their parts in a record.

    Without a mapping, a record is a test case in FEP's form (2.1); its other fields go to the case's metadata.
    """

    path: str = Field(
        repr=False,
        description="File of test cases (.jsonl, .json, .yaml, .csv, each also .gz, .parquet, .xlsx), or its address: "
        "https://, s3://, gs:// or hf://datasets/ORG/NAME.",
    )
    split: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="Split of a dataset at hf://, such as test."
    )
    revision: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="Branch, tag or commit of a dataset at hf://; default: main."
    )
    format: Literal["jsonl", "json", "yaml", "csv", "parquet", "xlsx", "otlp", "atif"] | None = Field(
        None, description="Default: by the file's ending. otlp and atif are traces: spans, and trajectories, in JSON."
    )
    id: RecordPath | None = None
    input: RecordPath | None = None
    expected: RecordPath | None = None
    turns: RecordPath | None = Field(None, description="The user's messages, turn by turn, instead of input.")
    metadata: dict[str, JSONPathText] | None = Field(
        None, description="Names of the case's metadata, each with its path in a record."
    )


class Metric(Section):
    """A number over a check's results, or over the target's outputs, with its interval."""

    id: CheckId = Field(description="Name of the metric, by which gates, thresholds and reports know it.")
    check: CheckId | None = Field(None, description="Id of the check whose results are aggregated.")
    aggregate: Annotated[str, AfterValidator(_aggregate)] = Field(
        "mean",
        description="mean; rate (share that is true, or within at_least and at_most); error_rate; median; a percentile "
        "like p95; over each case's repeats: majority, each@0.8 (80 % of them pass), worst, pass@3, pass^3 (any "
        "number); of a classification: f1, precision, recall, also of one class, as in recall@refund.",
        json_schema_extra={"pattern": AGGREGATE_PATTERN},
    )
    value: JSONPathText | None = Field(
        None,
        description="Path in the check's results; default: $.passed, then $.response.passed. Without check: $.output.…",
    )
    range: Annotated[list[float], Field(min_length=2, max_length=2), AfterValidator(_range)] | None = Field(
        None, description="Smallest and largest possible value; a value outside counts as an error."
    )
    at_least: FiniteFloat | None = Field(None, description="For a rate: smallest value that counts.")
    at_most: FiniteFloat | None = Field(None, description="For a rate: largest value that counts.")

    @model_validator(mode="after")
    def _complete(self) -> Metric:
        of_output = self.value is not None and re.match(r"\$\.output\b", self.value) is not None
        kind = self.aggregated.kind
        if self.check is None and not of_output and (self.value is not None or kind != "error_rate"):
            raise ValueError("name the check, or give the value of an output, such as $.output.metadata.latency_ms")
        if self.check is not None and of_output:
            raise ValueError("a value of an output does not belong to a check: leave check out")
        if (self.at_least is not None or self.at_most is not None) and kind != "rate":
            raise ValueError("at_least and at_most are of aggregate: rate")
        if kind == "error_rate" and (self.value is not None or self.range is not None):
            raise ValueError("an error_rate counts results, and has neither value nor range")
        if kind == "quantile" and self.value is None:
            raise ValueError(f"{self.aggregate} is of numbers: give value, such as $.response.score")
        if self.aggregated.of_labels and (self.check is None or self.value is not None or self.range is not None):
            raise ValueError(f"{self.aggregate} is of the labels of a check: name it, without value and range")
        if self.check is None and kind == "worst":
            raise ValueError("worst is the least score of a check; of outputs take a percentile, such as p99")
        return self

    @property
    def aggregated(self) -> Aggregate:
        """The aggregate, parsed."""
        return parse_aggregate(self.aggregate)


NonNegative = Annotated[FiniteFloat, Field(ge=0)]


MAY_CHANGE = 0.02
"""Six of 300 test cases: a team that mends a few of them needs no new baseline, and they hide no more than a usual
margin."""


class RegressionGate(Section):
    """Limits on how much worse than a baseline metrics may be, over the test cases that both have."""

    margin: NonNegative | dict[str, NonNegative] = Field(
        description="How much worse is still accepted, for all shares that passed or by metric."
    )
    baseline: Annotated[str, BeforeValidator(_baseline)] = Field(
        "main", description="The baseline's name; or previous, or a run's id or its beginning."
    )
    changed: Annotated[float, Field(ge=0, le=1)] = Field(
        MAY_CHANGE,
        description="Largest share of the baseline's test cases that may have been edited or removed since: above it, "
        "they count as if they had become worse.",
    )


class TopUp(Section):
    """Further results while the verdict is open, up to one of the two limits."""

    max_repeats: Annotated[int, Field(ge=2, le=1000)] | None = Field(
        None, description="Repeats of each case at most: one more at a time. The verdict is about these cases."
    )
    max_cases: Annotated[int, Field(ge=2)] | None = Field(
        None,
        description="Test cases at most, in random order, some more at a time. The verdict is about all such cases.",
    )

    looks: Annotated[int, Field(ge=2, le=10)] | None = Field(
        None,
        description="With max_cases: so many looks, at equal parts of the cases, instead of many small steps.",
    )

    @model_validator(mode="after")
    def _one_limit(self) -> TopUp:
        if (self.max_repeats is None) is (self.max_cases is None):
            raise ValueError("give max_repeats or max_cases")
        if self.looks is not None and self.max_cases is None:
            raise ValueError("looks are those of max_cases: each repeat is looked at")
        return self


JudgeValue = Literal["raw", "corrected"]
"""The value of a judge's metric that decides: what the judge said, or what is right by its measured errors."""


class Gate(Section):
    """Conditions for a pass."""

    max_impact: Impact | None = Field(None, description="Worst EvalGuard impact that still passes.")
    min: dict[str, float] = Field({}, description="Smallest value that still passes, by metric.")
    max: dict[str, float] = Field({}, description="Largest value that still passes, by metric.")
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = Field(0.95, description="Confidence of the intervals.")
    verdict: Literal["interval", "point"] = Field("interval", description="Judge by interval, or by value alone.")
    checks: Literal["all"] | None = Field(None, description="all: every check must pass as well.")
    fail: Literal["interval", "value"] = Field(
        "interval", description="Whether a metric fails by its whole interval, or already by its value."
    )
    inconclusive: Literal["block", "allow"] = Field(
        "block", description="Whether an inconclusive run has the exit code 4, or 0."
    )
    interval: Literal["wilson", "clopper-pearson"] | None = Field(
        None, description="Kind of the intervals; default: Wilson's, or the exact one for few cases and small shares."
    )
    regression: RegressionGate | None = Field(None, description="No metric may be worse than in a baseline.")
    judge: JudgeValue | None = Field(
        None,
        description="raw: the judges' own verdicts count. corrected: only values corrected for the judges' measured "
        "errors count, and there is no pass without them. Default: corrected once people's labels show the errors.",
    )
    top_up: TopUp | None = Field(None, description="Adds results while the verdict is open.")
    looks: Literal["pooled"] | None = Field(
        None, description="pooled: all runs of one version of the target are judged together."
    )
    sides: Literal["one", "two"] = Field(
        "two", description="one: a one-sided pass, which needs fewer cases and is wrong up to twice as often."
    )
    missing: Literal["worst", "random"] = Field(
        "worst", description="random: leave out missing results; you state that they are a random sample of all."
    )

    @property
    def pass_confidence(self) -> float:
        """The confidence of the two-sided intervals for a pass; a fail uses `confidence`."""
        return self.confidence if self.sides == "two" else round(2 * self.confidence - 1, 12)


class Slices(Section):
    """Metrics of parts of the test cases, for example of each topic."""

    by: Annotated[str, Field(min_length=1)] = Field(description="Field of the test cases' metadata.")
    min: float | dict[str, float] | None = Field(
        None, description="Smallest value that passes in each slice, for all shares that passed or by metric."
    )
    small: Literal["judge", "ignore"] = Field(
        "judge",
        description="ignore: slices with too few test cases to show their minimum are left out unless they fail.",
    )


class ModelDefaults(Section):
    """Defaults of all checks that call a model of one kind."""

    llm_config: dict[str, Any] = Field({}, alias="model_config", description="Model and its parameters, as in checks.")
    provider_config: dict[str, Any] = Field({}, description="Address and access of the model, as in checks.")
    concurrency: Annotated[int, Field(ge=1, le=1000)] = Field(
        16, description="Requests at once for each provider, address and key."
    )


COMPLETED = Check(
    id="completed",
    type="exact_match",
    arguments={"actual": "$.output.metadata.completed", "expected": "$.output.metadata.steps"},
)
"""The check of every suite with an ecp target, and of every conversation: one that broke off passes for none, whatever
the others read."""


ANSWERED = Check(
    id="answered",
    type="exact_match",
    arguments={"actual": "$.output.metadata.outcome", "expected": "$.output.metadata.expected_outcome"},
)
"""The check of every suite with an mcp target: no tool answered with an error, unless its case expects one."""

OWN_CHECKS = {"ecp": COMPLETED, "mcp": ANSWERED}
"""The checks of fepflow's own, by the kind of target whose suites have them, after the suite's."""


class JudgeDefaults(ModelDefaults):
    """The suite's judge: defaults of all checks that ask a model (`llm_judge`, `rubric`, `faithfulness`, …)."""

    samples: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Number of requests for each output, as in checks."
    )
    judges: Annotated[list[str | dict[str, Any]], Field(min_length=2)] | None = Field(
        None, description="A jury of models, as in checks."
    )
    jury: Literal["majority", "mean"] | None = Field(None, description="How the jury decides, as in checks.")


class Budget(Section):
    """Limits on the cost of a run's answers.

    They cover the target's answers, as far as these report `tokens` and `usd` in their metadata, and the models of
    checks.
    """

    tokens: Annotated[int, Field(gt=0)] | None = Field(None, description="Maximum number of tokens.")
    usd: Annotated[float, Field(gt=0)] | None = Field(None, description="Maximum cost in US dollars.")

    @property
    def limits(self) -> dict[str, float]:
        """The limits, by their names in an output's metadata."""
        return {name: limit for name in ("tokens", "usd") if (limit := getattr(self, name)) is not None}


class Suite(Section):
    """A suite of test cases against one target."""

    name: Annotated[str, Field(min_length=1, max_length=200, description="Name of the suite and of its flow runs.")]
    description: str | None = Field(None, description="Text for readers.")
    task: str | None = Field(None, description="EvalGuard task id, used to look up thresholds.")
    target: Target
    variants: dict[str, Annotated[list[Any], Field(min_length=1)]] | None = Field(
        None,
        description="Values by name, for ${variant.NAME} in target; fepflow runs each combination and compares all.",
    )
    variant: SkipJsonSchema[dict[str, Any] | None] = None
    """The combination that a run is of; a suite file cannot have it."""
    test_cases: str | Dataset | list[TestCase] = Field(
        description="Test cases: a file or an address, with its mapping if needed, or the cases themselves."
    )
    repeats: Annotated[int, Field(ge=1, le=1000)] = Field(1, description="Number of calls and checks of each case.")
    checks: list[Check] = Field([], description="Checks of every case; a case may have its own.")
    judge: JudgeDefaults | None = Field(None, description="Model for judges that name no model.")
    embedding: ModelDefaults | None = Field(
        None, description="Model for semantic_similarity checks that name no model."
    )
    user: ModelDefaults | None = Field(None, description="Model that plays simulated users.")
    metrics: list[Metric] | None = Field(
        None, description="Metrics; default: for each check the share that passed, or the mean of its score."
    )
    thresholds: str | dict[str, Any] | None = Field(
        None, description="EvalGuard thresholds: a file, a folder, or inline."
    )
    cluster: Annotated[JSONPathText, BeforeValidator(_of_case)] | None = Field(
        None,
        description="What several test cases share, for example $.test_case.metadata.document; intervals count these "
        "instead of cases.",
    )
    slices: Slices | None = Field(None, description="Metrics for each value of a field of the test cases' metadata.")
    gate: Gate | None = Field(
        None, description="Conditions for a pass; default: every check passes; with thresholds, max_impact low."
    )
    deadline: Duration | None = Field(None, description="Deadline of the run; no call starts after it.")
    budget: Budget | None = Field(
        None, description="Maximum cost of a run's answers; no call starts after it is spent."
    )
    baseline: Annotated[str, BeforeValidator(_baseline)] | None = Field(
        None,
        description="Run to show beside this one: previous, a baseline's name, or a run's id.",
    )
    cache: bool = Field(
        True, description="Whether stored answers of models are reused; false asks again, and replaces them."
    )
    shards: Annotated[int, Field(ge=1, le=100)] = Field(
        1, description="Number of parts of a run, which workers execute on any machine."
    )
    plugins: list[str] = Field([], description="Python files with custom checks.")
    tags: list[str] = Field([], description="Tags of the run.")
    batch_size: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="Calls in a batch; default: 1 for up to 25 calls, otherwise a size that makes about 12 batches.",
    )

    @property
    def top_up(self) -> TopUp | None:
        """The gate's rule for topping a run up, if it has one."""
        return self.gate.top_up if self.gate else None


def check_ids(checks: Sequence[Check], taken: Sequence[str] = ()) -> list[str]:
    """Return the id of each check: its own, else its type, else the type with a number (`contains-2`)."""
    used = {*taken, *(check.id for check in checks if check.id)}
    numbers: Counter[str] = Counter()
    ids = []
    for check in checks:
        usual = id_of_type(check.type)
        name = check.id or usual
        while not check.id and name in used:
            numbers[usual] += 1
            name = f"{usual}-{numbers[usual] + 1}"
        used.add(name)
        ids.append(name)
    return ids


def suite_schema() -> dict[str, Any]:
    """Return the JSON Schema of suite files."""
    schema = TypeAdapter(Suite).json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "fepflow suite", **schema}
