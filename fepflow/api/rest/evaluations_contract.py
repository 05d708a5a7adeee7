"""What the document of the API says of the evaluations contract: its bodies, its parameters, its statuses."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from fepflow.api.evaluations.results import STATUSES, Status
from fepflow.protocol.check import SEMVER

T = TypeVar("T")

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
_CODES: dict[int, Code] = {
    401: "UNAUTHENTICATED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    409: "CONFLICT",
    413: "TOO_LARGE",
    429: "RATE_LIMITED",
    503: "UNAVAILABLE",
}

LINES = ("application/x-ndjson", "application/jsonl", "application/jsonlines", "application/x-jsonlines")
"""Content types of JSON lines."""


def code_of(status: int) -> Code:
    """The code of an error that says none itself."""
    return _CODES.get(status, "INVALID_REQUEST" if status < 500 else "INTERNAL_ERROR")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Envelope(_Model, Generic[T]):
    """What a request came to."""

    success: Literal[True]
    data: T
    error: None


class EnvelopeError(_Model):
    """What was wrong."""

    code: Code
    message: str


class ErrorEnvelope(_Model):
    """A request that came to nothing."""

    success: Literal[False]
    data: None
    error: EnvelopeError


class Evaluation(_Model):
    """An evaluation, and how far it is."""

    id: str = Field(json_schema_extra={"format": "uuid"})
    test_case_ids: list[str]
    agent_endpoint_url: str
    grader_ids: list[str]
    status: Status
    started_at: str = Field(json_schema_extra={"format": "date-time"})
    completed_at: str | None
    result_count: int = Field(ge=0)
    error_message: str | None = Field(description="Why it failed.")


class _Page(_Model):
    count: int = Field(ge=0, description="How many of them are here.")
    total: int = Field(ge=0)


class Evaluations(_Page):
    """Evaluations, the newest first."""

    evaluations: list[Evaluation]


class Score(_Model):
    """What a grader says of a response."""

    grader_id: str
    grader_name: str
    score_value: float | None
    score_status: Literal["pass", "fail", "error"]
    error_message: str | None


class Result(_Model):
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


class Summary(_Model):
    """Of all results that there are."""

    total_results: int = Field(ge=0)
    successful_responses: int = Field(ge=0)
    failed_responses: int = Field(ge=0)
    grader_pass_counts: dict[str, int]
    grader_fail_counts: dict[str, int]
    average_latency_ms: float | None


class Results(_Model):
    """The results of an evaluation that there are by now."""

    evaluation_id: str
    results: list[Result]
    summary: Summary


class StoredTestCase(_Model):
    """A stored test case."""

    id: str
    input: Any
    expected: Any
    metadata: dict[str, Any] | None


class AddedTestCases(_Model):
    """Test cases that were stored by one request."""

    test_cases: list[StoredTestCase]
    count: int


class TestCases(_Page):
    """Stored test cases, the oldest first."""

    test_cases: list[StoredTestCase]


class StoredGrader(_Model):
    """A named list of checks, all of which must pass."""

    id: str
    name: str
    checks: list[dict[str, Any]]
    built_in: bool


class Graders(_Page):
    """Graders: those built in, then the stored ones, the oldest first."""

    graders: list[StoredGrader]


class Deleted(_Model):
    """What was deleted."""

    id: str
    deleted: Literal[True]


def page_parameters(default: int, most: int) -> list[dict[str, Any]]:
    """Those of a list. More than there may be is as many as there may be."""
    limit = {"type": "integer", "minimum": 1, "default": default}
    skip = {"type": "integer", "minimum": 0, "default": 0}
    return [
        {"name": "limit", "in": "query", "schema": limit, "description": f"How many are wanted; at most {most} come."},
        {"name": "skip", "in": "query", "schema": skip, "description": "After how many."},
    ]


STATUS_PARAMETER = {"name": "status", "in": "query", "schema": {"type": "string", "enum": list(STATUSES)}}
ID_PARAMETER = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
KEY_PARAMETER = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same request again under the same key gives the evaluation that there is.",
    "schema": {"type": "string", "pattern": "^[!-~]{1,200}$"},
}

_IDS = {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}}
EVALUATION_BODY = {
    "type": "object",
    "required": ["test_case_ids", "agent_endpoint_url", "grader_ids"],
    "properties": {
        "test_case_ids": _IDS,
        "agent_endpoint_url": {"type": "string", "format": "uri", "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://"},
        "grader_ids": _IDS,
    },
}
TEST_CASE_BODY = {
    "type": "object",
    "required": ["input"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": ["string", "null"], "pattern": "^[A-Za-z0-9._:@-]{1,200}$"},
        "input": {},
        "expected": {},
        "metadata": {"type": ["object", "null"]},
    },
}
_SEVERAL = {"type": "array", "minItems": 1, "items": TEST_CASE_BODY}
_LISTED = {
    "type": "object",
    "required": ["test_cases"],
    "properties": {"test_cases": _SEVERAL},
}
TEST_CASES_BODY = {"anyOf": [TEST_CASE_BODY, _SEVERAL, _LISTED]}
GRADER_BODY = {
    "type": "object",
    "required": ["name", "checks"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": ["string", "null"], "pattern": "^[A-Za-z0-9]([A-Za-z0-9_-]{0,62}[A-Za-z0-9])?$"},
        "name": {"type": "string", "minLength": 1, "maxLength": 200},
        "checks": {
            "type": "array",
            "minItems": 1,
            "maxItems": 20,
            "items": {
                "type": "object",
                "required": ["type", "arguments"],
                "properties": {
                    "type": {"type": "string", "minLength": 1},
                    "arguments": {"type": "object"},
                    "version": {"type": ["string", "null"], "pattern": SEMVER},
                },
            },
        },
    },
}


def links(source: str, *operations: str) -> dict[str, Any]:
    """What can be asked of what was just created, whose id is there."""
    return {each: {"operationId": each, "parameters": {"id": f"$response.body#{source}"}} for each in operations}
