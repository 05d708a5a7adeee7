"""How a check, a test case or a run ended (FEP 2.3.4, 4.1, 4.2)."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Literal


class Status(StrEnum):
    """The statuses, for those who like constants better than strings; each equals its string."""

    COMPLETED = "completed"
    ERROR = "error"
    SKIP = "skip"


if TYPE_CHECKING:  # a constant may be given, and be compared with
    StatusText = Literal["completed", "error", "skip"] | Status
else:
    StatusText = Literal["completed", "error", "skip"]
"""A status as results hold it: always the string."""
