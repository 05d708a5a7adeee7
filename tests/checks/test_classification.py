"""`classification`: labels as models write them, and what is none."""

from __future__ import annotations

from typing import Any

from fepflow.checks.engine import evaluate
from fepflow.protocol.check import Check
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase


def result(answer: Any, expected: Any = "refund", **arguments: Any) -> CheckResult:
    check, case = Check(type="classification", arguments=arguments), TestCase(id="a", input="?", expected=expected)
    return evaluate([case], [Output(value=answer)], [check]).results[0].check_results[0]


def test_a_label_is_read_as_models_write_it() -> None:
    for answer in ["refund", "Refund", " REFUND.\n", "**refund**", '"refund"', "`refund`"]:
        assert result(answer).results == {"passed": True, "predicted": "refund", "label": "refund"}


def test_a_label_inside_of_a_sentence_is_none() -> None:
    found = result("It is a refund, or no refund")
    assert (found.passed, found.results["predicted"]) == (False, "it is a refund, or no refund")
    assert result("").results == {"passed": False, "predicted": "", "label": "refund"}
    assert len(result("x" * 1_000_000).results["predicted"]) == 101


def test_case_counts_where_it_is_asked_for() -> None:
    assert result("Refund", case_sensitive=True).passed is False
    assert result("Refund", "Refund", case_sensitive=True).results["label"] == "Refund"


def test_labels_may_be_numbers_and_booleans() -> None:
    assert result(True, True).passed is True
    assert result("true", True).passed is True
    assert result(1, "1").passed is True
    assert result(1.0, 1).passed is True
    assert result(1, True).passed is False


def test_an_expected_label_that_is_none_is_an_error() -> None:
    wrong: list[Any] = ["", " . ", "x" * 101, None, ["refund"], {}]
    for expected in wrong:
        assert result("refund", expected).error is not None
    assert "expected is not one of the labels" in result("refund", "refnd", labels=["refund", "other"]).error.message
    nothings: list[Any] = [None, [], {"label": "refund"}]
    for nothing in nothings:
        assert result(nothing).error is not None, "a wrong place is the suite's mistake, and no answer of the agent"


def test_labels_that_are_read_as_the_same_are_an_error_and_never_a_pass_for_each_other() -> None:
    assert '"A" and "a" are read as the same label' in result("a", "A", labels=["A", "a"]).error.message
    assert result("a", "A", labels=["A", "a"], case_sensitive=True).passed is False
