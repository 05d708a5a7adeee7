"""Ends of a check, a test case or a run, and reasons why a check has no result (FEP 2.3.4, 4.1, 4.2)."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from fepflow.errors import FepErrorType


class Status(StrEnum):
    """The statuses, for those who like constants better than strings; each equals its string."""

    COMPLETED = "completed"
    ERROR = "error"
    SKIP = "skip"


class ErrorType(StrEnum):
    """The types of a check's error, as constants; each equals its string."""

    JSONPATH_ERROR = "jsonpath_error"
    VALIDATION_ERROR = "validation_error"
    TIMEOUT_ERROR = "timeout_error"
    UNKNOWN_ERROR = "unknown_error"


if TYPE_CHECKING:  # a constant may be given, and be compared with
    StatusText = Literal["completed", "error", "skip"] | Status
    ErrorTypeText = FepErrorType | ErrorType
else:
    StatusText = Literal["completed", "error", "skip"]
    ErrorTypeText = FepErrorType
"""Both as results hold them: always the string."""
