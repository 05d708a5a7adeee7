"""Judges beside people: their agreement beyond chance, and the share of outputs that are right by a judge that errs.

The agreement is Cohen's kappa for two raters, Krippendorff's alpha for any number.

How people's labels were chosen decides what they can tell. Labels of outputs drawn at random from the run itself, or
drawn so from those that the judge passed and from those that it failed, tell how many of either are right: Wilson's
limits of these shares are joined by MOVER (Donner and Zou 2012), whatever the share of either among the labels. Labels
of other outputs tell the judge's true positive rate and true negative rate: the estimate is that of Rogan and Gladen
(1978), its interval that of Lang and Reiczigel (2014). The former assume less, since a judge need not err here as often
as elsewhere. Labels of outputs that somebody picked from the run are not a sample of it, and correct nothing.

What has no verdict is missing: it counts as wrong for the low bound, as right for the high one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

from fepflow.statistics.estimate import Estimate, Method, Sample
from fepflow.statistics.means import Sums, UnitSums, by_unit, mean
from fepflow.statistics.proportions import wilson_interval, z_score
from fepflow.statistics.sequential import GroupSequentialSample, SequentialSample, group_sequential_estimate
from fepflow.text import number

# --- agreement beyond chance -----------------------------------------------------------------------------------------


_ADDED = 2.0
"""Observations that the interval's table has more."""


@dataclass(frozen=True, slots=True)
class ConfusionMatrix:
    """Counts of the pairs of categories given by two raters.

    `counts[i][j]` counts category `i` of the first with `j` of the second. Counts of weighted observations need not be
    whole.
    """

    categories: tuple[Hashable, ...]
    counts: tuple[tuple[float, ...], ...]

    @property
    def n(self) -> float:
        """The number of observations."""
        return sum(map(sum, self.counts))

    @property
    def agreed(self) -> float:
        """The number of observations to which both gave the same category."""
        return sum(row[index] for index, row in enumerate(self.counts))


@dataclass(frozen=True, slots=True)
class Kappa:
    """Agreement beyond chance: 1 is full agreement, 0 what chance would give; None if undefined, with the reason in
    `why`.

    `low` and `high` bound it at the requested confidence.
    """

    value: float | None
    low: float | None
    high: float | None
    why: str | None = None


def tabulate(pairs: Iterable[tuple[Hashable, Hashable]], categories: Sequence[Hashable]) -> ConfusionMatrix:
    """Count pairs. Raises KeyError for an unknown category."""
    locations = {category: location for location, category in enumerate(categories)}
    counts = [[0] * len(categories) for _ in categories]
    for (one, other), count in Counter(pairs).items():
        counts[locations[one]][locations[other]] += count
    return ConfusionMatrix(tuple(categories), tuple(map(tuple, counts)))


def cohen_kappa(table: ConfusionMatrix, *, quadratic: bool = False, confidence: float = 0.95) -> Kappa:
    """Return Cohen's kappa of a table, with bounds at a two-sided `confidence` (0 to 1).

    `quadratic` weighs a disagreement by its square; the categories must be numbers then. It is undefined if the first
    rater gave only one category, because nothing distinguishes agreement from chance.
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
    """Return weighted kappa with its large-sample standard error (Fleiss, Cohen and Everitt 1969).

    `weights` are those of agreement, 1 on the diagonal. Raises ZeroDivisionError if chance alone agrees on everything.
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


def krippendorff_alpha(units: Iterable[Sequence[Hashable]], *, interval: bool = False) -> float | None:
    """Return Krippendorff's alpha (2011) for any number of raters, who need not all have rated each unit.

    `units` have the ratings of one unit each, in any order. 1 is full agreement, 0 what chance would give. `interval`
    weighs a disagreement of numbers by its square; otherwise categories are equal or not. None if units with two or
    more ratings have fewer than two categories.
    """
    seen: Counter[Hashable] = Counter()
    disagreement = 0.0
    for ratings in units:
        if len(ratings) > 1:
            counts = Counter(ratings)
            seen.update(counts)
            disagreement += _disagreement(counts, interval=interval) / (len(ratings) - 1)
    by_chance = _disagreement(seen, interval=interval)
    return 1 - (seen.total() - 1) * disagreement / by_chance if by_chance else None


def _disagreement(counts: Counter[Hashable], *, interval: bool) -> float:
    """Return the sum of the squared differences (of categories: 0 or 1) over all ordered pairs of ratings."""
    n = counts.total()
    if not interval or len(counts) < 2:
        return float(n * n - sum(count * count for count in counts.values()))
    numbers = [(float(value), count) for value, count in counts.items()]  # type: ignore[arg-type]  # the caller's promise
    centre = math.fsum(value * count for value, count in numbers) / n
    return 2 * n * math.fsum(count * (value - centre) ** 2 for value, count in numbers)


# --- the share of outputs that are right -----------------------------------------------------------------------------


USELESS = "as far as its labels tell, the judge passes wrong outputs as often as right ones"

Design = Literal["all", "by_verdict", "random", "by_hand", "disputed"]
"""The way in which outputs were chosen for labels: all that were judged; drawn at random from those that the judge
passed and from those that it failed; drawn at random from all; picked by somebody, as in a file of labels; the most
disputed first."""

SURPRISE = 0.05
"""The p-value below which labels do not fit a run."""


@dataclass(frozen=True, slots=True)
class JudgeLabels:
    """People's labels beside a judge's verdicts: of `right` outputs it passed `right_passed`, of `wrong` ones it
    failed `wrong_failed`.

    Several labels of one document count for less than one each, so counts need not be whole. `of_run` if the outputs
    are of the run that is estimated. `share` is the share of the run that the judge passed, if labels were drawn by its
    verdict: the share among the labels is the draw's. Raises ValueError for impossible counts.
    """

    right: float
    right_passed: float
    wrong: float
    wrong_failed: float
    design: Design = "by_hand"
    of_run: bool = False
    share: float | None = None

    @property
    def is_sample_of_run(self) -> bool:
        """True if the labels are a random sample of the run that is estimated, or of either part of it."""
        return self.of_run and self.design in ("all", "by_verdict", "random")

    @property
    def n(self) -> float:
        """The number of labels."""
        return self.right + self.wrong

    @property
    def passed(self) -> float:
        """The number of labelled outputs that the judge passed."""
        return self.right_passed + self.wrong - self.wrong_failed

    @property
    def failed(self) -> float:
        """The number of labelled outputs that it failed."""
        return self.right - self.right_passed + self.wrong_failed

    @property
    def right_failed(self) -> float:
        """The number of right outputs that it failed."""
        return self.right - self.right_passed

    @property
    def weighted(self) -> JudgeLabels:
        """The labels as a random draw would have chosen them, with the judge's passes in their `share`; no label
        counts for more than one."""
        if self.share is None or not self.passed or not self.failed:
            return self
        passed, failed = self.share / self.passed, (1 - self.share) / self.failed
        passed, failed = passed / max(passed, failed), failed / max(passed, failed)
        right_passed, wrong_failed = self.right_passed * passed, self.wrong_failed * failed
        wrong_passed, right_failed = (self.wrong - self.wrong_failed) * passed, self.right_failed * failed
        return JudgeLabels(
            right_passed + right_failed, right_passed, wrong_passed + wrong_failed, wrong_failed, self.design,
            self.of_run,
        )  # fmt: skip

    def __post_init__(self) -> None:
        if not (0 <= self.right_passed <= self.right and 0 <= self.wrong_failed <= self.wrong):
            raise ValueError(f"impossible counts of labels: {self}")


def label_worth(values: Sequence[tuple[int, float]], confidence: float = 0.95) -> float:
    """Return what part of these labels independent ones would tell as much as: 1 if clusters make no difference.

    `values` are 1 or 0, such as right or wrong, each with the number of its cluster.
    """
    if not values:
        return 1.0
    clusters = by_unit([value for _, value in values], [number for number, _ in values])
    sums = UnitSums.of([mean(cluster) for cluster in clusters], list(map(len, clusters)))
    return min(sums.observations(confidence) / len(values), 1.0)


def doubt_of_labels(labels: JudgeLabels, share: float, n: float) -> str | None:
    """Return why labels cannot correct a run in which the judge passed a `share` of n outputs, as a part of a
    sentence; None if they can.

    Labels of other outputs have to fit: the share that the judge passed among them may differ from that in the run by
    no more than chance explains (the score test of two proportions).
    """
    if labels.is_sample_of_run:
        return None
    if labels.design == "disputed":
        return "the labels are of the most disputed outputs, which are not a sample of the others"
    if labels.of_run:
        return "the labelled outputs of this run were picked and not drawn, so they are not a sample of it"
    labels = labels.weighted
    if not labels.n or not n:
        return None
    passed = labels.passed / labels.n
    p = _p_of_two(passed, labels.n, share, n)
    if p >= SURPRISE:
        return None
    return (
        f"the labels do not fit this run: the judge passed {number(passed)} of the labelled outputs, and "
        f"{number(share)} of this run's, which chance does not explain"
    )


def _p_of_two(one: float, n: float, other: float, m: float) -> float:
    """Return the two-sided p-value of two proportions, seen in n and in m observations, that are the same."""
    together = (one * n + other * m) / (n + m)
    variance = together * (1 - together) * (1 / n + 1 / m)
    return 2 * NormalDist().cdf(-abs(one - other) / math.sqrt(variance)) if variance > 0 else 1.0


@dataclass(frozen=True, slots=True)
class CorrectedSample:
    """A judge's raw share of passes, and the labels by which it is corrected."""

    raw: Sums
    labels: JudgeLabels

    @property
    def cases(self) -> int:
        """The number of test cases, as in `Sample`."""
        return self.raw.cases

    def estimate(self, confidence: float) -> Estimate:
        """Implement `Sample.estimate`, without a value if the labels do not tell the judge from chance."""
        measured = self._value()
        if measured is None:
            return Estimate.unknown(confidence, self.raw.counts, problem=USELESS)
        value = min(max(measured, 0.0), 1.0)
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
            _warning(measured, low, high),
            sample=self,
        )

    def with_cases(self, cases: int, confidence: float) -> tuple[float | None, float | None]:
        """Implement `Sample.with_cases`, for more outputs with the same labels."""
        return self._bounds(self.raw.effective(confidence, cases / self.raw.answered), confidence)

    @property
    def _method(self) -> Method:
        return "mover" if self.labels.is_sample_of_run else "rogan-gladen"

    def _value(self) -> float | None:
        if self.labels.is_sample_of_run:
            return self._of_draw(0.5)[0] if self.labels.n else None
        labels = self.labels.weighted
        if not labels.right or not labels.wrong:
            return None
        true_negatives = labels.wrong_failed / labels.wrong
        informedness = labels.right_passed / labels.right + true_negatives - 1
        if informedness <= 0:
            return None
        return (self.raw.share + true_negatives - 1) / informedness

    def _bounds(self, n: float, confidence: float) -> tuple[float, float]:
        if self.labels.is_sample_of_run:
            return max(self._mover(n, confidence, -1), 0.0), min(self._mover(n, confidence, 1), 1.0)
        return lang_reiczigel_interval(self.raw.share, n, self.labels.weighted, confidence)

    def _of_draw(self, unknown: float) -> tuple[float, float, float]:
        """Return the share that is right, and that among passed and among failed ones, which is `unknown` without
        labels."""
        labels, share = self.labels, self.raw.share
        of_passed = labels.right_passed / labels.passed if labels.passed else unknown
        of_failed = labels.right_failed / labels.failed if labels.failed else unknown
        return share * of_passed + (1 - share) * of_failed, of_passed, of_failed

    def _mover(self, n: float, confidence: float, side: Literal[-1, 1]) -> float:
        """Return the low bound (-1), or the high one. A part without labels counts as all wrong, or all right."""
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
    """Correct a judge's share of passes; return None if there is no such share to correct.

    At a planned look it holds at all of them. That of a run which is looked at as often as one likes is corrected as it
    is now: it does not hold at every look.
    """
    looked_at = estimate.sample
    plain = looked_at.plain if isinstance(looked_at, SequentialSample | GroupSequentialSample) else estimate
    raw = plain.sample
    if not isinstance(raw, Sums) or not plain.is_proportion:
        return None
    sample: Sample = CorrectedSample(raw, labels)
    share = sample.estimate(estimate.confidence)
    if isinstance(looked_at, GroupSequentialSample):
        return group_sequential_estimate(share, looked_at.look, looked_at.looks)
    return share


def _warning(measured: float, low: float, high: float) -> str | None:
    if not 0 <= measured <= 1:
        return (
            f"by the judge's errors among the labels {number(measured)} of all outputs would be right, which cannot be"
        )
    return "the interval has no width" if low >= high else None


def youden_index(labels: JudgeLabels, confidence: float = 0.95) -> tuple[float, float, float] | None:
    """Return Youden's J of a judge, its true positive rate + its true negative rate - 1, with its bounds; None unless
    there are right and wrong outputs.

    1 is a judge that never errs, 0 one that passes wrong outputs as often as right ones. Unlike kappa it does not
    depend on how many of the outputs are right. Wilson's limits of both rates are joined by MOVER.
    """
    labels = labels.weighted
    if not labels.right or not labels.wrong:
        return None
    rates = [(labels.right_passed / labels.right, labels.right), (labels.wrong_failed / labels.wrong, labels.wrong)]
    bounds = [wilson_interval(rate, n, confidence) for rate, n in rates]
    value = rates[0][0] + rates[1][0] - 1
    down, up = (
        math.hypot(*(rate - bound[end] for (rate, _), bound in zip(rates, bounds, strict=True))) for end in (0, 1)
    )
    return value, max(value - down, -1.0), min(value + up, 1.0)


def lang_reiczigel_interval(share: float, n: float, labels: JudgeLabels, confidence: float) -> tuple[float, float]:
    """Return the interval of the true share where a judge passes a `share` of n outputs; 0 and 1 if nothing is known.

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
    """Return the interval by the formula of Lang and Reiczigel, for given rates."""
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
