"""The Evaluation Context Protocol, 0.2.3 to 1.0: requests over JSON-RPC 2.0, answers of agents, and scenarios.

A test case is a scenario of steps; the results of the steps are its output.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from fepflow.calls.base import COSTS, Progress, Step, TargetResponse, is_number, usage_of
from fepflow.calls.responses import LARGE_TEXT, describe, incompatible, malformed, parse_answer, shown
from fepflow.calls.thread_pool import READERS
from fepflow.errors import TargetError
from fepflow.json.values import finite
from fepflow.protocol.tool_calls import tool_name
from fepflow.security.redaction import excerpt
from fepflow.text import brief

# --- requests --------------------------------------------------------------------------------------------------------

VERSION_UNSUPPORTED = -32001

_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Its answer is an object with the same id; `progress` notes one with another id."""

    id: int
    method: str
    params: dict[str, Any]
    progress: Progress

    @property
    def text(self) -> str:
        """The request as JSON on one line, in ASCII. Raises TargetError if it has no such form."""
        message = {"jsonrpc": "2.0", "id": self.id, "method": self.method, "params": self.params}
        try:
            return json.dumps(message, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            what = "the request is not JSON: it has NaN or a Python object, or is nested too deep"
            raise TargetError(what, kind="request", retryable=False) from None

    async def answer_in(self, text: str) -> dict[str, Any] | None:
        """Return the answer to this request in a text (a line or an event), or None.

        An error without an id counts as the answer: an agent does not know the id of a request that it could not read.
        Raises TargetError `too_large` for more than MAX_VALUES values, `malformed` for an answer that only lenient
        parsers read (NaN, 1e400, a key that appears twice).
        """
        return await READERS.run(partial(self._answer_in, text)) if len(text) > LARGE_TEXT else self._answer_in(text)

    def _answer_in(self, text: str) -> dict[str, Any] | None:
        if not text.lstrip().startswith("{"):
            return None
        try:
            message = parse_answer(text)
        except ValueError as error:
            if self._is_meant(text):
                raise malformed(f"the answer is not valid JSON: {error}") from None
            return None
        if not isinstance(message, dict) or not _is_response(message):
            return None
        its_id = message.get("id")
        if type(its_id) is int and its_id == self.id:
            return message
        if its_id is None and isinstance(message.get("error"), dict):
            return message
        if not (type(its_id) is int and 0 < its_id < self.id):  # else it answers an earlier request again
            self.progress.fault = f"an answer came with the id {shown(its_id)}, but {self.id} was asked"
        return None

    def _is_meant(self, text: str) -> bool:
        """Return whether a text that is not valid JSON is nevertheless an answer to this request."""
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            return False
        return isinstance(message, dict) and _is_response(message) and message.get("id") == self.id


def _is_response(message: dict[str, Any]) -> bool:
    """Return whether an object is meant as a response: it may lack result and error, unlike a log line with an id."""
    if "method" in message:
        return False
    return bool({"result", "error", "jsonrpc"} & message.keys()) or message.keys() == {"id"}


class Connection(Protocol):
    """A connection to an agent, for one request at a time unless its class says otherwise."""

    async def ask(self, request: Request) -> dict[str, Any]:
        """Return the agent's answer, a JSON-RPC object. Raises TargetError; has no deadline."""

    def log_tail(self) -> dict[str, str]:
        """Return the end of everything that the agent wrote besides answers, by stream, and forget it."""

    @property
    def is_open(self) -> bool:
        """True while an answer may come."""

    async def aclose(self) -> None:
        """Close it, and end what was started for it."""


# --- answers ---------------------------------------------------------------------------------------------------------

VERSION = "1.0"
_MAJOR, _MINOR = 1, 0
_VERSION = re.compile(r"(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})")

MAX_USED = 2**53
"""Largest number in usage: floats hold every whole number up to it."""

STATUSES = ("done", "paused")
_TEXTS = ("public_output", "evaluation_context", "private_thought", "logs")


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """An agent's answer to `agent/initialize`. `version` is the agreed one, None if the agent names none."""

    name: str
    version: str | None
    capabilities: frozenset[str]


def agent_info(result: Any) -> AgentInfo:
    """Read the result of `agent/initialize`. Raises TargetError, also for an unsupported version."""
    if not isinstance(result, dict):
        raise malformed(f"the result is {describe(result)}, and not an object with name and capabilities")
    name, capabilities = result.get("name"), result.get("capabilities")
    if not isinstance(capabilities, dict | None):
        raise malformed(f"capabilities is {describe(capabilities)}, and not an object")
    # A capability is declared by an object; agents that write false or null mean that they lack it.
    declared = frozenset(name for name, value in (capabilities or {}).items() if value not in (None, False))
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


def step_result(result: Any, *, tells_calls: bool = False) -> Step:
    """Read the result of `agent/step`. Raises TargetError for an invalid one.

    If the agent declares the capability `tool_calls` (`tells_calls`), no tool calls means that it made none.
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
        "evaluation_context": _first_text(seen, thought),
        "private_thought": _first_text(thought, seen),
        "tool_calls": _tool_calls(result.get("tool_calls")) or ([] if tells_calls else result.get("tool_calls")),
        "usage": _usage(result.get("usage")),
        "logs": result.get("logs"),
    }


def _first_text(own: str | None, other: str | None) -> str | None:
    """Return a text, or `other` if it is missing or empty: an agent may fill only one of the fields."""
    return own if own or other is None else other


def _usage(usage: Any) -> dict[str, Any] | None:
    """Read the usage of a step: token counts are whole numbers from 0 on, others finite and not negative.

    Budgets and sums use it, so one bad number makes the result invalid. A count as a float (5.0) becomes an int.
    """
    if not isinstance(usage, dict | None):
        raise malformed(f"the result's usage is {describe(usage)}, and not an object or null")
    return None if usage is None else {name: _used(name, value) for name, value in usage.items()}


def _used(name: str, value: Any) -> Any:
    is_count, is_cost = name.lower().endswith("tokens"), name in COSTS
    if value is None or not (is_count or is_cost or is_number(value)):
        return value  # other information, for example the model's name
    number = finite(value) if is_number(value) else None
    if number is None or not 0 <= number <= MAX_USED or (is_count and number != int(number)):
        shown = excerpt(repr(value), frozenset(), 60)
        wanted = "a whole number" if is_count else "a number"
        raise malformed(f"the result's usage.{brief(name, 60)} is {shown}, and not {wanted} from 0 on")
    return int(value) if is_count else value


def _tool_calls(calls: Any) -> list[dict[str, Any]] | None:
    if not isinstance(calls, list | None):
        raise malformed(f"the result's tool_calls is {describe(calls)}, and not a list or null")
    for index, call in enumerate(calls or ()):
        name = tool_name(call) if isinstance(call, dict) else None
        if not isinstance(name, str):
            raise malformed(f"the result's tool_calls[{index}] is not an object with a name")
    return calls


# --- scenarios -------------------------------------------------------------------------------------------------------


def scenario_problem(case_input: Any) -> str | None:
    """Return why the input of a test case is not a scenario, or None."""
    if isinstance(case_input, str):
        return None
    if not isinstance(case_input, list) or not case_input:
        return "the input of an ecp test case is a text, or a list of steps"
    for number, step in enumerate(case_input, 1):
        if not isinstance(step, str) and not (isinstance(step, dict) and isinstance(step.get("input"), str)):
            return f"step {number} is neither a text nor an object with a text as input"
    return None


def steps_of(case_input: Any) -> list[str]:
    """Return the input of each step. Raises TargetError `request`."""
    if problem := scenario_problem(case_input):
        raise TargetError(problem, kind="request", retryable=False)
    if isinstance(case_input, str):
        return [case_input]
    return [step if isinstance(step, str) else step["input"] for step in case_input]


def scenario_response(
    agent: AgentInfo | None, count: int, steps: list[Step], log_tail: dict[str, str]
) -> TargetResponse:
    """Return the output of a scenario of `count` steps with the answered `steps`."""
    metadata: dict[str, Any] = {"steps": count}
    if len(steps) == count:
        metadata["completed"] = count
    if agent is not None:
        metadata["agent"] = agent.name
        metadata["protocol_version"] = agent.version
    metadata |= usage_of(steps)
    if any(step["logs"] for step in steps):
        metadata["logs"] = [step["logs"] for step in steps]
    if log_tail:
        metadata["log_tail"] = log_tail
    shown = [{name: value for name, value in step.items() if name != "logs"} for step in steps]
    return TargetResponse({"steps": shown} if shown else None, metadata)
