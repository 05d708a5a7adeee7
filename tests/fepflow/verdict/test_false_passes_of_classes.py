"""Simulations of how often the interval of precision, recall and F1 is above the truth: 2.5 % is promised."""

from __future__ import annotations

import math
from random import Random

import pytest

from fepflow.statistics.classification import ClassMeasure, LabelledUnit, LabelPair, classification_estimate
from fepflow.statistics.estimate import Counts

pytestmark = pytest.mark.battery

RUNS = 400
MOST = 0.025 + 2.5 * math.sqrt(0.025 * 0.975 / RUNS)


def confusion(classes: int, accuracy: float) -> list[list[float]]:
    wrong = (1 - accuracy) / (classes - 1)
    return [[accuracy if one == other else wrong for other in range(classes)] for one in range(classes)]


def truth(shares: list[float], rates: list[list[float]], measure: ClassMeasure) -> list[float]:
    """The value of each class over all such test cases."""
    values = []
    for label in range(len(shares)):
        right = shares[label] * rates[label][label]
        predicted = sum(share * of_class[label] for share, of_class in zip(shares, rates, strict=True))
        of_measure = {"recall": shares[label], "precision": predicted, "f1": (shares[label] + predicted) / 2}
        values.append(right / of_measure[measure])
    return values


@pytest.mark.parametrize("measure", ["precision", "recall", "f1"])
@pytest.mark.parametrize(
    ("shares", "rates", "n"),
    [
        ([0.5, 0.5], confusion(2, 0.9), 40),
        ([0.9, 0.1], [[0.97, 0.03], [0.2, 0.8]], 100),
        ([0.2] * 5, confusion(5, 0.9), 100),
        ([0.25] * 4, confusion(4, 0.6), 80),
    ],
    ids=["two", "rare", "five", "poor"],
)
def test_an_interval_is_seldom_above_the_truth(
    shares: list[float], rates: list[list[float]], n: int, measure: ClassMeasure
) -> None:
    rng, values = Random(20261125), truth(shares, rates, measure)
    above_mean = above_class = 0
    for _ in range(RUNS):
        expected = rng.choices(range(len(shares)), shares, k=n)
        pairs = [LabelPair(str(rng.choices(range(len(shares)), rates[label])[0]), str(label)) for label in expected]
        units = [LabelledUnit([pair]) for pair in pairs]
        mean = classification_estimate(units, Counts(n, n), measure)
        last = classification_estimate(units, Counts(n, n), measure, str(len(shares) - 1))
        above_mean += mean.low is not None and mean.low > sum(values) / len(values)
        above_class += last.low is not None and last.low > values[-1]
    assert above_mean / RUNS <= MOST
    assert above_class / RUNS <= MOST
