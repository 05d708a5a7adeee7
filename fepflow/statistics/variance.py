"""The parts of a result's variance: between test cases, runs, repeats of a case, and a judge's samples of one answer.

They say what more calls would tell: another case brings a new draw of every part, another repeat only one of its own
part. Estimated by analysis of variance, from results of which each case has as many repeats in each run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fepflow.statistics.means import mean


@dataclass(frozen=True, slots=True)
class VarianceParts:
    """The parts of the variance of one result; `run` is None for a single run. `repeat` is all that differs between
    answers to the same case in a run. `judge` is the part of it by which samples of the judge differ about one
    answer; None if it was asked once."""

    case: float
    run: float | None
    repeat: float
    judge: float | None

    @property
    def total(self) -> float:
        """The variance of one result."""
        return self.case + (self.run or 0.0) + self.repeat

    def narrowing(self, repeats: int) -> dict[str, float]:
        """Return the part by which an interval over cases with this number of repeats narrows with twice as many
        cases, repeats, or samples of the judge."""
        now = self.case + self.repeat / repeats
        then = {"cases": now / 2, "repeats": self.case + self.repeat / (2 * repeats)}
        if self.judge is not None:
            then["judge_samples"] = now - self.judge / 2 / repeats
        return {name: 1 - math.sqrt(variance / now) if now else 0.0 for name, variance in then.items()}


def variance_parts(
    runs: Sequence[Sequence[Sequence[float]]], votes: Sequence[Sequence[float]] = ()
) -> VarianceParts | None:
    """Return the parts of the variance of results: one sequence a run, in it one a case, in it the repeats' values.

    All runs have the same cases in the same order, and as many repeats. `votes` are a judge's samples, 0 or 1, for each
    of some answers. None if neither runs nor repeats are several, or there are fewer than two cases.
    """
    n_runs, n_cases = len(runs), len(runs[0]) if runs else 0
    repeats = len(runs[0][0]) if n_cases else 0
    if n_cases < 2 or (n_runs < 2 and repeats < 2):
        return None
    cells = [[mean(values) for values in run] for run in runs]
    of_cases = [mean(case) for case in zip(*cells, strict=True)]
    of_runs, overall = [mean(run) for run in cells], mean(of_cases)
    within = 0.0
    if repeats > 1:
        squares = ((value - cell) ** 2 for run, means in zip(runs, cells, strict=True)
                   for values, cell in zip(run, means, strict=True) for value in values)  # fmt: skip
        within = math.fsum(squares) / (n_runs * n_cases * (repeats - 1))
    between_cases = n_runs * math.fsum((mean_of_group - overall) ** 2 for mean_of_group in of_cases) / (n_cases - 1)
    between_runs, of_cell = None, within / repeats
    if n_runs > 1:
        residuals = (
            (cell - case - run + overall) ** 2
            for row, run in zip(cells, of_runs, strict=True)
            for cell, case in zip(row, of_cases, strict=True)
        )
        of_cell = math.fsum(residuals) / ((n_cases - 1) * (n_runs - 1))
        scatter = n_cases * math.fsum((mean_of_group - overall) ** 2 for mean_of_group in of_runs) / (n_runs - 1)
        between_runs = max((scatter - of_cell) / n_cases, 0.0)
    repeat = of_cell + within * (1 - 1 / repeats)
    several = [case for case in votes if len(case) > 1]
    judge = None
    if several:
        # A result is the majority of the samples: what they differ by is taken to be as that of their mean.
        differing = [mean(case) * (1 - mean(case)) / (len(case) - 1) for case in several]
        judge = min(mean(differing), repeat)
    return VarianceParts(max((between_cases - of_cell) / n_runs, 0.0), between_runs, repeat, judge)
