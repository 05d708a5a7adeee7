"""JSON-RPC 2.0 as the Evaluation Context Protocol uses it: one request at a time, and what is its answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Any

from fepflow.calls.base import Progress
from fepflow.calls.response_parser import MAX_VALUES
from fepflow.calls.thread_pool import READERS
from fepflow.errors import TargetError
from fepflow.json import parser
from fepflow.json.limits import has_more_values
from fepflow.security.redaction import excerpt

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
VERSION_UNSUPPORTED = -32001

# ECP names no code for an agent that has too much to do. These are the statuses of HTTP, which many use as codes, and
# what JSON-RPC APIs with limits have in common.
_OVERLOAD = {429: 429, 503: 503, -32005: 429}

_SHOWN = 300

_LARGE = 30_000
"""From so many characters on a text is read in a thread: as JSON, they may take a millisecond."""


class RpcError(TargetError):
    """The agent answered with an error, which has a `code`. Only one that means overload is worth another try."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        status = _OVERLOAD.get(code)
        super().__init__(message, kind="agent_error", retryable=status is not None, status=status)


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Its answer is an object with the same id; `progress` is told of one that has another id."""

    id: int
    method: str
    params: dict[str, Any]
    progress: Progress

    @property
    def text(self) -> str:
        """As JSON on one line, in ASCII. Raises TargetError for what has no such form."""
        message = {"jsonrpc": "2.0", "id": self.id, "method": self.method, "params": self.params}
        try:
            return json.dumps(message, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            what = "the request is not JSON: it holds NaN, an object of Python, or is nested too deep"
            raise TargetError(what, kind="request", retryable=False) from None

    async def answer_in(self, text: str) -> dict[str, Any] | None:
        """The answer to this request, if the text, a line or an event, is one.

        An error without an id is: of what it could not read, an agent does not know the id. Raises TargetError
        `too_large` for an answer of more than MAX_VALUES values, `malformed` for one that only lenient parsers take
        for JSON (NaN, 1e400, a key that stands twice).
        """
        return await READERS.run(partial(self._answer_in, text)) if len(text) > _LARGE else self._answer_in(text)

    def _answer_in(self, text: str) -> dict[str, Any] | None:
        if not text.lstrip().startswith("{"):
            return None
        if has_more_values(text, MAX_VALUES):
            message = f"the answer holds more than {MAX_VALUES:,} JSON values"
            raise TargetError(message, kind="too_large", retryable=False)
        try:
            message = parser.parse(text)
        except ValueError as error:
            if self._is_meant(text):
                raise malformed(f"the answer is not valid JSON: {error}") from None
            return None
        if not isinstance(message, dict) or not _is_response(message):
            return None
        given = message.get("id")
        if type(given) is int and given == self.id:
            return message
        if given is None and isinstance(message.get("error"), dict):
            return message
        if not (type(given) is int and 0 < given < self.id):  # a second answer to an earlier request is only a surplus
            self.progress.fault = f"an answer came with the id {_shown(given)}, but {self.id} was asked"
        return None

    def _is_meant(self, text: str) -> bool:
        """Return whether a text that is not JSON by the standard is an answer to this request all the same."""
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            return False
        return isinstance(message, dict) and _is_response(message) and message.get("id") == self.id


def _is_response(message: dict[str, Any]) -> bool:
    """Return whether an object is a response; one with neither result nor error is, unlike a log line with an id."""
    if "method" in message:
        return False
    return bool({"result", "error", "jsonrpc"} & message.keys()) or message.keys() == {"id"}


def result_of(message: dict[str, Any], secrets: frozenset[str]) -> Any:
    """What an answer gives; raises RpcError if it is an error, TargetError if it is neither."""
    error = message.get("error")
    if error is None:
        if "result" in message:
            return message["result"]
        raise malformed("the answer has neither a result nor an error")
    if message.get("result") is not None:
        raise malformed("the answer has both a result and an error")
    code, text = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, None)
    if not isinstance(code, int) or not isinstance(text, str):
        raise malformed(f"the answer is an error without code and message: {excerpt(_shown(error), secrets, _SHOWN)}")
    raise RpcError(code, f"the agent answered with the error {code}: {excerpt(text, secrets, _SHOWN)}")


def malformed(message: str) -> TargetError:
    """The error of an answer that is not what the protocol says; the agent would give the same again."""
    return TargetError(message, kind="malformed", retryable=False)


def _shown(value: Any) -> str:
    return excerpt(json.dumps(value, ensure_ascii=False), frozenset(), 100)
