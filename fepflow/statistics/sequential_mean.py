"""The mean of a metric with an interval that holds however often it is looked at, for runs that are topped up.

It is about all test cases like these, of which each case's mean is one observation: cases come in random order, looked
at after complete groups. Or it is about *these cases* alone, and each result is an observation: repeats come in rounds,
looked at after complete ones. Cases differ, but the wealth of a bet on results of several shares that passed is at most
that on as many of their mean share, so the same evidence holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

from fepflow.statistics.estimate import Estimate, Method
from fepflow.statistics.scale import Scale
from fepflow.statistics.sequential import Values, confidence_sequence


@dataclass(frozen=True, slots=True)
class SequentialSample:
    """Shares of the scale, from 0 to 1: of what completed (`seen`), and of all that was expected, with what is missing
    at its least and at its most. `plain` is the estimate of which the interval is replaced."""

    plain: Estimate
    scale: Scale
    method: Method
    cases: int
    seen: Values
    least: Values
    most: Values

    def estimate(self, confidence: float) -> Estimate:
        """See `estimate.Sample`."""
        low, high = confidence_sequence(self.least, confidence)[0], confidence_sequence(self.most, confidence)[1]
        value = self.plain.value
        assert value is not None
        return replace(
            self.plain,
            stderr=self.plain.stderr if self.method == "sequential" else None,
            low=min(self.scale.value(low), value),
            high=max(self.scale.value(high), value),
            confidence=confidence,
            method=self.method,
            sample=self,
        )

    def with_cases(self, cases: int, confidence: float) -> tuple[float | None, float | None]:
        """See `estimate.Sample`."""
        low, high = confidence_sequence(self.seen.roughly(cases / self.cases), confidence)
        return self.scale.value(low), self.scale.value(high)


def sequential_estimate(
    plain: Estimate, values_by_case: Sequence[Sequence[float]], repeats: int, scale: Scale, *, these_cases: bool
) -> Estimate:
    """The estimate with an interval that holds at every look.

    `values_by_case` is as for `mean_estimate`; each case was to have so many `repeats`. Without a value: as it is.
    """
    if plain.value is None:
        return plain
    shares = [[scale.share(value) for value in case] for case in values_by_case]
    if these_cases:
        results = list(chain.from_iterable(shares))
        missing = len(shares) * repeats - len(results)
        seen, least, most = (Values.of([*results, *repeat(end, count)]) for end, count in _ends(missing))
    else:
        seen = Values.of(math.fsum(case) / len(case) for case in shares if case)
        least, most = (
            Values.of(min((math.fsum(case) + end * (repeats - len(case))) / repeats, 1.0) for case in shares)
            for end in (0, 1)
        )
    method: Method = "sequential-these-cases" if these_cases else "sequential"
    return SequentialSample(plain, scale, method, len(shares), seen, least, most).estimate(plain.confidence)


def _ends(missing: int) -> list[tuple[float, int]]:
    return [(0.0, 0), (0.0, missing), (1.0, missing)]
