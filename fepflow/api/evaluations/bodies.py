"""The bodies of the evaluations contract: requests and answers."""

from __future__ import annotations

import re
from typing import Annotated, Any, Generic, Literal, LiteralString, Self, TypeVar, get_args
from uuid import uuid4

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from fepflow.api.evaluations.requests import parse_body
from fepflow.checks.core.compiled import CompiledCheck
from fepflow.checks.core.declarations import left_to_defaults
from fepflow.checks.registry import CheckType
from fepflow.documents.messages import validation_messages
from fepflow.errors import InputError, InvalidRequestError, Problem, TooLargeError, dotted
from fepflow.json.values import parse
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import TestCase
from fepflow.text import brief, printable

T = TypeVar("T")
B = TypeVar("B", bound=BaseModel)

Code = Literal[
    "MISSING_FIELD",
    "INVALID_TEST_CASE_ID",
    "INVALID_GRADER_ID",
    "INVALID_URL",
    "INVALID_REQUEST",
    "UNAUTHENTICATED",
    "FORBIDDEN",
    "NOT_FOUND",
    "METHOD_NOT_ALLOWED",
    "CONFLICT",
    "TOO_LARGE",
    "RATE_LIMITED",
    "INTERNAL_ERROR",
    "UNAVAILABLE",
]
"""Codes of errors. A validator below that raises one as the type of its error says which code a request gets."""

Status = Literal["pending", "running", "completed", "failed"]

MAX_CASES = 5_000
"""Test cases of one request: to be stored, or to be evaluated."""
MAX_GRADERS = 20
"""Graders of one evaluation."""
MAX_CHECKS = 20
"""Checks of one grader."""
MAX_KEY = 200
"""Characters of an idempotency key."""

CASE_ID = r"^[A-Za-z0-9._:@-]{1,200}$"
GRADER_ID = r"^(?!.*--)[A-Za-z0-9]([A-Za-z0-9_-]{0,62}[A-Za-z0-9])?$"
"""Pattern of a grader's id. It holds no `--`, which stands between it and the number of a check in the checks' ids."""

LINES = ("application/x-ndjson", "application/jsonl", "application/jsonlines", "application/x-jsonlines")
"""Content types of JSON lines."""


class Body(BaseModel):
    """A body without unknown fields."""

    model_config = ConfigDict(extra="forbid")


def _invalid(message: LiteralString) -> PydanticCustomError:
    return PydanticCustomError("INVALID_REQUEST", message)


def _require_some(items: Any, most: int, none: LiteralString, too_many: LiteralString) -> None:
    if not isinstance(items, list) or not items:
        raise _invalid(none)
    if len(items) > most:
        raise PydanticCustomError("TOO_LARGE", too_many, {"most": f"{most:,}", "count": f"{len(items):,}"})


def _matching(pattern: str, message: LiteralString) -> BeforeValidator:
    def require(text: Any) -> Any:
        if not isinstance(text, str) or not re.fullmatch(pattern.removesuffix("$"), text):
            raise _invalid(message)
        return text

    return BeforeValidator(require)


def _unique(name: LiteralString, code: LiteralString, most: int) -> PlainValidator:
    """Return a validator of lists of ids, which drops duplicates."""

    def unique(ids: Any) -> list[str]:
        if not isinstance(ids, list) or not all(isinstance(item, str) and item for item in ids):
            raise PydanticCustomError(code, f"{name} must be an array of ids, each a text")
        unique_ids = list(dict.fromkeys(ids))
        if len(unique_ids) > most:
            text = f"{name}: an evaluation has at most {most:,}, and here are {len(unique_ids):,}"
            raise PydanticCustomError("TOO_LARGE", "{text}", {"text": text})
        return unique_ids

    items = Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]
    return PlainValidator(unique, json_schema_input_type=items)


def _name(text: Any) -> str:
    if not isinstance(text, str) or not 0 < len(text) <= 200:
        raise _invalid("a text of 1 to 200 characters")
    return text


CaseId = Annotated[
    str, _matching(CASE_ID, "up to 200 letters, digits and . _ : @ -"), Field(json_schema_extra={"pattern": CASE_ID})
]
GraderId = Annotated[
    str,
    _matching(GRADER_ID, "up to 64 letters, digits, _ and single -, and a letter or digit at both ends"),
    Field(json_schema_extra={"pattern": GRADER_ID}),
]
GraderName = Annotated[
    str, PlainValidator(_name, json_schema_input_type=Annotated[str, Field(min_length=1, max_length=200)])
]
TestCaseIds = Annotated[list[str], _unique("test_case_ids", "INVALID_TEST_CASE_ID", MAX_CASES)]
GraderIds = Annotated[list[str], _unique("grader_ids", "INVALID_GRADER_ID", MAX_GRADERS)]


class NewEvaluation(Body):
    """A request to evaluate an agent: test cases, the agent's address, and graders."""

    model_config = ConfigDict(extra="ignore")

    test_case_ids: TestCaseIds
    agent_endpoint_url: Annotated[
        Any, WithJsonSchema({"type": "string", "format": "uri", "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://"})
    ] = Field(description="Validated last, with the addresses that the operator allows.")
    grader_ids: GraderIds

    @model_validator(mode="before")
    @classmethod
    def _require_fields(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            raise _invalid("the body must be an object with test_case_ids, agent_endpoint_url, grader_ids")
        for name in cls.model_fields:
            if data.get(name) in (None, [], ""):
                raise PydanticCustomError("MISSING_FIELD", "{name} is required", {"name": name})
        return data


class NewTestCase(Body):
    """A test case to store. Graders, not test cases, have checks here."""

    id: CaseId | None = None
    input: Any
    expected: Any = None
    metadata: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_checks(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            raise _invalid("a test case is an object {id, input, expected, metadata}")
        if "input" in data and "checks" in data:
            raise _invalid("a test case has no checks here: graders have them")
        return data

    def test_case(self) -> TestCase:
        """Return it in FEP's form; without an id it gets one."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return TestCase.model_validate({**given, "id": self.id or str(uuid4())})


class NewTestCases(Body):
    """Test cases to store, all or none."""

    model_config = ConfigDict(extra="ignore")

    test_cases: Annotated[list[NewTestCase], Field(min_length=1)]

    @model_validator(mode="before")
    @classmethod
    def _require_few(cls, data: Any) -> Any:
        too_many: LiteralString = "a request stores at most {most} test cases, and here are {count}"
        _require_some(data["test_cases"], MAX_CASES, "test_cases: a list of one test case or more", too_many)
        return data

    @model_validator(mode="after")
    def _require_unique_ids(self) -> Self:
        first: dict[str, int] = {}
        for index, case in enumerate(self.test_cases):
            if case.id is not None and (before := first.setdefault(case.id, index)) != index:
                text = "test_cases[{index}]: the id {id} is that of test_cases[{before}] too"
                raise PydanticCustomError("INVALID_REQUEST", text, {"index": index, "id": case.id, "before": before})
        return self


def _require_use(check: Check) -> Check:
    """Raise an error for a check that does not run, gives no yes or no, or is not allowed over the network."""
    if check.type == CheckType.CUSTOM_FUNCTION:
        raise _invalid("custom_function runs code, which no request may bring")
    compiled = CompiledCheck(check, "check", left_to_defaults(check))
    if compiled.error is not None:
        raise PydanticCustomError("INVALID_REQUEST", "{error}", {"error": str(compiled.error)})
    if check.type == CheckType.SEMANTIC_SIMILARITY and check.arguments.get("threshold") is None:
        raise _invalid("semantic_similarity gives a number: give the threshold from which on it passes")
    if check.type == CheckType.LLM_JUDGE and not _says_passed(check.arguments.get("response_format")):
        raise _invalid("llm_judge gives no yes or no: give response_format a boolean `passed`, and require it")
    return check


def _says_passed(response_format: Any) -> bool:
    if not isinstance(response_format, dict):
        return False
    properties, required = response_format.get("properties"), response_format.get("required")
    passed = properties.get("passed") if isinstance(properties, dict) else None
    is_boolean = isinstance(passed, dict) and passed.get("type") == "boolean"
    return is_boolean and isinstance(required, list) and "passed" in required


class NewGrader(Body):
    """A grader to store: a named list of checks, all of which must pass. Reading one may take long."""

    id: GraderId | None = None
    name: GraderName
    checks: Annotated[list[Annotated[Check, AfterValidator(_require_use)]], Field(min_length=1, max_length=MAX_CHECKS)]

    @model_validator(mode="before")
    @classmethod
    def _require_few(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            raise _invalid("a grader is an object {id, name, checks}")
        for name in ("name", "checks"):
            if data.get(name) is None:
                text = "{name} is missing: a grader is {id, name, checks}"
                raise PydanticCustomError("MISSING_FIELD", text, {"name": name})
        none: LiteralString = "checks: a list of one check or more, each {type, arguments}"
        too_many: LiteralString = "checks: a grader has at most {most}, and here are {count}"
        _require_some(data["checks"], MAX_CHECKS, none, too_many)
        return data


def read_evaluation(data: bytes) -> NewEvaluation:
    """Return the evaluation that a body requests. Raises InputError, InvalidRequestError, TooLargeError."""
    return validated(NewEvaluation, parse_body(data))


def read_grader(data: bytes) -> NewGrader:
    """Return the grader in a body. Raises as `read_evaluation` does."""
    return validated(NewGrader, parse_body(data))


def read_cases(data: bytes) -> NewTestCase | NewTestCases:
    """Return the test cases in a body: one, a list, or `{test_cases}`. Raises as `read_evaluation` does."""
    value = parse_body(data)
    if isinstance(value, dict) and "test_cases" not in value:
        return validated(NewTestCase, value)
    return validated(NewTestCases, value if isinstance(value, dict) else {"test_cases": value})


def read_lines(data: bytes) -> NewTestCases:
    """Return the test cases of JSON lines; empty lines are left out. Raises as `read_evaluation` does."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(Problem("the body is not UTF-8")) from None
    cases = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                cases.append(parse(line))
            except ValueError as error:
                message = f"line {number}: is not valid JSON: {error}"
                raise InvalidRequestError("INVALID_REQUEST", shown(message)) from None
    return validated(NewTestCases, {"test_cases": cases})


def validated(model: type[B], value: Any) -> B:
    """Return a value as a model. Raises InvalidRequestError or TooLargeError for the first mistake.

    Missing fields come first.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False, include_context=False)
        first = next((item for item in errors if item["type"] == "missing" and item["loc"][0] != "checks"), errors[0])
        code, path, message = first["type"], dotted(first["loc"]), first["msg"]
        if code == "missing" and first["loc"][0] != "checks":
            code, path, message = "MISSING_FIELD", dotted(first["loc"][:-1]), f"{first['loc'][-1]} is missing"
        elif code not in get_args(Code):
            (worded, *_) = validation_messages(value, error, model)
            code, path = "INVALID_REQUEST", dotted(worded.path)
            message = worded.message.replace("a mapping", "an object")
    text = shown(f"{path}: {message}" if path and code in ("INVALID_REQUEST", "MISSING_FIELD") else message)
    raise TooLargeError(text) if code == "TOO_LARGE" else InvalidRequestError(code, text)


def shown(text: str, most: int = 300) -> str:
    """Return a text in a form that a message may repeat."""
    return printable(brief(text, most))


class Envelope(Body, Generic[T]):
    """The answer to an accepted request."""

    success: Literal[True]
    data: T
    error: None


class EnvelopeError(Body):
    """An error: its code, and a sentence."""

    code: Code
    message: str


class ErrorEnvelope(Body):
    """The answer to a refused request."""

    success: Literal[False]
    data: None
    error: EnvelopeError


class Evaluation(Body):
    """An evaluation, and its progress."""

    id: str = Field(json_schema_extra={"format": "uuid"})
    test_case_ids: list[str]
    agent_endpoint_url: str
    grader_ids: list[str]
    status: Status
    started_at: str = Field(json_schema_extra={"format": "date-time"})
    completed_at: str | None
    result_count: int = Field(ge=0)
    error_message: str | None = Field(description="Why it failed.")


class _Page(Body):
    count: int = Field(ge=0, description="How many of them are here.")
    total: int = Field(ge=0)


class Evaluations(_Page):
    """Evaluations, the newest first."""

    evaluations: list[Evaluation]


class Score(Body):
    """The score that a grader gives a response."""

    grader_id: str
    grader_name: str
    score_value: float | None
    score_status: Literal["pass", "fail", "error"]
    error_message: str | None


class Result(Body):
    """A test case, the agent's response to it, and its scores."""

    result_id: str = Field(json_schema_extra={"format": "uuid"})
    test_case_id: str
    test_case_input: Any
    test_case_expected: Any
    agent_response: Any
    response_status: Literal["success", "error"]
    response_latency_ms: int | None = Field(ge=0)
    scores: list[Score]
    error_message: str | None = Field(None, description="Why there is no response; absent if there is one.")


class Summary(Body):
    """Counts over all results so far."""

    total_results: int = Field(ge=0)
    successful_responses: int = Field(ge=0)
    failed_responses: int = Field(ge=0)
    grader_pass_counts: dict[str, int]
    grader_fail_counts: dict[str, int]
    average_latency_ms: float | None


class Results(Body):
    """The results of an evaluation so far."""

    evaluation_id: str
    results: list[Result]
    summary: Summary


class StoredTestCase(Body):
    """A stored test case."""

    id: str
    input: Any
    expected: Any
    metadata: dict[str, Any] | None


class AddedTestCases(Body):
    """Test cases that were stored by one request."""

    test_cases: list[StoredTestCase]
    count: int


class TestCases(_Page):
    """Stored test cases, the oldest first."""

    __test__ = False

    test_cases: list[StoredTestCase]


class StoredGrader(Body):
    """A named list of checks, all of which must pass."""

    id: str
    name: str
    checks: list[dict[str, Any]]
    built_in: bool


class Graders(_Page):
    """Graders: those built in, then the stored ones, the oldest first."""

    graders: list[StoredGrader]


class Deleted(Body):
    """The id that was deleted."""

    id: str
    deleted: Literal[True]
