"""What conformance is, check by check, and what came out for one agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Status = Literal["pass", "fail", "skip"]

CHECKS: Mapping[str, str] = {
    "initialize": "agent/initialize gives name and capabilities",
    "version": "a version is agreed on, and one that does not exist refused",
    "step": "agent/step gives status, texts or null, and nothing else in their place",
    "tool_calls": "tool calls are objects with name and arguments",
    "usage": "usage is an object of counts",
    "two_steps": "a second step is answered in the same process",
    "unknown_params": "params that it does not know do not matter",
    "unicode": "texts of any language come through",
    "long_input": "an input of 300 kB is answered",
    "reset": "agent/reset gives true",
    "reset_effect": "after a reset the agent answers as after a start",
    "unknown_method": "a method that there is not gives the error -32601",
    "malformed_json": "a line that is no JSON does not end it",
    "notification": "a request without id is not answered",
    "ids": "answers have the ids of their requests, with their types",
    "json_rpc": "answers are objects of JSON-RPC 2.0",
    "only_answers": "nothing else is where the answers are: one for each request, no prints",
    "fresh_process": "another process can be started, and answers",
    "end_of_input": "the process ends by itself when its stdin is closed",
}
"""What is looked at, by name."""


@dataclass(frozen=True, slots=True)
class ConformanceCheck:
    """What came out of one check; skip: it cannot be told, or has no meaning here."""

    name: str
    status: Status
    message: str = ""


@dataclass
class ConformanceReport:
    """What came out of all checks, and what the agent says of itself."""

    agent: str = ""
    protocol_version: str | None = None
    capabilities: list[str] = field(default_factory=list)
    checks: list[ConformanceCheck] = field(default_factory=list)

    @property
    def is_conformant(self) -> bool:
        """Whether no check failed."""
        return all(check.status != "fail" for check in self.checks)
