"""The answers of evaluated models, from chat completions and the Responses API, in one form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fepflow.calls.models.model import ModelOutput, Usage
from fepflow.errors import ModelError

MOST_OF_A_NAME = 200
"""Characters of a model's name in a response."""


def chat_output(answer: Any, name: str, usage: Usage) -> ModelOutput:
    """Return the answer of chat completions. Raises ModelError if it has no message."""
    try:
        choice = answer.choices[0]
        message, reason = choice.message, str(choice.finish_reason or "stop")
        text = message.content
        calls = [_plain(call) for call in message.tool_calls or ()]
    except (AttributeError, IndexError, TypeError):
        raise _without_message(name) from None
    refusal = (getattr(message, "provider_specific_fields", None) or {}).get("refusal")
    if isinstance(refusal, str) and refusal and not text:
        text, reason = refusal, "refusal"
    return _output(text, calls, reason, answer, name, usage)


def response_output(answer: Any, name: str, usage: Usage) -> ModelOutput:
    """Return the answer of the Responses API. Raises ModelError if it failed or is malformed."""
    try:
        items = [_plain(item) for item in answer.output]
        status, error = answer.status, _plain(answer.error or {})
        details = _plain(answer.incomplete_details or {})
    except (AttributeError, TypeError):
        raise _without_message(name) from None
    if status == "failed":
        message = str(error.get("message") or error.get("code") or "it does not say why")
        retryable = error.get("code") in ("server_error", "rate_limit_exceeded")
        raise ModelError(f"{name} failed: {message}", kind="failed", retryable=retryable)
    parts = [part for item in items if item.get("type") == "message" for part in item.get("content") or ()]
    text = "".join(_texts(parts, "output_text", "text"))
    calls = [
        {
            "id": item.get("call_id"),
            "type": "function",
            "function": {"name": item.get("name"), "arguments": item.get("arguments")},
        }
        for item in items
        if item.get("type") == "function_call"
    ]
    reason = "tool_calls" if calls else "stop"
    if not text and (refusal := "".join(_texts(parts, "refusal", "refusal"))):
        text, reason = refusal, "refusal"
    if status != "completed":  # incomplete, or still in progress
        why = str(details.get("reason") or status or "incomplete")
        reason = "length" if why == "max_output_tokens" else why
    return _output(text, calls, reason, answer, name, usage)


def _output(text: Any, calls: list[dict[str, Any]], reason: str, answer: Any, name: str, usage: Usage) -> ModelOutput:
    if text is not None and not isinstance(text, str):
        raise _without_message(name)
    reported = str(getattr(answer, "model", None) or "")[:MOST_OF_A_NAME]
    return ModelOutput(text or "", calls, reason, reported, usage)


def _texts(parts: Iterable[Mapping[str, Any]], kind: str, member: str) -> Iterator[str]:
    return (str(part.get(member) or "") for part in parts if part.get("type") == kind)


def _plain(item: Any) -> dict[str, Any]:
    """Return a part of an answer as JSON: litellm has objects for some."""
    plain = item if isinstance(item, dict) else item.model_dump(mode="json", exclude_none=True)
    if not isinstance(plain, dict):
        raise TypeError("not an object")
    return plain


def _without_message(name: str) -> ModelError:
    return ModelError(f"{name} answered without a message", kind="malformed", retryable=True)


def response_items(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages of chat completions as the input of the Responses API, which has tool calls as items."""
    items: list[dict[str, Any]] = []
    for message in messages:
        if message.get("role") == "tool":
            items.append(
                {
                    "type": "function_call_output",
                    "call_id": message.get("tool_call_id"),
                    "output": message.get("content"),
                }
            )
            continue
        if message.get("content") is not None:
            items.append({"role": message["role"], "content": message["content"]})
        for call in message.get("tool_calls") or ():
            function = call.get("function") or {}
            made = {"name": function.get("name"), "arguments": function.get("arguments")}
            items.append({"type": "function_call", "call_id": call.get("id"), **made})
    return items


def response_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool of chat completions as the Responses API declares it."""
    function = tool.get("function")
    return {"type": "function", **function} if isinstance(function, Mapping) else dict(tool)
