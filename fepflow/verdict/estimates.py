"""The input of a gate: estimates of metrics, and counts of the results of checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fepflow.statistics.estimate import Estimate


@dataclass(frozen=True, slots=True)
class MetricEstimate:
    """A metric of the suite, the check that it is computed from (None: the outputs), and its estimate.

    `of_passes` if it is made of results that passed or not, and no scores; `of_errors` if of results in error or not,
    so that it does not judge the check. `by_judge` if it is the share that a judge passed; then `corrected` is that
    for the errors which the judge is known to make, None if nothing is known of them, or if there are labels that
    cannot tell: then `doubt` says why, as a part of a sentence. `warnings` are sentences about its values.
    """

    id: str
    check_id: str | None
    estimate: Estimate
    of_passes: bool = True
    of_errors: bool = False
    by_judge: bool = False
    corrected: Estimate | None = None
    doubt: str | None = None
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CheckTotals:
    """The counts of the results of one check; `unjudged` completed without a pass or fail (a score, say)."""

    check_id: str
    expected: int
    passed: int = 0
    failed: int = 0
    error: int = 0
    skipped: int = 0
    unjudged: int = 0

    @property
    def never_came(self) -> int:
        """Expected, but nothing is there."""
        return max(self.expected - self.passed - self.failed - self.error - self.skipped - self.unjudged, 0)
