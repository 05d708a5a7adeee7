"""What a function of the user's returns or raises, as JSON text or as the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fepflow.calls.base import RESERVED_METADATA
from fepflow.calls.python.worker import Form
from fepflow.errors import TargetError, TargetTimeoutError
from fepflow.json.codec import encode
from fepflow.protocol.test_case import TestCase
from fepflow.security.redaction import excerpt, redact

_SHOWN = 500
_SHOWN_TAIL = 300

FORM: Final = Form(encode, TestCase.model_validate, RESERVED_METADATA)
"""Functions by which this process writes answers and makes test cases."""


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
        """Return the exception, with no secret in it."""
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
