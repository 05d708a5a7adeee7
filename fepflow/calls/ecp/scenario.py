"""A test case as a scenario of steps, and what becomes of it as an output."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fepflow.calls.base import TargetResponse
from fepflow.calls.ecp.protocol import COSTS, AgentInfo, Step, is_number
from fepflow.errors import TargetError


def scenario_problem(case_input: Any) -> str | None:
    """Why the input of a test case is no scenario; None if it is one."""
    if isinstance(case_input, str):
        return None
    if not isinstance(case_input, list) or not case_input:
        return "the input of an ecp test case is a text, or a list of steps"
    for number, step in enumerate(case_input, 1):
        if not isinstance(step, str) and not (isinstance(step, dict) and isinstance(step.get("input"), str)):
            return f"step {number} is neither a text nor an object with a text as input"
    return None


def steps_of(case_input: Any) -> list[str]:
    """The input of each step; raises TargetError `request`."""
    if problem := scenario_problem(case_input):
        raise TargetError(problem, kind="request", retryable=False)
    if isinstance(case_input, str):
        return [case_input]
    return [step if isinstance(step, str) else step["input"] for step in case_input]


def scenario_response(
    agent: AgentInfo | None, count: int, steps: list[Step], log_tail: dict[str, str]
) -> TargetResponse:
    """What is known of a scenario of `count` steps, of which `steps` are answered."""
    metadata: dict[str, Any] = {"steps": count}
    if len(steps) == count:
        metadata["completed"] = count
    if agent is not None:
        metadata["agent"] = agent.name
        metadata["protocol_version"] = agent.version
    metadata |= _usage_of(steps)
    if any(step["logs"] for step in steps):
        metadata["logs"] = [step["logs"] for step in steps]
    if log_tail:
        metadata["log_tail"] = log_tail
    shown = [{name: value for name, value in step.items() if name != "logs"} for step in steps]
    return TargetResponse({"steps": shown} if shown else None, metadata)


def _usage_of(steps: Iterable[Step]) -> dict[str, Any]:
    """The sums over the steps that say what they used: all numbers as `usage`, and what budgets count by its names."""
    usage: dict[str, Any] = {}
    tokens: dict[str, Any] = {}
    for step in steps:
        told = {name: value for name, value in (step["usage"] or {}).items() if is_number(value)}
        for name, value in told.items():
            usage[name] = usage.get(name, 0) + value
        parts = [told[name] for name in ("input_tokens", "output_tokens") if name in told]
        if "total_tokens" in told or parts:
            tokens["tokens"] = tokens.get("tokens", 0) + told.get("total_tokens", sum(parts))
    cost = next(({"usd": usage[name]} for name in COSTS if name in usage), {})
    return {"usage": usage, **tokens, **cost} if usage else {}
