"""Agreement of raters beyond chance: Cohen's kappa of two, Krippendorff's alpha of any number."""

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
    """The number of times that two raters gave each pair of categories: `counts[i][j]` is the first's `i` with the
    second's `j`. Counts of weighted observations need not be whole."""

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


def krippendorff_alpha(units: Iterable[Sequence[Hashable]], *, interval: bool = False) -> float | None:
    """Krippendorff's alpha (2011) of any number of raters, who need not all have rated each unit.

    `units` have the ratings of one unit each, in any order. 1 is full agreement, 0 what chance would give. `interval`
    weighs a disagreement of numbers by its square; else categories are the same or not. None where fewer than two
    categories were given to units that two or more have rated.
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
    """The sum of the squared differences (of categories: 0 or 1) over all ordered pairs of ratings."""
    n = counts.total()
    if not interval or len(counts) < 2:
        return float(n * n - sum(count * count for count in counts.values()))
    numbers = [(float(value), count) for value, count in counts.items()]  # type: ignore[arg-type]  # the caller's promise
    centre = math.fsum(value * count for value, count in numbers) / n
    return 2 * n * math.fsum(count * (value - centre) ** 2 for value, count in numbers)
