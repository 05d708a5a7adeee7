"""Agreement of raters beyond chance: Cohen's kappa for two, Krippendorff's alpha for any number."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from fepflow.statistics.proportions import z_score

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
