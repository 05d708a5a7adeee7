import pytest
import scipy  # its parts are loaded when they are used
from hypothesis import given
from hypothesis import strategies as st

from fepflow.statistics.proportions import holm, mid_p_below


def test_golden_values() -> None:
    assert 2 * mid_p_below(3, 15, 0.5) == pytest.approx(0.021271, abs=5e-7)
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@given(st.integers(1, 500), st.data(), st.floats(0.01, 0.99))
def test_the_mid_p_value_is_that_of_the_binomial_distribution(n: int, data: st.DataObject, rate: float) -> None:
    k = data.draw(st.integers(0, n))
    fewer = scipy.special.bdtr(k - 1, n, rate) if k else 0.0
    expected = (fewer + scipy.special.bdtr(k, n, rate)) / 2
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


def test_no_p_values_are_none() -> None:
    assert holm([]) == []
