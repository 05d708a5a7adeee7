from fepflow.checks.core.declarations import CaseChecks, CheckDefaults
from fepflow.diagnose.checks import CaseInFile, case_check_problems, check_problems
from fepflow.documents.loader import parse_document
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import TestCase

SUITE = """\
checks:
  - type: contains
    arguments: {text: $.output.value, phrases: Paris}
    id: says
  - type: containz
    arguments: {}
  - type: contains
    version: 7.0.0
    arguments: {}
  - type: regex
    arguments:
      text: $.output.value
      pattern: "("
  - type: contains
    id: says
    arguments: {text: $.output.value, phrases: Paris, phrase: Rome}
  - type: exact_match
    arguments: {actual: "$.output.[", expected: 1}
"""


def read():
    document = parse_document(SUITE, "suite.yaml")
    return document, [Check.model_validate(item) for item in document.data["checks"]]


def test_every_error_is_found_with_its_path():
    problems = list(check_problems(*read()))
    assert [(problem.line, problem.path, problem.severity) for problem in problems] == [
        (5, "checks[1].type", "error"),
        (8, "checks[2].version", "error"),
        (11, "checks[3].arguments", "error"),
        (15, "checks[4].id", "error"),
        (16, "checks[4].arguments.phrase", "error"),
        (18, "checks[5].arguments.actual", "error"),
    ]
    assert "did you mean contains" in problems[0].message
    assert "no version 7.0.0 (there is 1.0.0)" in problems[1].message
    assert "the pattern is not a regular expression" in problems[2].message
    assert "the id says appears twice" in problems[3].message
    assert "contains has no argument phrase" in problems[4].message
    assert problems[4].advice == "did you mean phrases?"
    assert "is not a valid JSONPath" in problems[5].message


def test_checks_with_known_errors_are_skipped():
    document, checks = read()
    assert not list(check_problems(document, [None] * len(checks)))


def test_checks_of_test_cases_are_validated_too():
    case = TestCase(id="a", input="", checks=[Check(type="regex"), Check(type="vibes")])
    cases = [CaseInFile(case, lambda _: 3), CaseInFile(TestCase(id="b", input=""), lambda _: 4)]
    problems = list(case_check_problems(cases, "cases.jsonl", (), CaseChecks(CheckDefaults(), (), from_data=True)))
    assert [(problem.path, problem.line) for problem in problems] == [
        ("a.checks.regex.arguments.pattern", 3),
        ("a.checks.vibes.type", 3),
    ]
    assert {problem.file for problem in problems} == {"cases.jsonl"}
    assert problems[0].message == "is missing"
