"""Outputs of several steps: their form, which is ECP's, and their total usage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fepflow.calls.base import TargetResponse

COSTS = ("cost_usd", "usd")
"""Names that agents give the price of a step, in US dollars; ECP 1.0 has none."""

Step = dict[str, Any]
"""A step of an output: `status`, `public_output`, and `tool_calls` and `usage`, both null if the agent reports none.

ECP agents add `evaluation_context`, `private_thought` and `logs`; conversations add `latency_ms`, and the rest of the
answer's metadata as `metadata`."""


@dataclass(frozen=True, slots=True)
class StepResponse(TargetResponse):
    """The answer of a turn that already has the form of a step."""

    step: Step = field(default_factory=dict)


def step_of(response: TargetResponse, latency_ms: float) -> Step:
    """Return the answer of a turn as a step."""
    if isinstance(response, StepResponse):
        step = dict(response.step)
    else:
        rest = dict(response.metadata)
        step = {"status": "done", "public_output": response.value}
        step |= {name: rest.pop(name, None) for name in ("tool_calls", "usage")}
        step |= {"metadata": rest} if rest else {}
    return {**step, "latency_ms": latency_ms}


def is_number(value: Any) -> bool:
    """Return whether a JSON value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def usage_of(steps: Iterable[Step]) -> dict[str, Any]:
    """Return the sums over the steps that report their usage: all numbers as `usage`, and those that budgets count."""
    usage: dict[str, Any] = {}
    tokens: dict[str, Any] = {}
    for step in steps:
        reported = {name: value for name, value in _object(step.get("usage")).items() if is_number(value)}
        for name, value in reported.items():
            usage[name] = usage.get(name, 0) + value
        parts = [reported[name] for name in ("input_tokens", "output_tokens") if name in reported]
        if "total_tokens" in reported or parts:
            tokens["tokens"] = tokens.get("tokens", 0) + reported.get("total_tokens", sum(parts))
    cost = next(({"usd": usage[name]} for name in COSTS if name in usage), {})
    return {"usage": usage, **tokens, **cost} if usage else {}


def totals_of(steps: Sequence[Step]) -> dict[str, Any]:
    """Return the usage of all steps, including mapped `tokens` and `usd`, and all tool calls.

    Tool calls are included only if each step reports its own.
    """
    totals = usage_of(steps)
    for name in ("tokens", "usd"):
        numbers = [value for step in steps if is_number(value := _object(step.get("metadata")).get(name))]
        if numbers:
            totals[name] = sum(numbers)
    if steps and all(isinstance(step.get("tool_calls"), list) for step in steps):
        totals["tool_calls"] = [call for step in steps for call in step["tool_calls"]]
    return totals


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
