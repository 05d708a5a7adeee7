"""Numbers and names in messages."""

from __future__ import annotations

import pytest

from fepflow.text import four_digits, number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.93012, "0.9301"),
        (56354.2, "56354"),
        (-56354.2, "-56354"),
        (9999.7, "10000"),
        (9999.2, "9999"),
        (1e-5, "1e-05"),
        (1e300, "1e+300"),
    ],
)
def test_a_number_has_four_digits_or_all_whole_ones(value: float, text: str) -> None:
    assert four_digits(value) == text


def test_a_number_is_never_rounded_onto_what_it_is_compared_with() -> None:
    assert number(0.89999, 0.9) == "0.89999"
    assert number(60000.4, 60000.0) == "60000.4"
    assert four_digits(0.5, "+") == "+0.5"
