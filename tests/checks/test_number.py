"""`number`: which number an answer comes to, and how close it is to the expected one."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from fepflow.checks.engine import evaluate
from fepflow.checks.explanation import explain
from fepflow.checks.number import number_in
from fepflow.protocol.check import Check
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase


def result(answer: object, expected: object = 18, **arguments: object) -> CheckResult:
    case = TestCase(id="a", input="?", expected=expected)
    check = Check(type="number", arguments=arguments)
    return evaluate([case], [Output(value=answer)], [check]).results[0].check_results[0]


def test_the_last_number_of_a_text_is_found() -> None:
    for text, found in [
        ("It is 18.", "18"),
        ("3 boxes, so $1,018.50!", "1018.50"),
        ("#### 1,234,567", "1234567"),
        ("minus: \u22125", "-5"),
        ("an en dash: \u20135", "-5"),
        ("3\u20135", "5"),
        ("-$5", "-5"),
        ("10-3", "3"),
        ("KB-1234", "1234"),
        ("x=-2", "-2"),
        ("1e3 apples", "1E+3"),
        (".5", "0.5"),
        ("**18**", "18"),
        ("5kg", "5"),
        ("12 %", "12"),
        ("see H2O", None),
        ("25 m^2", "25"),
        ("25 cm^{2}, 3 s^-1", "3"),
        ("snake_2", None),
        ("1\u202f234.5", "1234.5"),
        ("\u0661\u0662", "12"),
        ("NaN", None),
        ("inf", None),
        ("none", None),
        ("", None),
    ]:
        number = number_in(text)
        assert (None if number is None else str(number.value)) == found


@pytest.mark.parametrize(
    "text",
    [
        *("3,14", "0,123", "10:30", "1/2", "2024.01.02", "1 234,5", "1,23,456", "9" * 2_000, "1e9999999"),
        *("3\u00bd", "3 \u00bd", "10\u00b2", "5 * 10^3", "10^{3}", r"\frac{1}{2}"),
        *("6.02x10^23", "6.02\u00d710\u00b2\u00b3", "1_000", "1920x1080"),
    ],
)
def test_digits_that_are_not_one_number_are_no_part_of_one(text: str) -> None:
    number = number_in(text)
    assert number is not None
    assert number.value is None


def test_decimal_commas_are_read_where_they_are_asked_for() -> None:
    for text in ("1.234,5", "1 234,5", "1\u00a0234,5", "1234,5"):
        assert str(number_in(text, decimal="comma").value) == "1234.5"
    assert number_in("1,234.5", decimal="comma").value is None


def test_the_first_number_counts_where_it_is_asked_for() -> None:
    assert result("18 of 20", position="first").passed is True
    assert result("18 of 20").passed is False


def test_an_answer_without_a_number_fails_and_an_expected_value_without_one_is_an_error() -> None:
    answered = result("I do not know")
    assert (answered.passed, answered.results["found"]) == (False, None)
    assert explain(answered) == 'there is no number in: "I do not know"'
    assert result("18", "unknown").error is not None
    assert result("18", "unknown").error.message.endswith("expected holds no number")
    assert "which is not one number" in result("18", "3,14").error.message
    for nothing in (None, True, [18], {"answer": 18}):
        assert result(nothing).error is not None, "a wrong place is the suite's mistake, and no answer of the agent"


def test_a_part_of_another_number_never_passes() -> None:
    assert result("3,14", 14).passed is False
    assert explain(result("3,14", 14)) == '"3,14" is not one number (decimal: comma reads a decimal comma)'
    assert result("1/2", 2).passed is False
    assert explain(result("10:30", 30)) == '"10:30" is not one number'


def test_numbers_are_compared_as_they_are_written() -> None:
    assert result("0.30000000000000004", 0.3).passed is False
    assert result(0.1 + 0.2, 0.3).passed is False
    assert result(0.1 + 0.2, 0.3, tolerance=1e-9).passed is True
    assert result("1.1", 1.0, tolerance=0.1).passed is True, "in floats they differ by more than 0.1"
    assert result("18.0", 18).passed is True
    assert result("1e999", "1e999").passed is True
    assert result("1e999", "1e998", percent=99).passed is False
    assert result("9" * 900, int("9" * 900)).passed is True
    assert result("9" * 899 + "8", int("9" * 900)).passed is False


def test_a_tolerance_may_be_in_percent_of_the_expected_number() -> None:
    assert result("105", 100, percent=5).passed is True
    assert result("105.01", 100, percent=5).passed is False
    assert result("-95", -100, percent=5).passed is True
    assert result("1", 0, percent=50).passed is False
    assert explain(result("110", 100, percent=5, tolerance=1)) == "got 110, wanted 100 ± 1 or ± 5 %"
    for wrong in (-1, float("nan"), float("inf"), True, "1"):
        assert result("18", tolerance=wrong).error is not None


def test_a_long_text_is_read_in_a_second() -> None:
    for text in ("9" * 100_000, "1 " * 50_000, "1," * 50_000, "-" * 100_000, "1e" * 50_000):
        start = time.process_time()
        assert result(text).status == "completed"
        assert time.process_time() - start < 1


@pytest.mark.skipif("FEPFLOW_TEST_DATA" not in os.environ, reason="FEPFLOW_TEST_DATA names no folder with test data")
@pytest.mark.parametrize("model", ["6b_finetuning", "175b_verification"])
def test_real_answers_are_judged_as_their_authors_judged_them(model: str) -> None:
    path = Path(os.environ["FEPFLOW_TEST_DATA"]) / "data" / "gsm8k" / "solutions.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    cases = [TestCase(id=str(n), input=row["question"], expected=row["ground_truth"]) for n, row in enumerate(rows)]
    found = evaluate(cases, [Output(value=row[model]["solution"]) for row in rows], [Check(type="number")])
    judged = [
        (row[model]["is_correct"], case.check_results[0].passed) for row, case in zip(rows, found.results, strict=True)
    ]
    assert len(judged) == 1_319
    assert [pair for pair in judged if pair[0] is not pair[1]] == []
