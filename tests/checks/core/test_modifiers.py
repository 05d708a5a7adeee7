"""`extract`, `pass_at` and `any`, which every check type takes."""

import pytest

from fepflow import Check, ContainsCheck
from fepflow.checks.base import BaseCheck
from fepflow.checks.core import patterns
from fepflow.checks.registry import register
from fepflow.errors import CheckArgumentsError

THOUGHT = "<think>\n41?\n</think>\n\nThe answer is 42."


@pytest.fixture
def scored():
    """The type of a check that gives the score that it is told, of 0 to 1."""

    @register("scored")
    class Scored(BaseCheck):
        check_range = (0.0, 1.0)
        score: object = 0.5

        def __call__(self):
            return {"score": self.score}

    return "scored"


def test_a_check_sees_the_part_of_a_text_that_is_extracted(passed):
    for answer, extract, expected in [
        ("The answer is 42.", {"regex": r"answer is (\d+)"}, "42"),
        ("The answer is 42.", {"regex": r"\d+"}, "42"),
        (THOUGHT, {"strip": ["think"]}, "The answer is 42."),
        ("41?\n</think>\n42", {"strip": "think"}, "42"),
        ("<think>a <think>b</think> c</think>42", {"strip": ["think"]}, "42"),
        ("no thought", {"strip": ["think"]}, "no thought"),
        ("Here:\n```python\nx = 1\n```\n```json\n{}\n```", {"fence": "json"}, "{}"),
        ("Here:\n```python\nx = 1\n```\n```json\n{}\n```", {"fence": True}, "x = 1"),
        ("~~~\n```\n~~~", {"fence": True}, "```"),
        ('{"a": [1]}', {"as": "json"}, {"a": [1]}),
        ({"a": [1]}, {"as": "json"}, {"a": [1]}),
        (" -1,234.50 ", {"as": "number"}, -1234.5),
        (42, {"as": "number"}, 42.0),
        (THOUGHT, {"as": "number", "regex": r"(\d+)", "strip": ["think"]}, 42),
    ]:
        arguments = {"answer": answer, "actual": "$.output.value", "expected": expected, "extract": extract}
        assert passed("equals", **arguments)
        assert not passed("equals", **arguments, negate=True)


def test_what_does_not_match_is_an_error_also_with_negate(refused):
    for answer, extract, says in [
        ("I do not know", {"regex": r"\d+"}, r'extract: /\d+/ is not found in "I do not know"'),
        ("b", {"regex": "(a)?b"}, 'extract: /(a)?b/ is not found in "b"'),
        ("<think>42", {"strip": ["think"]}, "extract: <think> is not closed"),
        ("<think it is 42", {"strip": ["think"]}, "extract: <think> is not closed"),
        ("<think>42</think>\n", {"strip": ["think"]}, 'extract: nothing is left of "<think>42</think>\\n"'),
        ("```json\n42", {"fence": "json"}, "extract: there is no code fence of json that is closed"),
        ("```python\n42\n```", {"fence": "json"}, "extract: there is no code fence of json in"),
        ("{'a': 1}", {"as": "json"}, "is not valid JSON"),
        ("42 EUR", {"as": "number"}, 'extract: "42 EUR" is not a number'),
        ("1,23", {"as": "number"}, 'extract: "1,23" is not a number'),
        ("", {"as": "number"}, 'extract: "" is not a number'),
        ("9" * 400, {"as": "number"}, "is too large for a number"),
        ("1" * 5000, {"as": "number"}, "is too large for a number"),
        (True, {"as": "number"}, "extract: as reads a text, and this is true"),
        (None, {"as": "json"}, "extract: as reads a text, and this is null"),
        ({"a": 1}, {"regex": "1"}, 'extract: regex reads a text, and this is {"a": 1}'),
        ("a" * 1_000_001, {"regex": "a"}, "1,000,000 characters"),
    ]:
        for negate in (False, True):
            arguments = {"actual": "$.output.value", "expected": "x", "negate": negate, "extract": extract}
            assert says in refused("exact_match", answer=answer, **arguments)


def test_a_pattern_that_takes_long_is_a_timeout_and_holds_up_nothing(ask, monkeypatch):
    monkeypatch.setattr(patterns, "TIME_LIMIT", 0.1)
    extract = {"regex": r"(?:a|a|aa)+(b)$"}
    result = ask("exact_match", answer="a" * 5000, actual="$.output.value", expected="b", extract=extract)
    assert (result.status, result.error.type) == ("error", "timeout_error")


def test_an_extraction_that_cannot_be_is_refused(refused):
    for extract, says in [
        ({}, "extract: must have at least one of strip, fence, regex and as"),
        ("json", "extract: must be a mapping"),
        ({"regexp": "a"}, "extract.regexp"),
        ({"regex": "("}, "extract.regex: the pattern is not a regular expression"),
        ({"as": "yaml"}, "extract.as"),
        ({"strip": ["<think>"]}, 'extract.strip: "<think>" is not the name of a tag'),
    ]:
        assert says in refused("exact_match", answer="a", actual="$.output.value", expected="a", extract=extract)


def test_a_pattern_may_begin_as_a_path_does(ask):
    result = ask("exact_match", answer="5", actual="$.output.value", expected="x", extract={"regex": "$.5"})
    assert result.error.message == 'extract: /$.5/ is not found in "5"'


def test_the_arguments_show_the_part_that_was_checked(ask):
    shown = ask("exact_match", answer="is 42", actual="$.output.value", expected="4", extract={"regex": r"\d+"})
    assert shown.resolved_arguments["actual"] == {"jsonpath": "$.output.value", "value": "42"}
    assert shown.resolved_arguments["extract"] == {"value": {"regex": r"\d+"}}


@pytest.mark.parametrize(("pass_at", "is_passed"), [(0.5, True), (0.51, False), (0.01, True), (1, False)])
def test_a_score_passes_from_pass_at_on(results, scored, pass_at, is_passed):
    assert results(scored, pass_at=pass_at) == {"score": 0.5, "passed": is_passed}
    assert "passed" not in results(scored)


def test_a_score_that_is_none_is_an_error_and_no_pass(refused, scored):
    for score in [float("nan"), True, "0.9", None, [1], float("inf"), 1.01, -0.01]:
        assert refused(scored, score=score, pass_at=0.1)
        assert refused(scored, score=score)


def test_a_pass_at_that_is_no_score_is_refused(refused, scored):
    for pass_at in [True, "0.7", float("nan"), 1.5, 0, [0.5], "$.test_case.expected"]:
        assert "pass_at" in refused(scored, pass_at=pass_at)


def test_a_check_without_a_score_is_no_pass_at_any_score(refused):
    assert refused("exact_match", actual="a", expected="a", pass_at=0.0) == "pass_at: exact_match gave no score"
    assert "leave out negate" in refused("exact_match", actual="a", expected="b", pass_at=0.0, negate=True)


def test_pass_at_replaces_what_the_check_says_itself(results):
    @register("says_yes")
    class SaysYes(BaseCheck):
        def __call__(self):
            return {"passed": True, "response": {"score": 0.2, "passed": True}}

    assert results("says_yes", pass_at=0.5) == {"passed": False, "response": {"score": 0.2, "passed": False}}


def test_a_type_may_have_a_pass_at_of_its_own(ask, scored):
    @register("strict_by_itself")
    class Strict(BaseCheck):
        check_pass_at = 0.7
        score: float

        def __call__(self):
            return {"score": self.score}

    assert [ask("strict_by_itself", score=score).passed for score in (0.7, 0.69)] == [True, False]
    assert ask("strict_by_itself", score=0.5, pass_at=0.5).passed
    assert ask("strict_by_itself", score=0.5).resolved_arguments["pass_at"] == {"value": 0.7}


def test_any_of_several_expected_values_counts_and_with_negate_none_may(passed):
    for expected, is_passed in [(["a", "b"], True), (["c"], False), ("b", True), ("bc", False), ([["b"]], False)]:
        arguments = {"answer": "b", "actual": "$.output.value", "any": True}
        for check_type in ("exact_match", "equals"):
            assert passed(check_type, expected=expected, **arguments) is is_passed
            assert passed(check_type, reference=expected, expected="$.test_case.expected", **arguments) is is_passed
            assert passed(check_type, expected=expected, negate=True, **arguments) is not is_passed


def test_any_of_no_value_is_an_error_also_with_negate(refused):
    for negate in (True, False):
        says = refused(
            "exact_match", actual="a", expected="$.test_case.expected", reference=[], any=True, negate=negate
        )
        assert says == "any: expected is an empty list, so there is nothing to compare with"
    assert "has no expected or reference" in refused("is_empty", value="", any=True)


def test_an_alternative_that_cannot_be_tried_is_an_error_unless_another_one_passes(ask):
    arguments = {"answer": "ab", "text": "$.output.value", "any": True}
    assert ask("contains", phrases=["b", 1], **arguments).status == "error"
    assert ask("contains", reference=["b", 1], phrases="$.test_case.expected", **arguments).passed
    assert ask("contains", reference=[1, "c"], phrases="$.test_case.expected", **arguments).status == "error"


def test_an_argument_of_the_class_of_that_name_stays_its_own(results):
    @register("its_own")
    class ItsOwn(BaseCheck):
        any: str
        pass_at: str
        extract: str

        def __call__(self):
            return {"passed": [self.any, self.pass_at, self.extract] == ["a", "b", "c"]}

    assert results("its_own", any="a", pass_at="b", extract="c") == {"passed": True}


def test_typed_checks_take_them_too_and_a_direct_call_refuses_them():
    check = ContainsCheck(text="$.output.value", phrases="a", any=True, extract={"as": "json"})
    declared = {"text": "$.output.value", "phrases": "a", "any": True, "extract": {"as": "json"}}
    assert check == Check(type="contains", arguments=declared, version="1.0.0")
    assert check != ContainsCheck(text="$.output.value", phrases="a", any=True)
    with pytest.raises(CheckArgumentsError, match="any is applied by evaluate"):
        ContainsCheck(text="a", phrases="a", any=True)()
