"""Bounds of a mean of scores from 0 to 1, by the moments of the scores.

A sample of good scores looks alike until the first bad one comes: of scores that are 0.91, or 0 for one in ninety, a
spread measured by the sample shows a mean of 0.9 up to 6.6 % of the time, where 2.5 % is promised. So the spread is
that which the scores would have if their mean were at the bound, as in Wilson's interval: a lower mean comes from more
of the bad scores, by as much as the scores lean to that side (their third moment). Two bad scores that did not come
are counted for that. Of scores that are 0 or one other number it is Wilson's interval, times that number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from fepflow.statistics.proportions import IntervalKind, interval_of, z_score

UNSEEN = 2
"""Bad scores that are taken to be possible, and did not come."""


class Moments(NamedTuple):
    """The number of scores from 0 to 1, and the means of them, of their squares and of their cubes.

    `cube` is None where it is not known: then the scores are taken to lean as far as they can.
    """

    number: float
    mean: float
    square: float
    cube: float | None

    @classmethod
    def of(cls, scores: Sequence[float]) -> Moments:
        """Compute the moments of at least one score."""
        n = len(scores)
        mean, square, cube = (math.fsum(score**power for score in scores) / n for power in (1, 2, 3))
        return cls(n, mean, square, cube)

    def low(self, kind: IntervalKind, confidence: float, factor: float = 1.0) -> float:
        """Return the low bound of the mean; with a `factor`, that of that many times as many scores.

        The exact kind, and scores that lean to an unknown side, get that of the worst case: each score is 0 or one
        other number, the mean of squares divided by the mean.
        """
        n = self.number * factor
        if self.mean <= 0:
            return 0.0
        if self.cube is None or kind == "clopper-pearson":
            other = max(min(self.square / self.mean, 1.0), self.mean)
            return other * interval_of(kind, self.mean / other, n, confidence)[0]
        return self._by_lean(n, self.cube, z_score(confidence) ** 2 / n)

    def _by_lean(self, n: float, cube: float, t: float) -> float:
        """Solve (mean - m)² = t (variance + slope (mean - m) - (mean - m)²) for m."""
        spread = (n + UNSEEN) * self.square - n * self.mean**2
        lean = ((n + UNSEEN) * cube - n * self.mean * self.square) / spread if spread > 0 else 0.0
        variance = max(self.square - self.mean**2, 0.0)
        half = t * (2 * self.mean - lean) / (1 + t) / 2
        return max(self.mean - half - math.sqrt(half**2 + t * variance / (1 + t)), 0.0)
