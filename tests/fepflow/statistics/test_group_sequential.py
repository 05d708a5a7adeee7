import pytest

from fepflow.statistics.estimate import PROPORTION, Counts
from fepflow.statistics.means import mean_estimate
from fepflow.statistics.proportions import wilson_interval, z_score
from fepflow.statistics.sequential import boundaries, group_sequential_estimate, nominal_confidence


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        (1, [1.960]),
        (2, [2.963, 1.969]),
        (3, [3.710, 2.511, 1.993]),
        (4, [4.333, 2.963, 2.359, 2.014]),
        (5, [4.877, 3.357, 2.680, 2.290, 2.031]),
    ],
)
def test_golden_boundaries(looks: int, expected: list[float]) -> None:
    assert boundaries(looks) == pytest.approx(expected, abs=0.0006)


def test_boundaries_fall_and_the_last_is_above_that_of_one_look() -> None:
    for confidence in (0.9, 0.95, 0.995):
        limits = boundaries(10, confidence)
        assert list(limits) == sorted(limits, reverse=True)
        assert limits[-1] > z_score(confidence)
    with pytest.raises(ValueError, match="1 to 10 looks"):
        boundaries(11)


def test_an_interval_is_that_of_its_looks_boundary() -> None:
    plain = mean_estimate([[1.0]] * 96 + [[0.0]] * 4, Counts(100, 100), scale=PROPORTION)
    first, last = (group_sequential_estimate(plain, look, 4) for look in (1, 4))
    assert (first.low, first.high) == pytest.approx(wilson_interval(0.96, 100, nominal_confidence(1, 4, 0.95)))
    assert first.low < last.low < plain.low
    assert (last.confidence, last.method, last.counts) == (0.95, "sequential-few-looks", plain.counts)
    wider = last.at(0.975)
    assert wider.low < last.low
    assert (wider.confidence, wider.at(0.95)) == (0.975, last)
    assert last.sample.with_cases(400, 0.95)[0] > last.low


def test_without_a_value_there_is_no_interval() -> None:
    nothing = mean_estimate([[], []], Counts(2, 0, error=2), scale=PROPORTION)
    assert group_sequential_estimate(nothing, 1, 4) is nothing
