"""Tool calls in the forms of chat APIs, of MCP and ECP, and of traces: each is read as a name and its arguments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fepflow.json.values import parse
from fepflow.jsonpath.path import Path, SingularPath, descend, leading_keys

_OTHER_ITEMS = frozenset(
    {
        *("text", "input_text", "output_text", "refusal", "image", "image_url", "document"),
        *("thinking", "redacted_thinking", "reasoning", "message", "tool_result", "mcp_list_tools"),
    }
)
_RESULTS = ("_tool_result", "_call_output")
"""Ends of the types of results, which each provider's tools have their own of."""
"""Types of items that stand beside calls in the content of a message (Anthropic), or in an answer (Responses API)."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool. `arguments` is None if they are unknown, because a span may not have them."""

    name: str
    arguments: dict[str, Any] | None


def tool_name(call: Mapping[str, Any]) -> Any:
    """Return the name in a call: `name`, `tool`, `function: {name}`, `custom: {name}`, or that of `params` in a request
    of MCP.

    In the Responses API, a call of a tool that the provider runs has no name; its type is used (`web_search_call`).
    """
    call = _of_request(call)
    function, kind = call.get("function", call.get("custom")), call.get("type")
    hosted = kind if isinstance(kind, str) and kind.endswith("_call") and kind != "function_call" else None
    name = function.get("name") if isinstance(function, dict) else hosted
    return call.get("name", call.get("tool", name))


def tool_arguments(call: Mapping[str, Any]) -> Any:
    """Return the arguments in a call: `arguments`, `args`, `function: {arguments}`, or `input` of a `tool_use`."""
    call = _of_request(call)
    function, kind = call.get("function"), call.get("type")
    if isinstance(function, dict) and "name" not in call:
        return function.get("arguments")
    if isinstance(kind, str) and kind.endswith("tool_use"):
        return call.get("input")
    return call.get("arguments", call.get("args"))


def _of_request(call: Mapping[str, Any]) -> Mapping[str, Any]:
    params = call.get("params")
    return params if call.get("method") == "tools/call" and isinstance(params, dict) else call


def read_calls(calls: Iterable[Mapping[str, Any]], location: str = "calls") -> list[ToolCall]:
    """Read calls, each in any of the forms. Raises ValueError for other values."""
    return [read_call(call, f"{location}[{index}]") for index, call in enumerate(calls)]


def read_call(call: Mapping[str, Any], location: str) -> ToolCall:
    """Read a call. Raises ValueError, with its location, for other values."""
    name = tool_name(call)
    if not isinstance(name, str):
        raise ValueError(f"{location} must have a name, a text")
    arguments = tool_arguments(call)
    if arguments is None and "span_id" in call:
        return ToolCall(name, None)
    if arguments == "":  # a call without any, as some models write it
        arguments = None
    if isinstance(arguments, str):
        try:
            arguments = parse(arguments)
        except ValueError as error:
            raise ValueError(f"{location}.arguments is not valid JSON: {error}") from None
    if not isinstance(arguments, dict | None):
        raise ValueError(f"{location}.arguments must be an object")
    return ToolCall(name, arguments or {})


def flat_items(items: list[Any]) -> Iterator[Any]:
    """Yield the items of a list of calls, of the lists of several steps, or of a message's content.

    A step whose calls are null yields None.
    """
    for item in items:
        for part in item if isinstance(item, list) else [item]:
            kind = part.get("type") if isinstance(part, dict) and "name" not in part else None
            if not (isinstance(kind, str) and (kind in _OTHER_ITEMS or kind.endswith(_RESULTS))):
                yield part


def made_no_calls(path: Path, document: Any) -> bool:
    """Return whether `path` leads to the calls of an assistant's message without calls: null, or no such key."""
    if not isinstance(path, SingularPath) or "tool_calls" not in path.expression:  # most paths need not be parsed
        return False
    keys = leading_keys(path.expression)
    if keys[-1:] != ("tool_calls",):
        return False
    reached, message = descend(document, keys[:-1])
    if reached != len(keys) - 1 or not isinstance(message, dict) or message.get("role") != "assistant":
        return False
    content = message.get("content")
    kinds = [str(item.get("type")) for item in content if isinstance(item, dict)] if isinstance(content, list) else []
    # Calls in another form: the older one of OpenAI's, or Anthropic's.
    has_others = message.get("function_call") or any(kind.endswith("tool_use") for kind in kinds)
    return message.get("tool_calls") is None and not has_others
