"""`fepflow init` and `fepflow validate`: every mistake is told at once, with an exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fepflow.conftest import Cli

MISTAKEN = """\
nmae: refunds
name: refunds
target:
  http:
    url: ftp://example.test
    headers: {Authorization: Bearer abcdef}
    output: $.[
  timeout: soon
  attempts: 0
test_cases: cases.jsonl
checks:
  - {type: contians, arguments: {}}
  - {type: contains, arguments: {text: $.output.value}}
  - {type: regex, arguments: {text: $.output.value, pattern: "("}}
metrics: [{id: acc, check: nothing}]
gate: {confidence: 2}
thresholds: nowhere.yaml
plugins: [missing.py]
"""

MISTAKES = """\
suite.yaml:1: nmae: nmae is not a section of a suite (did you mean name?)
suite.yaml:5: target.http.url: ftp:// is not known
suite.yaml:6: target.http.headers.Authorization: a secret must not stand in the suite (write it as ${NAME})
suite.yaml:7: target.http.output: '$.[' is not a valid JSONPath
suite.yaml:8: target.timeout: a duration reads like 500ms, 30s, 2m, 1h or 7d
suite.yaml:9: target.attempts: must be
suite.yaml:12: checks[0].type: there is no check type contians (did you mean contains?)
suite.yaml:14: checks[2].arguments: regex cannot take these arguments: the pattern is not a regular expression
suite.yaml:15: metrics[0].check: the suite has no check with the id nothing
suite.yaml:16: gate.confidence: must be
suite.yaml:17: thresholds: there is no file nowhere.yaml
suite.yaml:18: plugins[0]: there is no file missing.py
cases.jsonl:2: the id 'a' stands in line 1 already
cases.jsonl:3: is not valid JSON
cases.jsonl:4: a test case is an object
""".splitlines()

CASES = '{"id": "a", "input": 1}\n{"id": "a", "input": 2}\n{broken\n[1]\n'


def test_init_writes_a_commented_suite_that_is_valid(cli: Cli, home: Path) -> None:
    done = cli("init", "first")
    assert done.exit_code == 0
    assert done.stdout.endswith(
        "Next: fepflow run first/suite.yaml, which passes; then put your own agent into agent.py.\n"
    )
    assert len((home / "first" / "agent.py").read_text(encoding="utf-8").splitlines()) <= 12
    suite = (home / "first" / "suite.yaml").read_text(encoding="utf-8")
    assert suite.count("#") > 10
    valid = cli("validate", "first/suite.yaml")
    assert (valid.exit_code, valid.stderr) == (0, "")
    assert valid.stdout == "first/suite.yaml is valid: 10 test cases, 3 shared checks.\n"


def test_init_for_a_model_writes_a_suite_that_is_valid_with_a_key(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0815")
    done = cli("init", "first", "--openai")
    assert done.stdout.endswith("then fepflow run first/suite.yaml.\n")
    assert (home / "first" / "prompt.md").read_text(encoding="utf-8").endswith("{{$.test_case.input}}\n")
    valid = cli("validate", "first/suite.yaml")
    assert (valid.exit_code, valid.stderr) == (0, "")
    monkeypatch.delenv("OPENAI_API_KEY")
    missing = cli("validate", "first/suite.yaml")
    assert missing.exit_code == 2
    assert "suite.yaml:10: target.openai.api_key: ${OPENAI_API_KEY} is not set in the environment" in missing.stderr


def test_init_overwrites_nothing(cli: Cli, home: Path) -> None:
    (home / "cases.jsonl").write_text("mine")
    done = cli("init")
    assert done.exit_code == 2
    assert "cases.jsonl already exists" in done.stderr
    assert not (home / "suite.yaml").exists()
    assert (home / "cases.jsonl").read_text() == "mine"


@pytest.mark.parametrize("command", ["validate", "run"])
def test_all_errors_are_listed_with_file_line_path_and_advice(cli: Cli, home: Path, command: str) -> None:
    (home / "suite.yaml").write_text(MISTAKEN)
    (home / "cases.jsonl").write_text(CASES)
    done = cli(command, "suite.yaml")
    assert done.exit_code == 2
    told = [line.removeprefix("error: ") for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(told) == len(MISTAKES)
    for line, beginning in zip(told, MISTAKES, strict=True):
        assert line.startswith(beginning)
    assert not (home / "home").exists(), "nothing was started"


def test_the_sections_of_a_record_file_are_looked_at_too(cli: Cli, home: Path) -> None:
    (home / "suite.yaml").write_text(
        "name: recorded\n"
        "target: {recorded: {path: out.jsonl, id: $.id}}\n"
        "test_cases: [{id: a, input: 1}]\n"
        "checks: [{type: contains, arguments: {text: $.output.value, phrases: [a]}}]\n"
    )
    (home / "out.jsonl").write_text('{"id": "a", "value": 1}\n{"id": "a", "value": 2}\n')
    done = cli("validate", "suite.yaml")
    assert done.exit_code == 2
    assert "out.jsonl:2: the id 'a' stands in line 1 already" in done.stderr


def test_an_invalid_header_is_reported_with_its_line(cli: Cli, home: Path) -> None:
    (home / "suite.yaml").write_text(
        "name: headers\n"
        "target:\n  http:\n    url: http://127.0.0.1:1\n    headers:\n      X bad: value\n"
        "test_cases: [{id: a, input: 1}]\n"
        "checks: [{type: contains, arguments: {text: $.output.value, phrases: [a]}}]\n"
    )
    done = cli("validate", "suite.yaml")
    assert done.exit_code == 2
    assert "suite.yaml:6: target.http.headers.X bad: has characters that a header cannot hold" in done.stderr


def test_validate_prints_a_thousand_mistakes_and_how_many_more_there_are(cli: Cli, home: Path) -> None:
    wrong = [{"id": f"c{number}", "type": "contains", "arguments": {"text": number}} for number in range(1_100)]
    suite = {"name": "a", "target": {"http": {"url": "http://127.0.0.1:9"}}, "test_cases": [{"id": "a", "input": 1}]}
    (home / "suite.json").write_text(json.dumps({**suite, "checks": wrong}))
    done = cli("validate", "suite.json")
    lines = done.stderr.splitlines()
    errors = int(lines[-1].removeprefix("suite.json: ").removesuffix(" errors."))
    assert errors > 1_000
    assert [line.startswith("error: suite.json:1") for line in lines[:-2]] == [True] * 1_000
    assert lines[-2] == f"... and {errors - 1_000:,} more"
    assert done.exit_code == 2


@pytest.mark.parametrize("version", ["01.0.0", " 1.0.0", "1.0", "v1.0.0", "1.0.0\n", "\uff11.0.0", "1\u0661.0.0"])
def test_a_version_that_is_not_semantic_is_a_mistake(cli: Cli, tmp_path: Path, version: str) -> None:
    check = {"type": "is_empty", "arguments": {"value": "$.output.value"}, "version": version}
    suite = {"name": "versions", "target": {"recorded": "o.jsonl"}, "test_cases": [{"input": 1}], "checks": [check]}
    (tmp_path / "suite.json").write_text(json.dumps(suite))
    result = cli("validate", str(tmp_path / "suite.json"))
    assert result.exit_code == 2
    assert "checks[0].version" in result.output
