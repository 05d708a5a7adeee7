"""A digest of thresholds, by which a verdict says what it was judged by (EvalGuard 9.2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fepflow.evalguard.models import Thresholds
from fepflow.protocol.content_hash import content_hash


def thresholds_digest(thresholds: Iterable[Thresholds]) -> str:
    """The SHA-256 of the thresholds of some tasks, 64 hexadecimal digits.

    It depends on what they say, not on how the files are written: not on the order of tasks, metrics and ranges, not on
    comments, and not on whether a bound is written 1 or 1.0.
    """
    return content_hash({each.task: _canonical(each) for each in thresholds})


def _canonical(thresholds: Thresholds) -> dict[str, Any]:
    return {
        metric: sorted(
            (each.model_dump(exclude_none=True) for each in ranges), key=lambda each: sorted(map(str, each.items()))
        )
        for metric, ranges in thresholds.thresholds.items()
    }
