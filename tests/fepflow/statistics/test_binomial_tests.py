import gc

import pytest
import scipy  # its parts are loaded when they are used
from hypothesis import given
from hypothesis import strategies as st

from fepflow.statistics.proportions import holm, mid_p_below

P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=20)


def test_golden_values() -> None:
    assert 2 * mid_p_below(3, 15, 0.5) == pytest.approx(0.021271, abs=5e-7)
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@given(st.integers(1, 500), st.data(), st.floats(0.01, 0.99))
def test_the_mid_p_value_is_that_of_the_binomial_distribution(n: int, data: st.DataObject, rate: float) -> None:
    k = data.draw(st.integers(0, n))
    expected = scipy.stats.binom.cdf(k - 1, n, rate) + scipy.stats.binom.pmf(k, n, rate) / 2
    assert mid_p_below(k, n, rate) == pytest.approx(expected, rel=1e-9, abs=1e-15)


@given(st.floats(0.5, 300), st.floats(0, 1), st.floats(0.01, 0.99), st.floats(0, 5))
def test_more_successes_never_make_it_smaller(n: float, share: float, rate: float, more: float) -> None:
    fewer = mid_p_below(share * n, n, rate)
    assert 0 <= fewer <= 1
    assert mid_p_below(min(share * n + more, n), n, rate) >= fewer - 1e-9


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (0, -1)])
def test_nothing_is_not_tested(successes: float, n: float) -> None:
    with pytest.raises(ValueError, match="nothing to test"):
        mid_p_below(successes, n, 0.5)


@given(P_VALUES)
def test_the_correction_is_that_of_statsmodels(p_values: list[float]) -> None:
    from statsmodels.stats.multitest import multipletests

    gc.freeze()  # statsmodels has the collector look through all that the tests before have left, each time
    _, adjusted, _, _ = multipletests(p_values, method="holm")
    assert holm(p_values) == pytest.approx(list(adjusted))


def test_no_p_values_are_none() -> None:
    assert holm([]) == []
