"""Translation of what litellm returns and raises: answers of evaluated models, and exceptions as ModelErrors.

Its own exceptions cannot be pickled, contain tracebacks, and may contain a key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fepflow.calls.models.model import Exchange, Model, ModelOutput, Usage
from fepflow.calls.policy import seconds_to_wait
from fepflow.errors import ModelError, ModelTimeoutError
from fepflow.security.redaction import excerpt, known_secrets, secrets_in_address

_RETRYABLE_STATUS = (408, 409, 425, 429)
_QUOTA = re.compile(r"insufficient_quota|current quota|credit balance|billing", re.IGNORECASE)
_NO_CREDIT = re.compile(r"credit balance is too low", re.IGNORECASE)
"""Anthropic says so with the status of a request that is wrong."""
_FORMAT = re.compile(
    r"response_?format|json_schema|json_object|json mode|structured.?output|output_format|output_config|tool_choice"
    r"|input_schema|guided_json",
    re.IGNORECASE,
)
_NOT_TAKEN = re.compile(r"support|unrecognized|unknown|not permitted|not allowed|deprecated", re.IGNORECASE)
_REFUSAL_STATUS = (400, 404, 415, 422)
_LONGEST_WORDS = 100_000
_MOST_PREFIXES = 8
_PREFIX = re.compile(r"^(litellm\.)?\w+(Error|Exception)(:| -) ")


def model_error(error: Exception, model: Model, exchange: Exchange, *, with_format: bool = False) -> ModelError:
    """Return the error of a failed request; `with_format` is true if it asked for a response format.

    The exchange on the wire counts more than litellm's error: litellm reports a closed port as HTTP 500.
    """
    status = getattr(error, "status_code", None)
    kind = type(error).__name__
    message = _words(error, model)
    if exchange.refusal is not None:
        kind, why, retryable = exchange.refusal
        message = f"{model.name} at {exchange.host} {excerpt(why, secrets_of(model))}"
        return ModelError(message, kind=kind, retryable=retryable)
    if (wire_error := _of_the_wire(kind, status, exchange, model)) is not None:
        return wire_error
    if kind == "Timeout" or status == 504:
        return ModelTimeoutError(f"{model.name} did not answer in time: {message}")
    if kind == "ContentPolicyViolationError":
        return ModelError(f"{model.name} refused to answer: {message}", kind="refused", status=status)
    everything = f"{error} {getattr(error, 'body', '')}"[:_LONGEST_WORDS]
    if with_format and status in _REFUSAL_STATUS and _FORMAT.search(everything):
        return ModelError(f"{model.name} refuses the response format: {message}", kind="format_refused", status=status)
    if status in _REFUSAL_STATUS and (name := refused_parameter(everything, model)):
        return ModelError(f"{model.name} refuses {name}: {message}", kind="parameter_refused", status=status)
    if status == 402 or (status in (403, 429) and _QUOTA.search(everything)) or _NO_CREDIT.search(message):
        return ModelError(f"the quota of {model.name} is used up: {message}", kind="quota", status=status)
    if status in (401, 403):
        advice = "check its key"
        return ModelError(f"{model.name} refuses access ({advice}): {message}", kind="unauthorized", status=status)
    if status == 429:
        wait = _retry_after(error)
        message = f"{model.name} has had too many requests: {message}"
        return ModelError(message, kind="rate_limited", retryable=True, retry_after=wait, status=429)
    if not isinstance(status, int) or kind == "APIConnectionError":
        return ModelError(f"no usable answer from {model.name}: {message}", kind="connect", retryable=True)
    retryable = status >= 500 or status in _RETRYABLE_STATUS
    if retryable and exchange.status is not None and exchange.status >= 500:
        status = exchange.status  # litellm has 500 for 529
    message = f"{model.name} answered HTTP {status}: {message}"
    wait = _retry_after(error) if retryable else None
    return ModelError(message, kind="http_status", retryable=retryable, retry_after=wait, status=status)


def _of_the_wire(kind: str, status: Any, exchange: Exchange, model: Model) -> ModelError | None:
    """Return the error of a request without a response, or with one that is not a model's; else None."""
    is_answer = isinstance(status, int) and status >= 400 and status not in (500, 503)
    if kind == "Timeout" or not exchange.host or is_answer:
        return None
    if exchange.status is None:
        message = f"no answer from {model.name} at {exchange.host}: there is no connection, or it broke"
        return ModelError(message, kind="connect", retryable=True)
    if exchange.status < 400:
        what = f"HTTP {exchange.status}, but not as a model does ({exchange.media_type or 'no content type'})"
        return ModelError(f"{model.name} at {exchange.host} answered {what}", kind="malformed", retryable=True)
    return None


def refused_parameter(text: str, model: Model) -> str | None:
    """Return the model's parameter that an error names as unsupported, or None."""
    if not _NOT_TAKEN.search(text):
        return None
    for name in model.parameters:
        if re.search(rf"(?<![a-z_]){name}(?![a-z_])", text):
            return name
    return None


def secrets_of(model: Model) -> frozenset[str]:
    """Return the secrets of a model: its key, keys in the environment, and a password in the address."""
    return known_secrets() | secrets_in_address(model.api_base or "") | ({model.api_key} if model.api_key else set())


def _words(error: Exception, model: Model) -> str:
    """Return the beginning of the provider's message, without litellm's prefixes and without secrets."""
    text = str(getattr(error, "message", None) or error)[:_LONGEST_WORDS]
    text = text.partition("Traceback (most recent call last)")[0].strip()
    for _ in range(_MOST_PREFIXES):
        text = _PREFIX.sub("", text)
    return excerpt(text, secrets_of(model)) or type(error).__name__


def _retry_after(error: Exception) -> float | None:
    headers: Any = getattr(error, "litellm_response_headers", None) or {}
    try:
        by_name = {str(name).lower(): str(value) for name, value in dict(headers).items()}
    except (TypeError, ValueError):
        return None
    return seconds_to_wait(by_name["retry-after"]) if "retry-after" in by_name else None


# --- answers of evaluated models -------------------------------------------------------------------------------------


MOST_OF_A_NAME = 200
"""Characters of a model's name in a response."""


def chat_output(answer: Any, name: str, usage: Usage) -> ModelOutput:
    """Return the answer of chat completions. Raises ModelError if it has no message."""
    try:
        choice = answer.choices[0]
        message, reason = choice.message, str(choice.finish_reason or "stop")
        text = message.content
        calls = [_plain(call) for call in message.tool_calls or ()]
        if not calls and (function := getattr(message, "function_call", None)):  # the older form of one call
            calls = [{"type": "function", "function": _plain(function)}]
    except (AttributeError, IndexError, TypeError):
        raise _without_message(name) from None
    refusal = (getattr(message, "provider_specific_fields", None) or {}).get("refusal")
    if isinstance(refusal, str) and refusal:  # also after the beginning of an answer
        text, reason = text or refusal, "refusal"
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
    calls = [call for item in items if (call := _call_in(item)) is not None]
    reason = "stop" if all(map(is_hosted, calls)) else "tool_calls"
    if refusal := "".join(_texts(parts, "refusal", "refusal")):
        text, reason = text or refusal, "refusal"
    if status != "completed":  # incomplete, or still in progress
        why = str(details.get("reason") or status or "incomplete")
        reason = "length" if why == "max_output_tokens" else why
    return _output(text, calls, reason, answer, name, usage)


def _call_in(item: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the call of a tool in an item of the Responses API, also of a tool that the provider runs."""
    kind, name = str(item.get("type")), item.get("name")
    if kind == "function_call":
        function = {"name": name, "arguments": item.get("arguments")}
        return {"id": item.get("call_id"), "type": "function", "function": function}
    if kind == "custom_tool_call":
        return {"id": item.get("call_id"), "type": "custom", "custom": {"name": name, "input": item.get("input")}}
    if kind.endswith("_call"):  # without its results, which may be pictures
        return {key: item[key] for key in ("id", "type", "name", "arguments") if key in item}
    return None


def is_hosted(call: Mapping[str, Any]) -> bool:
    """Return whether the provider itself ran this tool: the call asks for nothing."""
    kind = str(call.get("type"))
    return kind.endswith("_call") and kind not in _OF_CALLER


_OF_CALLER = ("computer_call", "local_shell_call", "shell_call", "apply_patch_call")
"""Calls of the Responses API of tools that the caller runs; with other names, of the caller's own tools."""


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
