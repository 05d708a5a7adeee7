import pytest

from fepflow.checks.exact_match import ExactMatchCheck
from fepflow.json.values import json_equal


def test_values_are_equal_as_json_is(passed):
    for actual, expected, same in [
        ("Paris", "Paris", True),
        ("Paris", "paris", False),
        ("Paris", "Paris ", False),
        ("", "", True),
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (True, True, True),
        ("1", 1, False),
        (None, None, True),
        (None, "", False),
        (None, False, False),
        ([1, 2], [1, 2], True),
        ([1, 2], [2, 1], False),
        ([1], [True], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ({"a": [{"b": 1}]}, {"a": [{"b": True}]}, False),
        ([], {}, False),
        (10**30, 10**30 + 1, False),
    ]:
        paths = {"actual": "$.output.value", "expected": "$.test_case.expected"}
        assert passed("exact_match", answer=actual, reference=expected, **paths) is same
        assert passed("exact_match", answer=actual, reference=expected) is same
        assert passed("exact_match", actual=actual, reference=expected, negate=True) is not same
        assert passed("exact_match", actual=actual, expected=expected) is same


def test_case_is_folded_only_on_request_and_only_for_texts(passed):
    assert passed("exact_match", actual="STRASSE", expected="straße", case_sensitive=False)
    assert not passed("exact_match", actual="STRASSE", expected="straße")
    assert not passed("exact_match", actual=["A"], expected=["a"], case_sensitive=False)


def test_expected_null_is_a_value_like_any_other(passed):
    assert passed("exact_match", answer=None, actual="$.output.value", expected=None)


@pytest.mark.parametrize("check_type", ["exact_match", "equals"])
def test_an_output_of_null_is_no_pass_because_it_is_not_what_is_unwanted(refused, passed, check_type):
    for paths in ({}, {"actual": "$.output.value"}):
        assert "the output is null" in refused(check_type, answer=None, expected="bad", negate=True, **paths)
        assert not passed(check_type, answer=None, expected=None, negate=True, **paths)
    assert passed(check_type, answer={"error": None}, actual="$.output.value.error", expected="bad", negate=True)


def test_options_are_read_from_the_test_case_too(passed, ask):
    assert passed("exact_match", actual="A", expected="a", case_sensitive="$.output.value", answer=False)
    result = ask("exact_match", actual="A", expected="a", case_sensitive="$.output.value", answer="perhaps")
    assert result.error.type == "validation_error"
    assert "case_sensitive" in result.error.message


def test_a_check_can_be_called_directly():
    assert ExactMatchCheck(actual="a", expected="a")() == {"passed": True}


def test_json_equal_takes_tuples_for_lists():
    assert json_equal((1, 2), [1, 2])
