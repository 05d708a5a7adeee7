import math
from random import Random

import pytest

from fepflow.statistics.proportions import shrunk_shares


def test_differences_that_chance_explains_are_not_believed() -> None:
    assert shrunk_shares([0.8, 0.9, 0.7, 0.8], [10, 10, 10, 10]) == pytest.approx([0.8] * 4)


def test_large_groups_keep_their_share_and_small_ones_are_drawn_in() -> None:
    large, small, other = shrunk_shares([0.5, 0.0, 0.95], [500, 4, 500])
    assert large == pytest.approx(0.5, abs=0.01)
    assert other == pytest.approx(0.95, abs=0.01)
    assert 0.05 < small < 0.3


def test_two_groups_and_groups_without_any_fail_stay_as_they_are() -> None:
    assert shrunk_shares([0.5, 0.9], [10, 10]) is None
    assert shrunk_shares([1.0, 1.0, 1.0], [10, 2, 5]) == [1.0, 1.0, 1.0]


def test_shrunk_shares_are_nearer_to_the_truth() -> None:
    rng = Random(7)
    raw_error = shrunk_error = 0.0
    for _ in range(200):
        rates = [rng.betavariate(16, 4) for _ in range(20)]
        raw = [sum(rng.random() < rate for _ in range(10)) / 10 for rate in rates]
        shrunk = shrunk_shares(raw, [10] * 20)
        raw_error += math.fsum((a - b) ** 2 for a, b in zip(raw, rates, strict=True))
        shrunk_error += math.fsum((a - b) ** 2 for a, b in zip(shrunk, rates, strict=True))
    assert shrunk_error < 0.6 * raw_error
