"""Lesson 1: checking outputs that you have.

An evaluation needs three things: test cases (what was asked), outputs (what came back), and checks (what must hold).
No server, no store, no configuration.
"""

from __future__ import annotations

from fepflow import Check, ContainsCheck, ExactMatchCheck, Output, RegexCheck, TestCase, evaluate


def test_a_check_compares_an_output_with_what_was_expected() -> None:
    results = evaluate(
        [TestCase(id="france", input="What is the capital of France?", expected="Paris")],
        [Output(value="The capital of France is Paris.")],
        [ContainsCheck(text="$.output.value", phrases="$.test_case.expected")],
    )

    (case,) = results.results
    (check,) = case.check_results
    assert check.results == {"passed": True}


def test_a_text_that_starts_with_a_dollar_and_a_dot_is_a_path() -> None:
    output = Output(value={"answer": "Paris", "sources": ["atlas", "almanac"]}, metadata={"tokens": 12})
    checks = [
        Check(type="exact_match", arguments={"actual": "$.output.value.answer", "expected": "Paris"}),
        Check(type="contains", arguments={"text": "$.output.value.sources[1]", "phrases": ["alm"]}),
        Check(type="threshold", arguments={"value": "$.output.metadata.tokens", "max_value": 100}),
        Check(type="exact_match", arguments={"actual": r"\$.05", "expected": r"\$.05"}),  # an escaped literal
    ]

    results = evaluate([TestCase(id="france", input="?")], [output], checks)

    assert [check.results["passed"] for check in results.results[0].check_results] == [True, True, True, True]


def test_the_result_has_the_evidence() -> None:
    results = evaluate(
        [TestCase(id="france", input="?", expected="Paris")],
        [Output(value="paris")],
        [ExactMatchCheck(actual="$.output.value", expected="$.test_case.expected")],
    )

    check = results.results[0].check_results[0]
    assert check.results == {"passed": False}
    assert check.resolved_arguments is not None
    assert check.resolved_arguments["actual"] == {"jsonpath": "$.output.value", "value": "paris"}
    assert check.resolved_arguments["case_sensitive"] == {"value": True}


def test_a_check_that_cannot_answer_is_an_error_and_never_a_pass() -> None:
    results = evaluate(
        [TestCase(id="france", input="?")],
        [Output(value="Paris")],
        [
            ContainsCheck(text="$.output.value.answer", phrases=["Paris"]),  # there is no `answer`
            ContainsCheck(text="$.output.value", phrases=["Paris"]),
        ],
    )

    broken, fine = results.results[0].check_results
    assert (broken.status, broken.results) == ("error", {})
    assert broken.error is not None
    assert broken.error.type == "jsonpath_error"
    assert fine.results == {"passed": True}
    assert results.status == "error"


def test_a_case_may_carry_checks_of_its_own() -> None:
    cases = [
        TestCase(id="sum", input="2 + 2", checks=[ExactMatchCheck(actual="$.output.value", expected="4")]),
        TestCase(id="poem", input="A haiku", checks=[RegexCheck(text="$.output.value", pattern="(.+\n){2}.+")]),
    ]

    results = evaluate(cases, [Output(value="4"), Output(value="an old pond\na frog jumps in\nsplash")])

    assert [case.check_results[0].results["passed"] for case in results.results] == [True, True]
