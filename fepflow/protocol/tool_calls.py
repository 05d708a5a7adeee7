"""Tool calls as chat APIs report them: a message of an assistant that called no tool has none, or null, or no key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fepflow.jsonpath.path import Path, SingularPath, descend, leading_keys


def tool_name(call: Mapping[str, Any]) -> Any:
    """Return the name in a call, whichever shape it has: `name`, `tool`, or `function: {name}`."""
    function = call.get("function")
    return call.get("name", call.get("tool", function.get("name") if isinstance(function, dict) else None))


def tool_arguments(call: Mapping[str, Any]) -> Any:
    """Return the arguments in a call: `arguments`, `args`, `function: {arguments}`, or `input` of a `tool_use`."""
    function = call.get("function")
    if isinstance(function, dict) and "name" not in call:
        return function.get("arguments")
    if call.get("type") == "tool_use":
        return call.get("input")
    return call.get("arguments", call.get("args"))


def made_no_calls(path: Path, document: Any) -> bool:
    """Return whether `path` leads to the calls of an assistant's message which has none: null, or no such key."""
    keys = leading_keys(path.expression)
    if not isinstance(path, SingularPath) or keys[-1:] != ("tool_calls",):
        return False
    reached, message = descend(document, keys[:-1])
    is_message = reached == len(keys) - 1 and isinstance(message, dict) and message.get("role") == "assistant"
    return is_message and message.get("tool_calls") is None
