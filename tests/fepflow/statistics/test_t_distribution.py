import pytest

from fepflow.statistics.proportions import t_quantile

TABLE = [
    (0.95, 1, 6.3138),
    (0.975, 1, 12.7062),
    (0.975, 2, 4.3027),
    (0.975, 3, 3.1824),
    (0.975, 10, 2.2281),
    (0.995, 10, 3.1693),
    (0.975, 30, 2.0423),
    (0.975, 120, 1.9799),
    (0.975, 200, 1.9719),
    (0.975, 1000, 1.9623),
    (0.9995, 1000, 3.3003),
]


@pytest.mark.parametrize(("probability", "df", "expected"), TABLE)
def test_quantiles_are_those_of_the_printed_tables(probability: float, df: int, expected: float) -> None:
    assert t_quantile(probability, df) == pytest.approx(expected, abs=6e-5)


def test_the_median_is_zero_at_any_degrees_of_freedom() -> None:
    assert [t_quantile(0.5, df) for df in (1, 2, 7, 500)] == pytest.approx([0, 0, 0, 0], abs=1e-12)


@pytest.mark.parametrize(("probability", "df"), [(0.4, 5), (1.0, 5), (0.975, 0)])
def test_an_invalid_quantile_is_refused(probability: float, df: int) -> None:
    with pytest.raises(ValueError, match=r"expected|needed"):
        t_quantile(probability, df)
