from typing import Any

import pytest

from fepflow.checks.threshold import ThresholdCheck


def test_a_number_is_compared_with_its_bounds(passed):
    bounds: Any
    for value, bounds, within in [
        (0.8, {"min_value": 0.8}, True),
        (0.8, {"min_value": 0.8, "min_inclusive": False}, False),
        (0.81, {"min_value": 0.8, "min_inclusive": False}, True),
        (0.79, {"min_value": 0.8}, False),
        (1, {"max_value": 1.0}, True),
        (1, {"max_value": 1.0, "max_inclusive": False}, False),
        (0.99, {"max_value": 1.0, "max_inclusive": False}, True),
        (1.01, {"max_value": 1.0}, False),
        (5, {"min_value": 1, "max_value": 10}, True),
        (0, {"min_value": 1, "max_value": 10}, False),
        (11, {"min_value": 1, "max_value": 10}, False),
        (5, {"min_value": 10, "max_value": 1}, False),
        (0, {"min_value": -0.0}, True),
        (2**53 + 1, {"max_value": 2**53}, False),
        (10**400, {"min_value": 1}, True),
    ]:
        assert passed("threshold", value=value, **bounds) is within
        assert passed("threshold", value=value, **bounds, negate=True) is not within


def test_a_value_that_is_not_a_number_is_refused_in_every_argument(refused):
    for answer in [True, False, "0.9", "", None, [0.9], {"score": 0.9}]:
        assert "value: must be a number" in refused("threshold", answer=answer, value="$.output.value", min_value=0)
        if answer != "0.9":
            assert "value: must be a number" in refused("threshold", value=answer, min_value=0)
        if answer is not None:
            assert "min_value: must be a number" in refused("threshold", value=1, min_value=answer)


@pytest.mark.parametrize("answer", [float("nan"), float("inf"), float("-inf")])
def test_a_value_that_is_not_finite_is_refused(refused, answer):
    message = refused("threshold", answer=answer, value="$.output.value", min_value=0)
    assert "value: must be a finite number" in message


def test_a_bound_has_to_be_given(refused):
    assert "give min_value, max_value, or both" in refused("threshold", value=1)


def test_extra_arguments_are_refused(refused):
    message = refused("threshold", value=1, min_value=0, minimum=0)
    assert "minimum" in message
    assert "is not known" in message


def test_bounds_may_come_from_paths(passed, ask):
    assert passed("threshold", answer=5, reference=5, value="$.output.value", min_value="$.test_case.expected")
    result = ask("threshold", answer=5, value="$.output.value", min_value="$.test_case.metadata.least")
    assert result.error.type == "jsonpath_error"


def test_an_options_type_is_checked(refused):
    assert "must be true or false" in refused("threshold", value=1, min_value=0, min_inclusive="perhaps")


def test_a_check_can_be_called_directly():
    assert ThresholdCheck(value=0.85, min_value=0.8, max_value=1.0)() == {"passed": True}
