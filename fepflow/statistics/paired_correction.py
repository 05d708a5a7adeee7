"""The difference between two runs in the share that is right, from a judge's verdicts and its measured errors.

A judge with the true positive rate S and the true negative rate C passes S·t + (1 - C)·(1 - t) of outputs of which the
share t is right. So what it sees of a difference between two runs is J = S + C - 1 times the true one: smaller, and
never the other way round as long as J is positive. Its verdicts' difference is divided by J, and each bound by the end
of J's interval that makes it wider. This takes for granted that the judge errs as often in both runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from fepflow.statistics.estimate import Estimate
from fepflow.statistics.judge_correction import USELESS, JudgeLabels, youden_index
from fepflow.statistics.paired import Pairs


@dataclass(frozen=True, slots=True)
class CorrectedPairs:
    """The difference of a judge's shares of passes, and the labels by which it is corrected."""

    raw: Pairs
    labels: JudgeLabels

    @property
    def cases(self) -> int:
        """See Sample."""
        return self.raw.cases

    def estimate(self, confidence: float) -> Estimate:
        """See Sample. Without a value if the labels do not tell the judge from chance."""
        raw, index = self.raw.estimate(confidence), youden_index(self.labels, confidence)
        if raw.value is None or index is None or index[0] <= 0:
            return Estimate(None, None, None, None, confidence, "none", raw.counts, problem=USELESS)
        value, least, most = (_clipped(each, index[0]) for each in (raw.value, raw.least, raw.most))
        low, high = _bounds((raw.low, raw.high), index[1:])
        return Estimate(
            value, None, min(low, value), max(high, value), confidence, "paired-rogan-gladen", raw.counts, least, most,
            sample=self,
        )  # fmt: skip

    def with_cases(self, cases: int, confidence: float) -> tuple[float | None, float | None]:
        """See Sample; of more test cases, with the same labels."""
        index = youden_index(self.labels, confidence)
        return (-1.0, 1.0) if index is None else _bounds(self.raw.with_cases(cases, confidence), index[1:])


def corrected_difference(estimate: Estimate, labels: JudgeLabels) -> Estimate | None:
    """The difference of a judge's shares of passes, corrected; None if it is not a difference of shares."""
    raw = estimate.sample
    if not isinstance(raw, Pairs) or estimate.method not in ("tango", "paired-bounded"):
        return None
    return CorrectedPairs(raw, labels).estimate(estimate.confidence)


def _bounds(raw: tuple[float | None, float | None], index: tuple[float, float]) -> tuple[float, float]:
    low, high = raw
    if low is None or high is None or index[0] <= 0:
        return -1.0, 1.0
    return min(_clipped(low, each) for each in index), max(_clipped(high, each) for each in index)


def _clipped(difference: float | None, index: float) -> float:
    return 0.0 if difference is None else min(max(difference / index, -1.0), 1.0)
