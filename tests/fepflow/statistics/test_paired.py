"""Two runs of the same cases: golden values, and the same as scipy has where it has it."""

from __future__ import annotations

import math
from random import Random
from statistics import NormalDist, fmean, stdev

import pytest
import scipy  # its parts are loaded when they are used
from hypothesis import given, settings
from hypothesis import strategies as st

from fepflow.statistics.estimate import PROPORTION, Counts, Scale
from fepflow.statistics.means import CaseValue, mean_estimate
from fepflow.statistics.paired import Pairs, difference, mcnemar_mid_p, paired_estimate, tango_interval

SHARES = Scale(0.0, 1.0)
NONE = CaseValue(None, 0.0, 1.0)


def exact(value: float) -> CaseValue:
    return CaseValue(value, value, value)


def pairs(improved: int, worsened: int, n: int, missing: int = 0) -> list[CaseValue]:
    """Yes or no of so many cases with both halves, and of so many without one."""
    same = n - improved - worsened
    values = [*[exact(1.0)] * improved, *[exact(-1.0)] * worsened, *[exact(0.0)] * same]
    return [*values, *[difference(exact(1.0), NONE, PROPORTION)] * missing]


def test_golden_values() -> None:
    assert mcnemar_mid_p(3, 12) == pytest.approx(0.021271, abs=5e-7)
    assert tango_interval(3, 12, 100) == pytest.approx((-0.173743, -0.015977), abs=5e-7)
    assert tango_interval(0, 0, 100) == pytest.approx((-0.036993, 0.036993), abs=5e-7)


@given(st.integers(0, 30), st.integers(0, 30))
def test_the_mid_p_value_is_the_exact_one_less_half_of_its_last_term(improved: int, worsened: int) -> None:
    least, n = min(improved, worsened), improved + worsened
    exact_p = 2 * scipy.special.bdtr(least, n, 0.5)
    last = math.comb(n, least) / 2**n
    assert mcnemar_mid_p(improved, worsened) == pytest.approx(exact_p - last if improved != worsened else 1.0)


@settings(deadline=None)
@given(st.integers(0, 20), st.integers(0, 20), st.integers(1, 100), st.sampled_from([0.8, 0.95, 0.99]))
def test_the_ends_of_tangos_interval_are_where_the_score_test_just_rejects(
    improved: int, worsened: int, same: int, confidence: float
) -> None:
    """With the rates that are likeliest at a difference, found by a search instead of a formula."""
    n, z = improved + worsened + same, NormalDist().inv_cdf((1 + confidence) / 2)

    def score(delta: float) -> float:
        def unlikelihood(q: float) -> float:  # q: the chance that a case worsens
            chances = ((improved, q + delta), (worsened, q), (same, 1 - 2 * q - delta))
            return -math.fsum(count * math.log(max(chance, 1e-300)) for count, chance in chances if count)

        least, most = max(0.0, -delta), (1 - delta) / 2
        q = scipy.optimize.minimize_scalar(
            unlikelihood, bounds=(least, most), method="bounded", options={"xatol": 1e-12}
        ).x
        return (improved - worsened - n * delta) / math.sqrt(n * (2 * q + delta * (1 - delta)))

    low, high = tango_interval(improved, worsened, n, confidence)
    centre = (improved - worsened) / n
    assert low <= centre <= high
    if centre > -0.99:
        assert low == pytest.approx(
            scipy.optimize.brentq(lambda delta: score(delta) - z, -1 + 1e-9, centre - 1e-9), abs=1e-4
        )
    assert (-high, -low) == pytest.approx(tango_interval(worsened, improved, n, confidence), abs=1e-12)


def test_yes_or_no_without_repeats_gets_tangos_interval_and_mcnemars_p() -> None:
    found = paired_estimate(pairs(3, 12, 100), scale=PROPORTION)
    assert (found.method, found.counts) == ("tango", Counts(100, 100))
    assert found.value == pytest.approx(-0.09)
    assert (found.low, found.high) == pytest.approx(tango_interval(3, 12, 100))
    assert isinstance(found.sample, Pairs)
    assert found.sample.p_value() == pytest.approx(0.021271, abs=5e-7)


def test_a_missing_half_counts_as_much_as_a_case_can_differ_whichever_way() -> None:
    found = paired_estimate(pairs(3, 12, 100, missing=5), scale=PROPORTION)
    assert found.value == pytest.approx(-0.09)
    assert found.counts == Counts(105, 100, 5)
    assert found.low == pytest.approx(tango_interval(3, 17, 105)[0])
    assert found.high == pytest.approx(tango_interval(8, 12, 105)[1])
    assert (found.least, found.most) == pytest.approx((-14 / 105, -4 / 105))
    assert isinstance(found.sample, Pairs)
    assert found.sample.p_value() == pytest.approx(mcnemar_mid_p(8, 12))
    for base, new in ((exact(1.0), NONE), (NONE, exact(0.0)), (NONE, NONE)):
        assert difference(base, new, PROPORTION) == (None, -1.0, 1.0)


def test_missing_repeats_are_taken_at_the_ends_of_the_range() -> None:
    assert difference(exact(0.5), CaseValue(1.0, 2 / 3, 1.0), SHARES) == pytest.approx((0.5, 1 / 6, 0.5))
    assert difference(exact(3.0), exact(8.0), Scale(0, 10)) == (5.0, 5.0, 5.0)
    assert difference(NONE, exact(8.0), Scale(0, 10)) == (None, -10.0, 10.0)
    assert difference(NONE, exact(8.0), None) == (None, -math.inf, math.inf)


def test_repeats_and_scores_get_the_interval_of_values_with_a_range() -> None:
    rng = Random(1)
    values = [rng.choice((-1.0, -0.5, 0.0, 0.0, 0.5)) for _ in range(60)]
    found = paired_estimate([exact(value) for value in values], scale=SHARES)
    expected = mean_estimate([[value] for value in values], Counts(60, 60), scale=Scale(-1, 1))
    assert found.method == "paired-bounded"
    assert (found.value, found.low, found.high) == pytest.approx((expected.value, expected.low, expected.high))


def test_a_few_cases_that_break_among_many_that_do_not_are_not_taken_for_a_small_spread() -> None:
    """Ninety small gains and no loss: one more case could have broken, which Student's t knows nothing of."""
    found = paired_estimate([exact(0.1)] * 45 + [exact(0.0)] * 45, scale=SHARES)
    assert found.stderr is not None
    low, high = found.interval
    assert found.value == pytest.approx(0.05)
    assert low < 0.05 - 6 * found.stderr < high


def test_nothing_that_differs_is_about_as_sure_with_and_without_repeats() -> None:
    plain, repeated = (paired_estimate(pairs(0, 0, 100), scale=scale) for scale in (PROPORTION, SHARES))
    assert plain.low == pytest.approx(-0.036993, abs=5e-7)
    assert repeated.low == pytest.approx(plain.low, rel=0.02)


@settings(deadline=None)
@given(st.integers(20, 60), st.integers(0, 1_000_000))
def test_values_without_a_range_get_the_interval_of_the_paired_t_test(n: int, seed: int) -> None:
    rng = Random(seed)
    base = [rng.gauss(100, 10) for _ in range(n)]
    new = [value + rng.gauss(3, 5) for value in base]
    found = paired_estimate([difference(exact(one), exact(two), None) for one, two in zip(base, new, strict=True)])
    differences = [two - one for one, two in zip(base, new, strict=True)]
    margin = scipy.special.stdtrit(n - 1, 0.975) * stdev(differences) / math.sqrt(n)
    assert found.method == "paired-t"
    assert (found.low, found.high) == pytest.approx((fmean(differences) - margin, fmean(differences) + margin))
    assert isinstance(found.sample, Pairs)
    assert found.interval == (-math.inf, math.inf)
    assert found.sample.p_value() is None, "a p-value would be a judgement, too"


def test_values_without_a_range_have_no_bounds_once_one_is_missing() -> None:
    differences = [exact(float(n % 7) - 3) for n in range(40)]
    found = paired_estimate([*differences, CaseValue(None, -math.inf, math.inf)])
    assert (found.low, found.high, found.counts) == (None, None, Counts(41, 40, 1))
    assert isinstance(found.sample, Pairs)
    assert found.sample.p_value() is None


def test_no_pair_has_both_halves() -> None:
    found = paired_estimate(pairs(0, 0, 0, missing=4), scale=PROPORTION)
    assert (found.value, found.low, found.high, found.method) == (None, None, None, "none")
    assert found.counts == Counts(4, 0, 4)
    with pytest.raises(ValueError, match="nothing to compare"):
        tango_interval(0, 0, 0)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(1, 5))
def test_less_that_is_known_never_makes_the_interval_narrower(
    improved: int, worsened: int, same: int, missing: int
) -> None:
    n = improved + worsened + same
    for scale in (PROPORTION, SHARES):
        found = [paired_estimate(pairs(improved, worsened, n, missing=lost), scale=scale) for lost in (0, missing)]
        if found[0].value is not None:
            (low, high), (least, most) = found[0].interval, found[1].interval
            assert least <= low + 1e-9
            assert most >= high - 1e-9


def test_more_cases_like_these_make_it_narrower() -> None:
    for scale in (PROPORTION, SHARES):
        sample = paired_estimate(pairs(3, 12, 100), scale=scale).sample
        assert sample is not None
        few, many = sample.with_cases(100, 0.95), sample.with_cases(400, 0.95)
        assert few[0] < many[0] < many[1] < few[1]


def test_scores_that_differ_by_all_of_their_scale_have_a_p_value() -> None:
    found = paired_estimate([difference(exact(1.0), exact(0.0), SHARES)] * 2, 0.95, SHARES)
    assert isinstance(found.sample, Pairs)
    p_value = found.sample.p_value()
    assert p_value is not None
    assert 0 < p_value < 1


def test_repeats_without_any_difference_have_the_p_value_of_none() -> None:
    found = paired_estimate([difference(exact(0.5), exact(0.5), SHARES)] * 3, 0.95, SHARES)
    assert isinstance(found.sample, Pairs)
    assert found.sample.p_value() == pytest.approx(1.0)
