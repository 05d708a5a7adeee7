"""What an agent's answers say, in every version of the Evaluation Context Protocol that is spoken: 0.2.3 to 1.0."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from fepflow.calls.ecp.rpc import malformed
from fepflow.calls.response_parser import describe
from fepflow.errors import TargetError
from fepflow.json.limits import finite
from fepflow.protocol.tool_calls import tool_name
from fepflow.security.redaction import excerpt
from fepflow.text import brief

VERSION = "1.0"
_MAJOR, _MINOR = 1, 0
_VERSION = re.compile(r"(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})")

COSTS = ("cost_usd", "usd")
"""Names that agents give the price of a step, in US dollars; ECP 1.0 has none."""

MAX_USED = 2**53
"""Largest number of a usage: up to here a float holds every whole number."""

STATUSES = ("done", "paused")
_TEXTS = ("public_output", "evaluation_context", "private_thought", "logs")

Step = dict[str, Any]
"""The result of a step: `status`, `public_output`, `evaluation_context`, `private_thought`, `tool_calls`, `usage` and
`logs`, each null where the agent says nothing."""


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """What an agent says of itself. `version` is the one that is spoken; None for an agent that names none."""

    name: str
    version: str | None
    capabilities: frozenset[str]


def agent_info(result: Any) -> AgentInfo:
    """What agent/initialize gave; raises TargetError, also for a version that fepflow does not speak."""
    if not isinstance(result, dict):
        raise malformed(f"the result is {describe(result)}, and not an object with name and capabilities")
    name, capabilities = result.get("name"), result.get("capabilities")
    if not isinstance(capabilities, dict | None):
        raise malformed(f"capabilities is {describe(capabilities)}, and not an object")
    # It takes an object to declare a capability; agents that write false or null mean that they lack it.
    declared = frozenset(name for name, given in (capabilities or {}).items() if given not in (None, False))
    return AgentInfo(name if isinstance(name, str) else "", _spoken(result.get("protocol_version")), declared)


def _spoken(version: Any) -> str | None:
    if version is None:
        return None
    match = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if match is None:
        raise malformed('protocol_version is not a text such as "1.0"')
    major, minor = int(match[1]), int(match[2])
    if major != _MAJOR:
        raise incompatible(f"the agent speaks protocol version {version}, fepflow {VERSION}")
    return f"{major}.{min(minor, _MINOR)}"


def incompatible(message: str) -> TargetError:
    """The error of an agent that cannot be evaluated: no other scenario would fare better."""
    return TargetError(message, kind="incompatible", retryable=False)


def step_result(result: Any, *, tells_calls: bool = False) -> Step:
    """Return what agent/step gave; raises TargetError for what is no result of a step.

    An agent that declares the capability `tool_calls` (`tells_calls`) and gives none made none.
    """
    if not isinstance(result, dict):
        raise malformed(f"the result is {describe(result)}, and not an object with status and public_output")
    if result.get("status") not in STATUSES:
        status = excerpt(repr(result.get("status")), frozenset(), 60)
        raise malformed(f"the result's status is {status}, and not done or paused")
    for name in _TEXTS:
        if not isinstance(result.get(name), str | None):
            raise malformed(f"the result's {name} is {describe(result[name])}, and not a text or null")
    thought = result.get("private_thought")
    seen = result.get("evaluation_context")
    return {
        "status": result["status"],
        "public_output": result.get("public_output"),
        "evaluation_context": _first_said(seen, thought),
        "private_thought": _first_said(thought, seen),
        "tool_calls": _tool_calls(result.get("tool_calls")) or ([] if tells_calls else result.get("tool_calls")),
        "usage": _usage(result.get("usage")),
        "logs": result.get("logs"),
    }


def _first_said(own: str | None, other: str | None) -> str | None:
    """A text, or the other one where it is missing or empty: an agent may fill both fields, and only one with words."""
    return own if own or other is None else other


def _usage(usage: Any) -> dict[str, Any] | None:
    """Usage of a step: token counts are whole numbers from 0 on, every other number is finite and not negative.

    Budgets and sums rest on it, so one bad number makes the result invalid. A count as a float (5.0) is made an int.
    """
    if not isinstance(usage, dict | None):
        raise malformed(f"the result's usage is {describe(usage)}, and not an object or null")
    return None if usage is None else {name: _used(name, value) for name, value in usage.items()}


def _used(name: str, value: Any) -> Any:
    is_count, is_cost = name.lower().endswith("tokens"), name in COSTS
    if value is None or not (is_count or is_cost or is_number(value)):
        return value  # what else an agent tells, such as the model's name
    number = finite(value) if is_number(value) else None
    if number is None or not 0 <= number <= MAX_USED or (is_count and number != int(number)):
        shown = excerpt(repr(value), frozenset(), 60)
        wanted = "a whole number" if is_count else "a number"
        raise malformed(f"the result's usage.{brief(name, 60)} is {shown}, and not {wanted} from 0 on")
    return int(value) if is_count else value


def is_number(value: Any) -> bool:
    """Return whether a JSON value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _tool_calls(calls: Any) -> list[dict[str, Any]] | None:
    if not isinstance(calls, list | None):
        raise malformed(f"the result's tool_calls is {describe(calls)}, and not a list or null")
    for index, call in enumerate(calls or ()):
        name = tool_name(call) if isinstance(call, dict) else None
        if not isinstance(name, str):
            raise malformed(f"the result's tool_calls[{index}] is no object with a name")
    return calls
