"""Differences between two runs by a judge that errs."""

from __future__ import annotations

import math
from random import Random

import pytest

from fepflow.statistics.estimate import PROPORTION, Scale
from fepflow.statistics.judges import USELESS, JudgeLabels, youden_index
from fepflow.statistics.means import CaseValue
from fepflow.statistics.paired import corrected_difference, difference, paired_estimate, tango_interval

SURE = JudgeLabels(10**7, 10**7, 10**7, 10**7)
HALF = JudgeLabels(200, 200, 200, 100)


def pairs(better: int, worse: int, same: int, missing: int = 0):
    values = [(0.0, 1.0)] * better + [(1.0, 0.0)] * worse + [(1.0, 1.0)] * same
    halves = [(CaseValue(a, a, a), CaseValue(b, b, b)) for a, b in values]
    halves += [(CaseValue(1.0, 1.0, 1.0), CaseValue(None, 0.0, 1.0))] * missing
    return paired_estimate([difference(a, b, PROPORTION) for a, b in halves], 0.95, PROPORTION)


def test_a_judge_that_never_errs_changes_nothing() -> None:
    raw = pairs(3, 12, 85)
    made = corrected_difference(raw, SURE)
    assert made is not None
    assert (made.value, made.low, made.high) == pytest.approx((raw.value, raw.low, raw.high), abs=1e-5)
    assert (made.method, made.counts) == ("paired-rogan-gladen", raw.counts)


def test_a_judge_that_passes_half_of_what_is_wrong_hides_half_of_a_regression() -> None:
    made = corrected_difference(pairs(3, 12, 85), HALF)
    value, low, high = youden_index(HALF) or (0, 0, 0)
    assert value == 0.5
    least, most = tango_interval(3, 12, 100)
    assert made is not None
    assert (made.value, made.low, made.high) == pytest.approx((-0.18, least / low, most / high))
    assert made.at(0.99).interval[0] < made.low
    assert made.sample is not None
    assert made.sample.with_cases(10_000, 0.95)[0] > made.low


def test_what_is_missing_could_have_been_anything() -> None:
    made, whole = (corrected_difference(pairs(3, 12, 85 - n, n), HALF) for n in (10, 0))
    assert made is not None
    assert whole is not None
    assert made.low < whole.low
    assert made.high > whole.high
    assert made.point_range[0] < whole.point_range[0] < made.point_range[1]
    assert -1 <= made.low <= made.high <= 1


def test_labels_that_tell_nothing_show_nothing() -> None:
    for labels in (JudgeLabels(50, 50, 50, 0), JudgeLabels(50, 50, 0, 0), JudgeLabels(50, 10, 50, 10)):
        made = corrected_difference(pairs(0, 0, 100), labels)
        assert made is not None
        assert (made.value, made.problem) == (None, USELESS)
    few = corrected_difference(pairs(0, 0, 100), JudgeLabels(1, 1, 1, 1))
    assert few is not None
    assert (few.value, few.low, few.high) == (0.0, -1.0, 1.0)


def test_only_differences_of_shares_are_corrected() -> None:
    scores = [CaseValue(value, value, value) for value in (0.1, 0.5, -0.2)]
    assert corrected_difference(paired_estimate(scores, 0.95), HALF) is None
    assert corrected_difference(paired_estimate(scores, 0.95, Scale(0.0, 1.0)), HALF) is not None


@pytest.mark.parametrize(("labels", "sensitivity", "specificity"), [(60, 0.95, 0.7), (200, 0.9, 0.9), (40, 1.0, 0.6)])
@pytest.mark.battery
def test_what_is_worse_by_the_margin_seldom_passes(labels: int, sensitivity: float, specificity: float) -> None:
    """200 cases, 0.9 of them right in the base; each output is judged, and each label drawn, anew."""
    rng, runs, margin = Random(7), 400, 0.1

    def judged(right: bool) -> float:
        return float(rng.random() < (sensitivity if right else 1 - specificity))

    passes = raw_passes = 0
    for _ in range(runs):
        known = JudgeLabels(
            labels, int(sum(judged(True) for _ in range(labels))),
            labels, labels - int(sum(judged(False) for _ in range(labels))),
        )  # fmt: skip
        differences = []
        for _ in range(200):
            base = rng.random() < 0.9
            new = base and rng.random() >= margin / 0.9
            a, b = judged(base), judged(new)
            differences.append(difference(CaseValue(a, a, a), CaseValue(b, b, b), PROPORTION))
        raw = paired_estimate(differences, 0.95, PROPORTION)
        made = corrected_difference(raw, known)
        assert made is not None
        passes += made.interval[0] >= -margin
        raw_passes += raw.interval[0] >= -margin
    assert passes / runs < 0.025 + 2.5 * math.sqrt(0.025 * 0.975 / runs)
    assert raw_passes > passes
