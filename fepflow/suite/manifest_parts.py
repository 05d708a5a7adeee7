"""The parts of an ECP manifest, of 0.2.3 and of v1, read field by field, so that all errors are found at once.

`fepflow.suite.manifest` makes a suite of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from fepflow.documents.loader import Document
from fepflow.documents.messages import did_you_mean, validation_messages
from fepflow.errors import DocumentPath, Problem
from fepflow.suite.values import Duration, Section
from fepflow.text import brief

STRICT = "v1"
"""The version of manifests whose unknown keys are errors."""

Text = Annotated[str, Field(min_length=1)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class Manifest(Section):
    """The whole document. `shell`, `env`, `timeout` and `attempts` are fepflow's own."""

    manifest_version: str | float | None = None
    name: Annotated[str, Field(min_length=1, max_length=200)]
    target: Text
    require_capabilities: bool | list[Text] = False
    scenarios: list[Any]
    shell: bool = False
    env: list[Variable] = Field([])
    timeout: Duration = 30.0
    attempts: Annotated[int, Field(ge=1, le=20)] | None = None


class Scenario(Section):
    """One conversation with the agent, which becomes a test case."""

    name: Text
    steps: list[Any] = Field([])
    dataset: Any = None


class Dataset(Section):
    """Steps from a file, one a row."""

    type: Literal["csv", "jsonl"]
    source: Text
    input_column: Text = "input"
    output_column: Text = "output"


class Step(Section):
    """One input for the agent, and what must hold of its answer."""

    input: str
    constraints: dict[str, Any] = Field({})
    graders: list[Any] = Field([])


class Grader(Section):
    """A requirement on an answer; which fields it needs depends on its type."""

    type: Literal["text_match", "llm_judge", "tool_usage"]
    field: Literal["public_output", "evaluation_context", "private_thought"] = "public_output"
    condition: Literal["contains", "equals", "does_not_contain", "regex"] | None = None
    value: str | None = None
    pattern: str | None = None
    prompt: str | None = None
    assertion: str | None = None
    tool_name: str | None = None
    arguments: dict[str, Any] = Field({})


@dataclass
class PartsReader:
    """A reader of parts of a manifest, which collects their errors.

    Unknown keys are errors, or warnings where the manifest is read leniently.
    """

    document: Document
    is_lenient: bool
    problems: list[Problem] = field(default_factory=list)

    def error(self, path: DocumentPath, message: str, advice: str | None = None, *, is_confined: bool = False) -> None:
        """Add an error. If it `is_confined`, the manifest runs without the part that it concerns."""
        self.problems.append(replace(self.document.problem(path, message, advice), is_confined=is_confined))

    def warn(self, path: DocumentPath, message: str, advice: str | None = None) -> None:
        """Add a warning."""
        self.problems.append(replace(self.document.problem(path, message, advice), severity="warning"))

    def fields(
        self, part: type[Section], value: Any, path: DocumentPath, *, is_confined: bool = False
    ) -> dict[str, Any]:
        """Return the valid fields of a part at `path`, by name, with the defaults of missing ones.

        Errors are confined to the part if it `is_confined`, except unknown keys, which may be misspelt anywhere.
        """
        if not isinstance(value, dict):
            self.error(path, "must be a mapping", is_confined=is_confined)
            return {}
        known = list(part.model_fields)
        note = self.warn if self.is_lenient else self.error
        for name in value:
            if name not in known:
                note((*path, name), f"{brief(name, 60)} is not known here", did_you_mean(name, known))
        valid: dict[str, Any] = {}
        for name, info in part.model_fields.items():
            if name in value:
                try:
                    valid[name] = _adapter(part, name).validate_python(value[name], strict=True)
                except ValidationError as error:
                    for item in validation_messages(value[name], error):
                        self.error((*path, name, *item.path), item.message, item.advice, is_confined=is_confined)
            elif info.is_required():
                self.error(path, f"{name} is missing", "add it", is_confined=is_confined)
            else:
                valid[name] = info.get_default(call_default_factory=True)
        return valid


@cache
def _adapter(part: type[Section], name: str) -> TypeAdapter[Any]:
    return TypeAdapter(part.model_fields[name].rebuild_annotation())
