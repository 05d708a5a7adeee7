"""Test cases, outputs, and the evaluation context that checks see (FEP 2.1, 2.2, 2.3.1)."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, model_validator

from fepflow.protocol.check import Check, Checks
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.model import FepModel, construct_fast, defaults_of


class TestCase(FepModel):
    """A test case (FEP 2.1). Any JSON value may be `input` and `expected`.

    Without an `id` it gets one from its content, so the same case has the same id everywhere.
    `checks` are its own, on top of the shared ones (FEP 2.3.3, pattern 2).
    """

    __test__ = False  # pytest would take the name for a class of tests
    model_config = ConfigDict(json_schema_extra={"required": ["input"]})

    # The default is for type checkers only: a case without an id has got one before it is validated.
    id: Annotated[str, Field(min_length=1, json_schema_extra=lambda schema: schema.pop("default", None))] = ""
    input: Any
    expected: Any = None
    metadata: dict[str, Any] | None = None
    checks: Checks | None = None

    @classmethod
    def trusted(cls, data: dict[str, Any]) -> Self:
        """Build a case from what a valid one was dumped as, without validating it again."""
        checks = data.get("checks")
        given = data if checks is None else {**data, "checks": [Check.trusted(check) for check in checks]}
        return construct_fast(cls, {**defaults_of(cls), **given}, set(data))

    @model_validator(mode="before")
    @classmethod
    def _id_from_content(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("id") is None and "input" in data:
            content = {key: data.get(key) for key in ("input", "expected", "metadata")}
            return {**data, "id": "case-" + content_hash(content)[:12]}
        return data


class Output(FepModel):
    """What the system under test gave for one test case (FEP 2.2). Any JSON value may be `value`.

    A target that failed is an output with `value: null` and the cause in `metadata.error`; one that failed at a later
    step has the steps before it as value, `{steps: [...]}`, and `metadata.error.partial` is true.
    """

    value: Any
    id: str | None = None
    metadata: dict[str, Any] | None = None

    @property
    def failure(self) -> dict[str, Any] | None:
        """The cause, `{type, message, ...}`, if this output stands for a call that failed."""
        error = (self.metadata or {}).get("error")
        if not isinstance(error, dict) or "message" not in error:
            return None
        return error if self.value is None or error.get("partial") is True else None

    @property
    def is_partial(self) -> bool:
        """True if this output is what there was before the call failed."""
        return self.value is not None and self.failure is not None


Context = dict[str, Any]


def evaluation_context(case: TestCase, output: Output) -> Context:
    """Build the context of one output. An `expected` that was not given is not there: a path to it is an error."""
    test_case = {"id": case.id, "input": case.input, "metadata": case.metadata or {}}
    if "expected" in case.model_fields_set:
        test_case["expected"] = case.expected
    metadata = output.metadata or {}
    seen = {"value": output.value, "metadata": metadata}
    if "trace" in metadata:
        seen["trace"] = metadata["trace"]
    return {"test_case": test_case, "output": seen}
