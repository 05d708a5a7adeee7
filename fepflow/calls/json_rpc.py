"""JSON-RPC 2.0, which ECP and A2A agents and MCP servers speak: results, errors, and limits of both."""

from __future__ import annotations

import json
from typing import Any

from fepflow.calls.response_parser import MAX_VALUES
from fepflow.errors import TargetError
from fepflow.json.values import has_more_values, parse
from fepflow.security.redaction import excerpt

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602

LARGE_TEXT = 30_000
"""Number of characters from which on a text is read in a thread: as JSON, they may take a millisecond."""

# No protocol names a code for an agent that has too much to do. These are the statuses of HTTP, which many use as
# codes, and what JSON-RPC APIs with limits have in common.
_OVERLOAD = {429: 429, 503: 503, -32005: 429}

_SHOWN = 300


class RpcError(TargetError):
    """An error that the agent answered, with its `code`. Only an overload is retried."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        status = _OVERLOAD.get(code)
        super().__init__(message, kind="agent_error", retryable=status is not None, status=status)


def parse_answer(text: str) -> Any:
    """Return the JSON in a text. Raises TargetError `too_large` for more than MAX_VALUES values.

    Raises ValueError for text that only lenient parsers accept (NaN, 1e400, a key that appears twice).
    """
    if has_more_values(text, MAX_VALUES):
        message = f"the answer holds more than {MAX_VALUES:,} JSON values"
        raise TargetError(message, kind="too_large", retryable=False)
    return parse(text)


def result_of(message: dict[str, Any], secrets: frozenset[str]) -> Any:
    """Return the result in an answer. Raises RpcError for an error, TargetError for neither."""
    error = message.get("error")
    if error is None:
        if "result" in message:
            return message["result"]
        raise malformed("the answer has neither a result nor an error")
    if message.get("result") is not None:
        raise malformed("the answer has both a result and an error")
    code, text = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, None)
    if not isinstance(code, int) or not isinstance(text, str):
        raise malformed(f"the answer is an error without code and message: {shown(error, secrets)}")
    raise RpcError(code, f"the agent answered with the error {code}: {excerpt(text, secrets, _SHOWN)}")


def shown(value: Any, secrets: frozenset[str] = frozenset(), limit: int = 120) -> str:
    """Return a JSON value as a short text for a message."""
    return excerpt(json.dumps(value, ensure_ascii=False), secrets, limit)


def malformed(message: str) -> TargetError:
    """Return the error of an answer that breaks the protocol; the agent would repeat it."""
    return TargetError(message, kind="malformed", retryable=False)


def incompatible(message: str) -> TargetError:
    """Return the error of an agent that cannot be evaluated at all."""
    return TargetError(message, kind="incompatible", retryable=False)
