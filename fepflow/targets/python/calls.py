"""What a function of the user's returns or raises, as JSON text or as the reason why there is none."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fepflow.errors import TargetError, TargetTimeoutError
from fepflow.http.retry_after import seconds_to_wait
from fepflow.json.codec import NotJsonError, encode
from fepflow.protocol.test_case import Output
from fepflow.security.redaction import excerpt, redact
from fepflow.targets.base import RESERVED_METADATA
from fepflow.targets.python.source import own_location

PROGRAMMING_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, NotImplementedError,
    RecursionError, SyntaxError, TypeError,
)  # fmt: skip
"""Exceptions that say that the code is wrong: the same call would raise them again."""

_RETRYABLE_STATUS = (408, 425, 429)
_MAX_MESSAGE = 20_000
_SHOWN = 500
_SHOWN_TAIL = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """The error of a call, as it can go from process to process; see TargetError. Not yet redacted.

    `location` is the user's own file and line, `tail` what a process printed last.
    """

    message: str
    kind: str
    retryable: bool
    location: str = ""
    retry_after: float | None = None
    status: int | None = None
    tail: str = ""

    def error(self, secrets: frozenset[str]) -> TargetError:
        """The exception, with no secret in it."""
        message = excerpt(self.message, secrets, _SHOWN) + (
            f" ({redact(self.location, secrets)})" if self.location else ""
        )
        if last_words := excerpt(self.tail, secrets, len(self.tail))[-_SHOWN_TAIL:]:
            message = f"{message}: {last_words}"
        if self.kind == "timeout":
            return TargetTimeoutError(message)
        return TargetError(
            message, kind=self.kind, retryable=self.retryable, retry_after=self.retry_after, status=self.status
        )


class Refused(Exception):  # noqa: N818  # a value on its way out, caught in this package
    """The returned value cannot be an output."""

    def __init__(self, message: str, kind: str = "malformed") -> None:
        self.failure = Failure(message, kind, retryable=False)
        super().__init__(message)


def is_pending(returned: Any) -> bool:
    """Whether what a function returned has to be awaited."""
    return inspect.isawaitable(returned) or isinstance(returned, AsyncIterator)


def answer_text(returned: Any, limit: int) -> str:
    """What was returned, as JSON `{value, metadata}` of at most `limit` characters; generators are read to their end.

    Raises Refused, or what a generator raises.
    """
    value = _joined(list(_bounded(returned, limit))) if isinstance(returned, Iterator) else returned
    metadata: dict[str, Any] = {}
    if isinstance(value, Output):
        value, metadata = value.value, dict(value.metadata or {})
        if taken := [name for name in metadata if name in RESERVED_METADATA]:
            raise Refused(f"{', '.join(taken)} in the metadata of an Output is what fepflow says about the call")
    try:
        text = encode({"value": value, "metadata": metadata})
    except NotJsonError as error:
        advice = "return a text, number, list, dict, dataclass, pydantic model, or an Output of these"
        raise Refused(f"what was returned has no JSON form: {error} ({advice})") from None
    if len(text) > limit:
        raise _too_large(limit)
    return text


async def awaited_text(returned: Any, limit: int) -> str:
    """As `answer_text`, of what has to be awaited."""
    while isinstance(returned, Awaitable):
        returned = await returned
    if not isinstance(returned, AsyncIterator):
        return answer_text(returned, limit)
    chunks, room = [], limit
    async for chunk in returned:
        room -= _size(chunk)
        if room < 0:
            raise _too_large(limit)
        chunks.append(chunk)
    return answer_text(_joined(chunks), limit)


def _bounded(chunks: Iterator[Any], limit: int) -> Iterator[Any]:
    room = limit
    for chunk in chunks:
        room -= _size(chunk)
        if room < 0:
            raise _too_large(limit)
        yield chunk


def _joined(chunks: list[Any]) -> Any:
    """The text that chunks of text make; else all that came, as a list."""
    return "".join(chunks) if all(isinstance(chunk, str) for chunk in chunks) else chunks


def _size(chunk: Any) -> int:
    if isinstance(chunk, str):
        return len(chunk) or 1  # so that endless nothing ends, too
    try:
        return len(encode(chunk))
    except NotJsonError:
        return 1  # said of the whole


def _too_large(limit: int) -> Refused:
    return Refused(f"the answer is larger than {limit:,} bytes (target.python.max_bytes)", "too_large")


def failure_of(error: BaseException, folder: Path) -> Failure:
    """What a call that raised came to: type, message, and the user's own file and line."""
    if isinstance(error, Refused):
        return error.failure
    try:
        text = " ".join(str(error)[:_MAX_MESSAGE].split())
    except Exception:  # a user's own __str__
        text = ""
    location = own_location(error, folder)
    status = _status_of(error)
    retryable = isinstance(error, Exception) and not isinstance(error, PROGRAMMING_ERRORS)
    if status is not None and 400 <= status < 500:
        retryable = status in _RETRYABLE_STATUS
    return Failure(
        f"{type(error).__name__}: {text}" if text else type(error).__name__,
        "timeout" if isinstance(error, TimeoutError) else "exception",
        retryable,
        f"{Path(location[0]).name}:{location[1]}" if location else "",
        _retry_after(error) if retryable else None,
        status,
    )


def _status_of(error: BaseException) -> int | None:
    """The HTTP status that an exception of an HTTP client, or of a model's library, carries."""
    for holder in (error, getattr(error, "response", None)):
        for name in ("status_code", "status"):
            status = getattr(holder, name, None)
            if isinstance(status, int) and 100 <= status <= 599:
                return status
    return None


def _retry_after(error: BaseException) -> float | None:
    try:
        header = getattr(error, "response").headers.get("retry-after")  # noqa: B009  # a user's own object
        return seconds_to_wait(header) if isinstance(header, str) else None
    except Exception:
        return None
