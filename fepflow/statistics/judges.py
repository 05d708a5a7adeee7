"""The share of outputs that are right, from a judge's verdicts and its measured errors.

Two ways to correct, by where people's labels come from. Labels of other outputs tell the judge's true positive rate
and true negative rate: the estimate is that of Rogan and Gladen (1978), its interval that of Lang and Reiczigel
(2014). Labels of outputs drawn at random from the run itself tell how many that the judge passed, and how many that it
failed, are right: Wilson's limits of these shares are joined by MOVER (Donner and Zou 2012). The latter assumes less,
since a judge need not err here as often as elsewhere.

What has no verdict is missing: it counts as wrong for the low bound, as right for the high one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from fepflow.statistics.estimate import Estimate, Method, Sample
from fepflow.statistics.means import Sums
from fepflow.statistics.proportions import wilson_interval, z_score

USELESS = "as far as its labels tell, the judge passes wrong outputs as often as right ones"


@dataclass(frozen=True, slots=True)
class JudgeLabels:
    """People's labels beside a judge's verdicts: of `right` outputs it passed `right_passed`, of `wrong` ones it
    failed `wrong_failed`. `drawn` if the outputs were drawn at random from the run that is estimated.

    ValueError on counts that cannot be.
    """

    right: int
    right_passed: int
    wrong: int
    wrong_failed: int
    drawn: bool = False

    @property
    def passed(self) -> int:
        """The number of labelled outputs that the judge passed."""
        return self.right_passed + self.wrong - self.wrong_failed

    @property
    def failed(self) -> int:
        """The number of labelled outputs that it failed."""
        return self.right - self.right_passed + self.wrong_failed

    def __post_init__(self) -> None:
        if not (0 <= self.right_passed <= self.right and 0 <= self.wrong_failed <= self.wrong):
            raise ValueError(f"counts of labels that cannot be: {self}")


@dataclass(frozen=True, slots=True)
class CorrectedSample:
    """A judge's raw share of passes, and the labels by which it is corrected."""

    raw: Sums
    labels: JudgeLabels

    @property
    def cases(self) -> int:
        """See Sample."""
        return self.raw.cases

    def estimate(self, confidence: float) -> Estimate:
        """See Sample. Without a value if the labels do not tell the judge from chance."""
        value = self._value()
        if value is None:
            return Estimate(None, None, None, None, confidence, "none", self.raw.counts, problem=USELESS)
        low, high = self._with_missing(*self._bounds(self.raw.effective(confidence, 1.0), confidence))
        least, most = self._with_missing(value, value)
        return Estimate(
            value,
            None,
            min(low, value),
            max(high, value),
            confidence,
            self._method,
            self.raw.counts,
            least,
            most,
            sample=self,
        )

    def with_cases(self, cases: int, confidence: float) -> tuple[float | None, float | None]:
        """See Sample; of more outputs, with the same labels."""
        return self._bounds(self.raw.effective(confidence, cases / self.raw.answered), confidence)

    @property
    def _method(self) -> Method:
        return "mover" if self.labels.drawn else "rogan-gladen"

    def _value(self) -> float | None:
        labels, share = self.labels, self.raw.share
        if labels.drawn:
            return self._of_draw(0.5)[0] if labels.right or labels.wrong else None
        if not labels.right or not labels.wrong:
            return None
        true_negatives = labels.wrong_failed / labels.wrong
        informedness = labels.right_passed / labels.right + true_negatives - 1
        if informedness <= 0:
            return None
        return min(max((share + true_negatives - 1) / informedness, 0.0), 1.0)

    def _bounds(self, n: float, confidence: float) -> tuple[float, float]:
        if self.labels.drawn:
            return max(self._mover(n, confidence, -1), 0.0), min(self._mover(n, confidence, 1), 1.0)
        return lang_reiczigel_interval(self.raw.share, n, self.labels, confidence)

    def _of_draw(self, unknown: float) -> tuple[float, float, float]:
        """The share that is right, and that among passed and among failed ones, which is `unknown` without labels."""
        labels, share = self.labels, self.raw.share
        right_failed = labels.right - labels.right_passed
        of_passed = labels.right_passed / labels.passed if labels.passed else unknown
        of_failed = right_failed / labels.failed if labels.failed else unknown
        return share * of_passed + (1 - share) * of_failed, of_passed, of_failed

    def _mover(self, n: float, confidence: float, side: Literal[-1, 1]) -> float:
        """The low bound (-1), or the high one. What has no labels is all wrong, or all right: that is no chance."""
        labels, share, end = self.labels, self.raw.share, (side + 1) // 2
        value, of_passed, of_failed = self._of_draw(float(end))
        distances = [
            weight * (wilson_interval(estimate, count, confidence)[end] - estimate)
            for weight, estimate, count in ((share, of_passed, labels.passed), (1 - share, of_failed, labels.failed))
            if count
        ]
        slope = of_passed - of_failed
        of_share = wilson_interval(share, n, confidence)[end if slope >= 0 else 1 - end]
        return value + side * math.hypot(*distances, slope * (of_share - share))

    def _with_missing(self, low: float, high: float) -> tuple[float, float]:
        completed = self.raw.counts.completed / self.raw.counts.expected
        return low * completed, high * completed + (1 - completed)


def corrected(estimate: Estimate, labels: JudgeLabels) -> Estimate | None:
    """A judge's share of passes, corrected; None if there is no such share to correct."""
    raw = estimate.sample
    if not isinstance(raw, Sums) or not estimate.is_proportion:
        return None
    sample: Sample = CorrectedSample(raw, labels)
    return sample.estimate(estimate.confidence)


def youden_index(labels: JudgeLabels, confidence: float = 0.95) -> tuple[float, float, float] | None:
    """Youden's J of a judge, its true positive rate + its true negative rate - 1, with its bounds; None unless there
    are right and wrong outputs.

    1 is a judge that never errs, 0 one that passes wrong outputs as often as right ones. Unlike kappa it does not
    depend on how many of the outputs are right. Wilson's limits of both rates are joined by MOVER.
    """
    if not labels.right or not labels.wrong:
        return None
    rates = [(labels.right_passed / labels.right, labels.right), (labels.wrong_failed / labels.wrong, labels.wrong)]
    bounds = [wilson_interval(rate, n, confidence) for rate, n in rates]
    value = rates[0][0] + rates[1][0] - 1
    down, up = (
        math.hypot(*(rate - each[end] for (rate, _), each in zip(rates, bounds, strict=True))) for end in (0, 1)
    )
    return value, max(value - down, -1.0), min(value + up, 1.0)


def lang_reiczigel_interval(share: float, n: float, labels: JudgeLabels, confidence: float) -> tuple[float, float]:
    """The interval of the true share where a judge passes a `share` of n outputs; 0 and 1 if nothing is known.

    The rates are taken as if two more labels of each kind had come, one of them an error. Of a judge that was never
    seen to fail a right output, that alone would lift the low bound, so that it were too high in one run of 23 instead
    of 40: there the rate itself, 1, counts too. So it does for the high bound of one that never passed a wrong output.
    """
    sensitivity = (labels.right_passed + 1) / (labels.right + 2)
    specificity = (labels.wrong_failed + 1) / (labels.wrong + 2)
    low, high = _bounds_by(sensitivity, specificity, share, n, labels, confidence)
    if labels.right and labels.right_passed == labels.right:
        low = min(low, _bounds_by(1.0, specificity, share, n, labels, confidence)[0])
    if labels.wrong and labels.wrong_failed == labels.wrong:
        high = max(high, _bounds_by(sensitivity, 1.0, share, n, labels, confidence)[1])
    return low, high


def _bounds_by(
    sensitivity: float, specificity: float, share: float, n: float, labels: JudgeLabels, confidence: float
) -> tuple[float, float]:
    """The formula of Lang and Reiczigel, for given rates."""
    z = z_score(confidence)
    z2 = z**2
    passed = (share * n + z2 / 2) / (n + z2)
    informedness = sensitivity + specificity - 1
    if informedness <= 0:
        return 0.0, 1.0
    value = (passed + specificity - 1) / informedness
    of_right = sensitivity * (1 - sensitivity) / (labels.right + 2)
    of_wrong = specificity * (1 - specificity) / (labels.wrong + 2)
    centre = value + 2 * z2 * (value * of_right - (1 - value) * of_wrong)
    variance = passed * (1 - passed) / (n + z2) + value**2 * of_right + (1 - value) ** 2 * of_wrong
    margin = z * math.sqrt(variance) / informedness
    return min(max(centre - margin, 0.0), 1.0), max(min(centre + margin, 1.0), 0.0)


_ADDED = 2.0
"""Observations that the interval's table has more."""


@dataclass(frozen=True, slots=True)
class ConfusionMatrix:
    """The number of times that two raters gave each pair of categories: `counts[i][j]` is the first's `i` with the
    second's `j`."""

    categories: tuple[Hashable, ...]
    counts: tuple[tuple[int, ...], ...]

    @property
    def n(self) -> int:
        """The number of observations."""
        return sum(map(sum, self.counts))

    @property
    def agreed(self) -> int:
        """The number of observations to which both gave the same category."""
        return sum(row[index] for index, row in enumerate(self.counts))


@dataclass(frozen=True, slots=True)
class Kappa:
    """Agreement beyond chance: 1 is all, 0 what chance would give; where it is not defined None, and `why` says it.

    `low` and `high` bound it at the confidence that was asked for.
    """

    value: float | None
    low: float | None
    high: float | None
    why: str | None = None


def tabulate(pairs: Iterable[tuple[Hashable, Hashable]], categories: Sequence[Hashable]) -> ConfusionMatrix:
    """Count pairs. Raises KeyError for one of another category."""
    locations = {category: location for location, category in enumerate(categories)}
    counts = [[0] * len(categories) for _ in categories]
    for (one, other), count in Counter(pairs).items():
        counts[locations[one]][locations[other]] += count
    return ConfusionMatrix(tuple(categories), tuple(map(tuple, counts)))


def cohen_kappa(table: ConfusionMatrix, *, quadratic: bool = False, confidence: float = 0.95) -> Kappa:
    """Cohen's kappa of a table, with bounds at a two-sided `confidence` (0 to 1).

    `quadratic` weighs a disagreement by its square: the categories must be numbers then. Not defined where the
    first rater gave one category only: nothing tells agreement from chance.
    """
    z = z_score(confidence)
    if not table.n:
        return Kappa(None, None, None, "there is nothing to compare")
    if sum(any(row) for row in table.counts) == 1:
        return Kappa(None, None, None, "all labels are the same: nothing tells agreement from chance")
    weights = _weights(table.categories, quadratic=quadratic)
    value, _ = kappa_and_error(table.counts, weights)
    cells = len(table.categories) ** 2
    more = [[count + _ADDED / cells for count in row] for row in table.counts]
    centre, error = kappa_and_error(more, weights)
    low, high = centre - z * error, centre + z * error
    return Kappa(value, max(min(low, value), -1.0), min(max(high, value), 1.0))


def kappa_and_error(counts: Sequence[Sequence[float]], weights: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Weighted kappa with its large-sample standard error (Fleiss, Cohen and Everitt 1969).

    `weights` are those of agreement, 1 on the diagonal. ZeroDivisionError where chance alone agrees on everything.
    """
    size, n = range(len(counts)), math.fsum(map(math.fsum, counts))
    rows = [math.fsum(row) / n for row in counts]
    columns = [column / n for column in _columns(counts)]
    of_row = [math.fsum(columns[j] * weights[i][j] for j in size) for i in size]
    of_column = [math.fsum(rows[i] * weights[i][j] for i in size) for j in size]
    seen = math.fsum(counts[i][j] * weights[i][j] for i in size for j in size) / n
    chance = math.fsum(rows[i] * of_row[i] for i in size)
    spread = math.fsum(
        counts[i][j] / n * (weights[i][j] * (1 - chance) - (of_row[i] + of_column[j]) * (1 - seen)) ** 2
        for i in size
        for j in size
        if counts[i][j]
    )
    variance = max(spread - (seen * chance - 2 * chance + seen) ** 2, 0.0) / n
    return (seen - chance) / (1 - chance), math.sqrt(variance) / (1 - chance) ** 2


def _columns(counts: Sequence[Sequence[float]]) -> list[float]:
    return [math.fsum(column) for column in zip(*counts, strict=True)]


def _weights(categories: Sequence[Hashable], *, quadratic: bool) -> list[list[float]]:
    if not quadratic:
        return [[float(one == other) for other in categories] for one in categories]
    numbers = [float(category) for category in categories]  # type: ignore[arg-type]  # the caller's promise
    spread = max(numbers) - min(numbers)
    return [[1 - ((one - other) / spread) ** 2 for other in numbers] for one in numbers]
