"""Test cases for MCP servers: the call of a tool as a case's input."""

from __future__ import annotations

from typing import Any

_KEYS = ("tool", "arguments", "is_error")


def call_problem(case_input: Any) -> str | None:
    """Return why the input of a test case is not the call of a tool; None if it is one."""
    if not isinstance(case_input, dict):
        return "the input of an mcp test case is an object, {tool: NAME, arguments: {...}}"
    if odd := [str(name)[:60] for name in case_input if name not in _KEYS]:
        return f"the input has {', '.join(odd[:5])}, but the call of a tool has {', '.join(_KEYS)} only"
    if not isinstance(case_input.get("tool"), str) or not case_input["tool"]:
        return "the input has no tool: give a tool's name"
    if not isinstance(case_input.get("arguments"), dict | None):
        return "the input's arguments must be an object"
    if not isinstance(case_input.get("is_error", False), bool):
        return "the input's is_error is neither true nor false"
    return None
