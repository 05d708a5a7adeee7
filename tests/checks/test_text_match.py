from typing import Any

import pytest

from fepflow.checks.core import patterns
from fepflow.checks.text_match import TextMatchCheck

TEXT = "Your refund is on its way."


def test_a_text_is_compared_as_it_is(passed):
    for condition, value, holds in [
        ("contains", "refund", True),
        ("contains", "Refund", False),
        ("contains", "refund ", True),
        ("contains", " way. ", False),
        ("contains", "", True),
        ("equals", TEXT, True),
        ("equals", TEXT.lower(), False),
        ("equals", f"{TEXT} ", False),
        ("does_not_contain", "sorry", True),
        ("does_not_contain", "refund", False),
        ("does_not_contain", "REFUND", True),
    ]:
        assert passed("text_match", answer=TEXT, text="$.output.value", condition=condition, value=value) is holds


def test_a_pattern_is_searched_anywhere_in_the_text(passed):
    for pattern, found in [
        ("refund", True),
        ("^refund", False),
        (r"way\.$", True),
        ("(?i)REFUND", True),
        ("a{2}", False),
    ]:
        assert passed("text_match", answer=TEXT, text="$.output.value", condition="regex", pattern=pattern) is found


def test_an_empty_text_meets_no_condition(passed):
    for condition in [
        {"condition": "contains", "value": ""},
        {"condition": "equals", "value": ""},
        {"condition": "does_not_contain", "value": "sorry"},
        {"condition": "regex", "pattern": ".*"},
    ]:
        for answer in ["", None]:
            assert passed("text_match", answer=answer, text="$.output.value", **condition) is False


def test_wrong_arguments_are_refused_whatever_the_text_is(refused):
    for answer in [TEXT, None]:
        arguments: Any
        for arguments, why in [
            ({"condition": "contains"}, "value is missing: contains needs it"),
            ({"condition": "equals", "pattern": "a"}, "value is missing: equals needs it"),
            ({"condition": "regex", "value": "a"}, "pattern is missing: regex needs it"),
            ({"condition": "regex", "pattern": "("}, "the pattern is not a regular expression"),
            ({"condition": "regex", "pattern": "a" * 1001}, "pattern"),
            ({"condition": "startswith", "value": "a"}, "condition: must be one of 'contains', 'equals'"),
            ({"condition": "contains", "value": 5}, "value: must be a text"),
            ({"value": "a"}, "condition: is missing"),
        ]:
            assert why in refused("text_match", answer=answer, text="$.output.value", **arguments)


@pytest.mark.parametrize("answer", [5, True, ["refund"], {"text": "refund"}])
def test_a_value_that_is_no_text_is_an_error_and_not_a_fail(refused, answer):
    assert "text: must be a text" in refused(
        "text_match", answer=answer, text="$.output.value", condition="does_not_contain", value="sorry"
    )


def test_a_pattern_that_runs_away_is_stopped(ask, monkeypatch):
    monkeypatch.setattr(patterns, "TIME_LIMIT", 0.1)
    result = ask("text_match", answer="a" * 60 + "!", text="$.output.value", condition="regex", pattern="(a|aa)+$")
    assert (result.status, result.error.type) == ("error", "timeout_error")


def test_it_can_be_called_directly():
    assert TextMatchCheck(text=TEXT, condition="contains", value="refund")() == {"passed": True}
    assert TextMatchCheck(text=None, condition="does_not_contain", value="refund")() == {"passed": False}
