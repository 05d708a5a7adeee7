"""Preferences between outputs: the win rate of one run over another, and Bradley-Terry strengths of several.

A preference is 1 for the one side, 0 for the other, and half for a tie. What is sampled are test cases, so each gives
one value, the mean over its repeats. A win rate w is half of 1 + d, where d is the mean difference between wins and
losses: its interval and its p-value are those of a paired difference (`paired`), with all that is promised there.

Bradley and Terry (1952): the odds that one run is preferred to another are the ratio of their strengths. Strengths are
fitted by Hunter's MM steps (2004). Their intervals come from Rubin's Bayesian bootstrap (1981) over the clusters of
cases, as all pairs of a case share its outputs, with half a win and half a loss more between any two runs, in draws
from Gamma(1/2). Of two runs without ties it is Jeffreys' interval. So a run that won every time has a strength that is
large and uncertain, and not one that is infinite or sure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from random import Random
from typing import NamedTuple

from fepflow.statistics.estimate import Estimate, Scale
from fepflow.statistics.means import CaseValue
from fepflow.statistics.paired import Pairs, paired_estimate

DRAWS = 2_000
_STEPS = 2_000
_CLOSE = 1e-9
"""Change of a strength's logarithm at which the fit has come to its end."""
_CLOSE_ENOUGH = 1e-4
"""The same of one draw among many."""


@dataclass(frozen=True, slots=True)
class WinRate:
    """The share of pairs in which one run was preferred, ties counted by half, with its interval; None if unknown.

    `p` is two-sided, of no preference. `estimate` is the difference between wins and losses behind it.
    """

    value: float | None
    low: float | None
    high: float | None
    p: float | None
    estimate: Estimate

    @property
    def shown(self) -> int:
        """1 if the run is shown to be preferred, -1 if the other one is, 0 if neither: interval and test must agree."""
        if self.p is None or self.p > 1 - self.estimate.confidence:
            return 0
        low, high = self.estimate.interval
        return 1 if low > 0 else -1 if high < 0 else 0


def win_rate(
    cases: Sequence[CaseValue],
    confidence: float = 0.95,
    cluster_numbers: Sequence[int] | None = None,
    noun: str = "cluster",
    *,
    repeated: bool = False,
    unmatched: int = 0,
) -> WinRate:
    """Estimate a win rate from the mean preference of each case, from 0 to 1, with the bounds that it can have.

    A case without a preference could have been won or lost. `repeated` if a case's value may lie between, the others
    are as in `paired_estimate`.
    """
    differences = [
        CaseValue(None if case.value is None else 2 * case.value - 1, 2 * case.least - 1, 2 * case.most - 1)
        for case in cases
    ]
    scale = Scale(0.0, 1.0, binary=not repeated)
    estimate = paired_estimate(differences, confidence, scale, cluster_numbers, noun, unmatched)
    bounds = [None if figure is None else (1 + figure) / 2 for figure in (estimate.value, estimate.low, estimate.high)]
    p = estimate.sample.p_value() if isinstance(estimate.sample, Pairs) else None
    return WinRate(bounds[0], bounds[1], bounds[2], p, estimate)


def bradley_terry(wins: Sequence[Sequence[float]]) -> list[float] | None:
    """Return the logarithms of the strengths, with the mean 0, by the most likely fit to `wins[i][j]` of i over j.

    None where no fit is most likely: some runs won, or lost, every time against all others.
    """
    if not _is_connected(wins):
        return None
    return _fit(wins)


def _is_connected(wins: Sequence[Sequence[float]]) -> bool:
    """Return whether each run has beaten each other one, directly or by way of others (Ford 1957)."""
    count = len(wins)
    for start in range(count):
        reached, left = {start}, [start]
        while left:
            here = left.pop()
            new = [other for other in range(count) if wins[here][other] > 0 and other not in reached]
            reached.update(new)
            left += new
        if len(reached) < count:
            return False
    return True


def _fit(wins: Sequence[Sequence[float]], close: float = _CLOSE, start: Sequence[float] | None = None) -> list[float]:
    """Fit by steps from `start`, logarithms of strengths that are close to the result."""
    runs = range(len(wins))
    totals = [math.fsum(wins[one][other] for other in runs if other != one) for one in runs]
    games = [[wins[one][other] + wins[other][one] for other in runs] for one in runs]
    strengths = [1.0] * len(wins) if start is None else [math.exp(log_strength) for log_strength in start]
    for _ in range(_STEPS):
        steps = [
            totals[one]
            / math.fsum(games[one][other] / (strengths[one] + strengths[other]) for other in runs if other != one)
            for one in runs
        ]
        centre = math.exp(math.fsum(map(math.log, steps)) / len(steps))
        steps = [step / centre for step in steps]
        moved = max(abs(math.log(new / old)) for new, old in zip(steps, strengths, strict=True))
        strengths = steps
        if moved < close:
            break
    return [math.log(strength) for strength in strengths]


@dataclass(frozen=True, slots=True)
class Strength:
    """Strength of a run beside the first one: the logarithm of the odds that it is preferred, 0 for the first.

    `value` is None where no finite strength fits best. `low` and `high` are None for no bound.
    """

    value: float | None
    low: float | None
    high: float | None


Scores = Mapping[tuple[int, int], CaseValue]
"""The mean preferences of one case, by the numbers of two runs, the smaller first: 1 if that one is preferred."""


class _Sums(NamedTuple):
    """The preferences between two runs: `known` is the sum of those that are there, `cases` of them; `least` and `most`
    are of all, of which there are `expected`."""

    known: float
    cases: float
    least: float
    most: float
    expected: float


_NONE = _Sums(0.0, 0.0, 0.0, 0.0, 0.0)

_Pair = tuple[int, int]

_Unit = tuple[tuple[_Pair, _Sums], ...]
"""A cluster of cases; those that are alike are drawn together."""

MOST_UNITS = 500
"""Units that are drawn; of more, some at random are drawn as one. The width of an interval is known to 3 % so."""


def strengths(
    cases: Sequence[Scores],
    runs: int,
    confidence: float = 0.95,
    cluster_numbers: Sequence[int] | None = None,
    seed: int = 0,
    draws: int = DRAWS,
) -> list[Strength]:
    """Return the Bradley-Terry strengths of the runs beside the first one, with intervals.

    A preference that is missing counts against a run for its low bound, and for it for the high one.
    """
    random = Random(seed)  # noqa: S311  # draws of a statistic
    units = _units(cases, range(len(cases)) if cluster_numbers is None else cluster_numbers, random)
    counts = list(units.values())
    columns = _columns(units)
    is_complete = all(sums.cases == sums.expected and sums.least == sums.most for unit in units for _, sums in unit)
    fitted = bradley_terry(_wins(_weighted(columns, counts), runs))
    lows: list[list[float]] = [[] for _ in range(runs)]
    highs: list[list[float]] = [[] for _ in range(runs)]
    for _ in range(draws):
        # The sum of m draws from Exp(1) is one from Gamma(m).
        weights = [random.gammavariate(count, 1.0) if count > 1 else random.expovariate(1.0) for count in counts]
        sums = _weighted(columns, weights)
        # Gamma(1/2) may be 0 as far as a float can tell.
        added = [[random.gammavariate(0.5, 1.0) + 1e-12 for _ in range(runs)] for _ in range(runs)]
        drawn = _fit(_wins(sums, runs, added=added), _CLOSE_ENOUGH, fitted)
        for run in range(1, runs):
            for ends, side in ((lows, -1), (highs, 1)):
                if not is_complete:
                    wins = _wins(sums, runs, favoured=(run, side), added=added)
                    drawn = _fit(wins, _CLOSE_ENOUGH, drawn)
                ends[run].append(drawn[run] - drawn[0])
    tail = (1 - confidence) / 2
    return [
        Strength(0.0, 0.0, 0.0),
        *(
            Strength(
                None if fitted is None else fitted[run] - fitted[0],
                sorted(lows[run])[int(tail * draws)],
                sorted(highs[run])[-1 - int(tail * draws)],
            )
            for run in range(1, runs)
        ),
    ]


def _units(cases: Sequence[Scores], numbers: Sequence[int] | range, random: Random) -> Counter[_Unit]:
    clusters: dict[int, dict[_Pair, list[CaseValue]]] = {}
    for number, case in zip(numbers, cases, strict=True):
        for pair, value in case.items():
            clusters.setdefault(number, {}).setdefault(pair, []).append(value)
    units = Counter(
        tuple((pair, _summed(values)) for pair, values in sorted(cluster.items())) for cluster in clusters.values()
    )
    if len(units) <= MOST_UNITS:
        return units
    # At random, as neighbours may be alike.
    groups = {number: index % MOST_UNITS for index, number in enumerate(random.sample(list(clusters), len(clusters)))}
    return _units(cases, [groups[number] for number in numbers], random)


def _summed(values: Sequence[CaseValue]) -> _Sums:
    known = [value.value for value in values if value.value is not None]
    least, most = (math.fsum(getattr(value, end) for value in values) for end in ("least", "most"))
    return _Sums(math.fsum(known), len(known), least, most, len(values))


_Columns = dict[_Pair, list[tuple[float, ...]]]
"""The members of `_Sums` of each pair, each over all units."""


def _columns(units: Iterable[_Unit]) -> _Columns:
    sums = [dict(unit) for unit in units]
    pairs = sorted({pair for unit in sums for pair in unit})
    return {pair: list(zip(*(unit.get(pair, _NONE) for unit in sums), strict=True)) for pair in pairs}


def _weighted(columns: _Columns, weights: Sequence[float]) -> dict[_Pair, _Sums]:
    """Sum up over all units."""
    return {pair: _Sums(*(sum(map(mul, weights, column)) for column in of_pair)) for pair, of_pair in columns.items()}


def _wins(
    sums_of_pairs: Mapping[_Pair, _Sums],
    runs: int,
    favoured: tuple[int, int] | None = None,
    added: Sequence[Sequence[float]] | None = None,
) -> list[list[float]]:
    """Return how often each run was preferred to each other one.

    What is missing is left out, or with `favoured`, a run and 1 or -1, it counts for that run or against it, and the
    other way for the first run.
    """
    wins = [list(row) for row in added] if added is not None else [[0.0] * runs for _ in range(runs)]
    for (one, other), sums in sums_of_pairs.items():
        for_one = _side(one, other, favoured)
        won, of = sums.known, sums.cases
        if for_one:
            won, of = sums.most if for_one > 0 else sums.least, sums.expected
        wins[one][other] += won
        wins[other][one] += of - won
    return wins


def _side(one: int, other: int, favoured: tuple[int, int] | None) -> int:
    """Return 1 if what is missing counts for the one run, -1 if for the other, 0 if for none."""
    if favoured is None:
        return 0
    run, side = favoured
    if run in (one, other):
        return side if run == one else -side
    return -side if one == 0 else 0  # the first run is always the smaller number
