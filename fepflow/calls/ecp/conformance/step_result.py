"""What is wrong with the result of a step, more strictly than runs take it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fepflow.calls.ecp import protocol
from fepflow.errors import TargetError

_COUNTS = ("input_tokens", "output_tokens", "total_tokens")


def faults_of_step(result: Any) -> Iterator[tuple[str, str]]:
    """Each fault, with the conformance check that it is one of."""
    rest = {name: value for name, value in result.items() if name not in ("tool_calls", "usage")}
    try:
        protocol.step_result(rest)
    except TargetError as error:
        yield "step", str(error)
    yield from (("tool_calls", fault) for fault in _faults_of_calls(result.get("tool_calls")))
    yield from (("usage", fault) for fault in _faults_of_usage(result.get("usage")))


def _faults_of_calls(calls: Any) -> Iterator[str]:
    if not isinstance(calls, list | None):
        yield "tool_calls is no list"
        return
    for index, call in enumerate(calls or ()):
        name = call.get("name", call.get("tool")) if isinstance(call, dict) else None
        if not isinstance(name, str) or not name:
            yield f"tool_calls[{index}] is no object with a name"
        elif not isinstance(call.get("arguments", call.get("args", {})), dict):
            yield f"the arguments of tool_calls[{index}] are no object"


def _faults_of_usage(usage: Any) -> Iterator[str]:
    if not isinstance(usage, dict | None):
        yield "usage is no object"
        return
    for name in _COUNTS:
        value = (usage or {}).get(name)
        if value is not None and (type(value) is not int or value < 0):
            yield f"usage.{name} is no count"
