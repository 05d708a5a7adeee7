"""Precision, recall and F1 of a classification, of one class or as the mean over classes, with their intervals.

Each of them is a share of the results that concern a class: of those that expect it (recall), of those that predict it
(precision), of those that do either (Jaccard's index J, from which F1 = 2J / (1 + J) follows without any loss, so its
interval is J's at both ends). Given how many results concern the class, the number of right ones among them is
binomial, so the interval is Clopper and Pearson's: classes are small, where Wilson's shows too much.

The mean over classes has the interval that MOVER (Donner and Zou 2012) makes of those of the classes. Classes depend
on each other, as a wrong answer counts against two of them. Where an independent result concerns at most t classes,
the variance of a sum over classes is at most t times the sum of their variances (Cauchy and Schwarz), so the distances
to the bounds are taken t times, and the interval errs on the wide side.

What is missing counts at its worst: against its own class, and for F1 and precision also against the class that loses
most by it.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal, NamedTuple

from fepflow.statistics.estimate import Counts, Estimate
from fepflow.statistics.means import UnitSums
from fepflow.statistics.proportions import IntervalKind, interval_of

ClassMeasure = Literal["precision", "recall", "f1"]
MEASURES: tuple[ClassMeasure, ...] = ("precision", "recall", "f1")


class LabelPair(NamedTuple):
    """The label of a result, and the expected one."""

    predicted: str
    expected: str


@dataclass(frozen=True, slots=True)
class LabelledUnit:
    """A unit that is independent of the others: a test case, or a cluster of them.

    `missing` are the expected labels of the results that are missing, None for one that is not known.
    """

    pairs: Sequence[LabelPair]
    missing: Sequence[str | None] = ()


@dataclass(frozen=True, slots=True)
class _Class:
    """The `number` of results that concern a class, of which `right` are right.

    `units` sums them up by unit; None without any. `worst` and `best` are how many of the missing ones count as wrong,
    or as right, at their worst and best. `once` says that no unit has two results.
    """

    number: int
    right: int
    units: UnitSums | None
    once: bool
    worst: int = 0
    best: int = 0

    @property
    def at_worst(self) -> float:
        """The share that is right, with the missing at their worst."""
        return self.right / max(self.number + self.worst, 1)

    @property
    def share(self) -> float:
        """The share of the known results that is right."""
        return self.right / max(self.number, 1)

    @property
    def at_best(self) -> float:
        """The share that is right, with the missing at their best."""
        return (self.right + self.best) / (self.number + self.best) if self.number + self.best else 1.0

    def bounds(self, kind: IntervalKind, confidence: float, factor: float | None) -> tuple[float, float]:
        """Return the bounds; with a `factor`, those of a complete sample of that many times as many cases."""
        if self.units is None:
            return 0.0, 1.0
        if factor is not None:
            return interval_of(kind, self.share, self._effective(confidence, 0, factor), confidence)
        low, _ = interval_of(kind, self.at_worst, self._effective(confidence, self.worst), confidence)
        _, high = interval_of(kind, self.at_best, self._effective(confidence, self.best), confidence)
        return low, high

    def _effective(self, confidence: float, missing: int, factor: float = 1.0) -> float:
        """Return how many independent results these are worth. With some missing, a unit counts once: they might
        have differed from its others."""
        assert self.units is not None
        if self.once:
            return (self.number + missing) * factor
        if missing:
            return self.units.number
        return min(self.units.observations(confidence, factor), self.number * factor)


@dataclass(frozen=True, slots=True)
class ClassificationSample:
    """The classes of a metric, enough for its interval at any confidence: see Sample.

    `touched` is how many classes one independent unit concerns at most. `unknown` says that results are missing whose
    class is not known, and may be none of these.
    """

    measure: ClassMeasure
    classes: Sequence[_Class]
    touched: int
    unknown: bool
    kind: IntervalKind
    counts: Counts
    cases: int

    def estimate(self, confidence: float) -> Estimate:
        """Implement `Sample.estimate`."""
        known = [self._scaled(class_.share) for class_ in self.classes if class_.number or len(self.classes) > 1]
        if not any(class_.number for class_ in self.classes):
            return Estimate.unknown(confidence, self.counts)
        value = fmean(known)
        low, high = self._bounds(confidence, None)
        least = self._mean([class_.at_worst for class_ in self.classes], 0.0)
        most = self._mean([class_.at_best for class_ in self.classes], 1.0)
        return Estimate(
            value,
            None,
            min(low, value),
            max(high, value),
            confidence,
            "classification",
            self.counts,
            min(least, value),
            max(most, value),
            sample=self,
        )

    def with_cases(self, cases: int, confidence: float) -> tuple[float | None, float | None]:
        """Implement `Sample.with_cases`."""
        return self._bounds(confidence, cases / self.cases)

    def _bounds(self, confidence: float, factor: float | None) -> tuple[float, float]:
        """Return the bounds, with what is missing at its worst and best; with a `factor`, without anything missing."""
        lows, highs = [], []
        for class_ in self.classes:
            at_worst, at_best = (
                (class_.share, class_.share) if factor is not None else (class_.at_worst, class_.at_best)
            )
            low, high = map(self._scaled, class_.bounds(self.kind, confidence, factor))
            lows.append((self._scaled(at_worst), low))
            highs.append((self._scaled(at_best), high))
        if self.unknown and factor is None:
            lows.append((0.0, 0.0))
            highs.append((1.0, 1.0))
        below, above = self._distance(lows), self._distance(highs)
        if len(lows) > 1:  # where most classes are at one end of the scale, their bounds there leave too little room
            below = above = max(below, above)
        worst, best = (fmean(value for value, _ in bounds) for bounds in (lows, highs))
        return max(worst - below, 0.0), min(best + above, 1.0)

    def _distance(self, bounds: Sequence[tuple[float, float]]) -> float:
        squares = math.fsum((value - bound) ** 2 for value, bound in bounds)
        return math.sqrt(min(self.touched, len(bounds)) * squares) / len(bounds)

    def _mean(self, shares: Sequence[float], of_unknown: float) -> float:
        return fmean([*map(self._scaled, shares), *[of_unknown] * self.unknown])

    def _scaled(self, share: float) -> float:
        return f1_of(share) if self.measure == "f1" else share


def f1_of(jaccard: float) -> float:
    """Return F1 of Jaccard's index: the share that is right of all results that expect or predict a class."""
    return 2 * jaccard / (1 + jaccard)


def classification_estimate(
    units: Sequence[LabelledUnit],
    counts: Counts,
    measure: ClassMeasure,
    label: str | None = None,
    confidence: float = 0.95,
    kind: IntervalKind = "clopper-pearson",
    repeats: int = 1,
) -> Estimate:
    """Estimate precision, recall or F1 of one class, or their mean over all classes that are expected.

    A predicted label that no result expects is not a class: it only counts against the expected one. A class of the
    mean that is never predicted has a precision of 0. `repeats` is the number of results of a test case.
    """
    if label is not None:
        return class_estimates(units, counts, measure, [label], confidence, kind)[label]
    missing = [expected for unit in units for expected in unit.missing]
    names = dict.fromkeys(pair.expected for unit in units for pair in unit.pairs)
    names |= dict.fromkeys(expected for expected in missing if expected is not None)
    classes = list(_at_their_worst(_classes(units, measure, names), missing, measure).values())
    touched = {"recall": 1, "precision": repeats, "f1": repeats + 1}[measure] if counts.clusters is None else len(names)
    sample = ClassificationSample(measure, classes, touched, None in missing, kind, counts, max(len(units), 1))
    return sample.estimate(confidence)


def class_estimates(
    units: Sequence[LabelledUnit],
    counts: Counts,
    measure: ClassMeasure,
    labels: Iterable[str],
    confidence: float = 0.95,
    kind: IntervalKind = "clopper-pearson",
) -> dict[str, Estimate]:
    """Estimate precision, recall or F1 of each of these classes."""
    missing = Counter(expected for unit in units for expected in unit.missing)
    estimates = {}
    for label, of_label in _classes(units, measure, labels).items():
        # A result whose label is not known may be of this class, or wrongly be taken for it.
        own = missing[label] + missing[None]
        worst = {"recall": own, "f1": missing.total(), "precision": missing.total() - missing[label]}[measure]
        gaps = max(worst, own)
        errors = min(counts.error, gaps)
        skipped = min(counts.skipped, gaps - errors)
        of_class = Counts(of_label.number + gaps, of_label.number, errors, skipped, counts.clusters)
        classes = [replace(of_label, worst=worst, best=own)]
        sample = ClassificationSample(measure, classes, 1, False, kind, of_class, max(len(units), 1))
        estimates[label] = sample.estimate(confidence)
    return estimates


def _classes(units: Iterable[LabelledUnit], measure: ClassMeasure, labels: Iterable[str]) -> dict[str, _Class]:
    """Return the results that concern each of these labels."""
    shares: dict[str, list[float]] = {label: [] for label in labels}
    sizes: dict[str, list[int]] = {label: [] for label in shares}
    right, once = Counter[str](), True
    for unit in units:
        once = once and len(unit.pairs) + len(unit.missing) <= 1
        concerned, good = Counter[str](), Counter[str]()
        for pair in unit.pairs:
            of_pair = {"recall": {pair.expected}, "precision": {pair.predicted}, "f1": {*pair}}[measure]
            concerned.update(of_pair)
            good[pair.expected] += pair.expected == pair.predicted
        for label in concerned.keys() & shares.keys():
            shares[label].append(good[label] / concerned[label])
            sizes[label].append(concerned[label])
            right[label] += good[label]
    return {
        label: _Class(sum(of_units), right[label], UnitSums.of(shares[label], of_units) if of_units else None, once)
        for label, of_units in sizes.items()
    }


def _at_their_worst(
    by_name: Mapping[str, _Class], missing: Sequence[str | None], measure: ClassMeasure
) -> dict[str, _Class]:
    """Return the classes with the missing results where they lower the mean most: each against its own class, and for
    precision and F1 against one more, which loses most by it."""
    own = Counter(expected for expected in missing if expected is not None)
    worst = Counter(own) if measure != "precision" else Counter[str]()
    best = {name: own[name] + missing.count(None) for name in by_name}
    unplaced = len(missing) if measure != "recall" else 0
    unplaced += missing.count(None) if measure != "precision" else 0

    def loss(name: str) -> float:
        class_, placed = by_name[name], worst[name]
        before, after = class_.right / max(class_.number + placed, 1), class_.right / (class_.number + placed + 1)
        return f1_of(after) - f1_of(before) if measure == "f1" else after - before

    losses = [(loss(name), name) for name in by_name]
    heapq.heapify(losses)
    for _ in range(unplaced if losses else 0):
        _, name = losses[0]
        worst[name] += 1
        heapq.heapreplace(losses, (loss(name), name))
    return {name: replace(class_, worst=worst[name], best=best[name]) for name, class_ in by_name.items()}
