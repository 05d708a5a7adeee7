"""What an ECP manifest may hold, of 0.2.3 and of v1: the fields of each of its parts.

`fepflow.manifest.reader` makes a suite of it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from fepflow.suite.values import Duration, Section

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
    """What must hold of an answer; which fields it needs depends on its type."""

    type: Literal["text_match", "llm_judge", "tool_usage"]
    field: Literal["public_output", "evaluation_context", "private_thought"] = "public_output"
    condition: Literal["contains", "equals", "does_not_contain", "regex"] | None = None
    value: str | None = None
    pattern: str | None = None
    prompt: str | None = None
    assertion: str | None = None
    tool_name: str | None = None
    arguments: dict[str, Any] = Field({})
