"""The command line as far as it goes without Prefect: every mistake is told at once, with an exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from fepflow.protocol.test_case import Output, TestCase
from fepflow.settings import OPERATORS_VARIABLES
from fepflow.store.records import NewCheckResult, NewOutput, NewRun
from fepflow.store.store import Store

from .conftest import BROKE_OFF, NO_ANSWER, Cli, FillRun, check

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
suite.yaml:1: nmae: nmae is no section of a suite (did you mean name?)
suite.yaml:5: target.http.url: ftp:// is not known
suite.yaml:6: target.http.headers.Authorization: a secret must not stand in the suite (write it as ${NAME})
suite.yaml:7: target.http.output: '$.[' is not a valid JSONPath
suite.yaml:8: target.timeout: a duration reads like 500ms, 30s, 2m, 1h or 7d
suite.yaml:9: target.attempts: must be
suite.yaml:12: checks[0].type: there is no check type contians (did you mean contains?)
suite.yaml:13: checks[1].arguments.phrases: is missing
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
    assert valid.stdout == "first/suite.yaml is valid: 3 test cases, 3 shared checks.\n"


def test_init_overwrites_nothing(cli: Cli, home: Path) -> None:
    (home / "cases.jsonl").write_text("mine")
    done = cli("init")
    assert done.exit_code == 2
    assert "cases.jsonl is there already" in done.stderr
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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run"], "give a suite, or --resume RUN"),
        (["run", "suite.yaml", "--resume", "latest"], "give a suite, or --resume RUN"),
        (["run", "--resume", "latest", "--limit", "3"], "leave the other options out"),
        (["run", "--resume", "1234"], "There is no run '1234'"),
        (["run", "nowhere.yaml"], "nowhere.yaml: there is no such file"),
        (["run", "suite.yaml", "--limit", "1.5"], "a count such as 20, or a fraction such as 0.1"),
        (["run", "suite.yaml", "--limit", "many"], "many is no number"),
        (["run", "suite.yaml", "--filter-metadata", "topic"], "topic is not of the form key=value"),
        (["run", "suite.yaml", "-o", "report.pdf"], "no report ends in .pdf"),
        (["run", "suite.yaml", "--env-file", "nowhere.env"], "nowhere.env: there is no such file (--env-file)"),
        (["validate", "."], "Is a directory"),
        (["show", "latest"], "There are no runs yet"),
        (["frobnicate"], "No such command 'frobnicate'"),
    ],
)
def test_usage_errors_end_with_2(cli: Cli, words: list[str], says: str) -> None:
    done = cli(*words)
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.exit_code == 2


SUITE_OF_CASES = """\
name: cases
target: {{http: {{url: "http://127.0.0.1:9"}}}}
test_cases: {cases}
checks: [{{type: contains, arguments: {{text: $.output.value, phrases: [a]}}}}]
"""


def test_an_env_file_gives_what_the_environment_does_not(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_URL", "http://127.0.0.1:1")
    monkeypatch.delenv("AGENT_TOKEN", raising=False)
    (home / "suite.yaml").write_text(
        "name: env\n"
        'target: {http: {url: "${AGENT_URL}", headers: {Authorization: "Bearer ${AGENT_TOKEN}"}}}\n'
        "test_cases: [{id: a, input: 1}]\n"
        "checks: [{type: contains, arguments: {text: $.output.value, phrases: [a]}}]\n"
    )
    without = cli("validate", "suite.yaml")
    assert without.exit_code == 2
    assert "${AGENT_TOKEN} is not set in the environment (export AGENT_TOKEN" in without.stderr

    (home / "other.env").write_text("AGENT_TOKEN=from-the-file\nAGENT_URL=nonsense\n")
    try:
        assert cli("validate", "suite.yaml", "--env-file", "other.env").exit_code == 0
        assert os.environ["AGENT_URL"] == "http://127.0.0.1:1", "what is set already stays"
    finally:
        os.environ.pop("AGENT_TOKEN", None)


def test_the_env_file_of_a_repository_sets_nothing_that_the_operator_decides(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "suite.yaml").write_text(SUITE_OF_CASES.format(cases="/etc/hostname"))
    names = [name.lower() if name == "FEPFLOW_MODELS" else name for name in sorted(OPERATORS_VARIABLES)]
    text = "".join(f"{name}=/\n" for name in names) + "HARMLESS=1\n"
    monkeypatch.setenv("HARMLESS", "")  # what the command sets is taken back with it
    monkeypatch.delenv("HARMLESS")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    (home / ".env").write_text(text)
    done = cli("validate", "suite.yaml")
    assert "leads out of the suite's folder" in done.stderr
    for name in names:
        assert f".env: {name} is left out: only the operator sets it (export it, or name the file" in done.stderr
        assert name not in os.environ
    assert os.environ["HARMLESS"] == "1"


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


def test_list_and_show_print_the_stored_runs(cli: Cli, fill_run: FillRun) -> None:
    run = fill_run(
        [
            ("good", Output(value="yes"), check(True)),
            ("bad [bold]", Output(value="\x1b[31mno"), check(False, text="no")),
            ("silent", NO_ANSWER, check(None, error="the target gave no output")),
        ]
    )
    assert run.id[:8] in cli("list").stdout
    (line,) = [json.loads(line) for line in cli("list", "--json").stdout.splitlines()]
    assert (line["id"], line["outcome"], line["cases"]) == (run.id, "fail", 3)

    shown = cli("show", run.id[:6], "--failed").stdout
    assert "FAIL" in shown
    assert "good" not in shown
    assert "bad [bold]" in shown, "what others wrote is no markup"
    assert r"\u001b[31mno" in shown, "and no control sequence"
    assert "no answer within 2 s" in shown
    assert "good" in cli("show", "--case", "good").stdout
    assert json.loads(cli("show", "--json").stdout)["evaluation_id"] == run.id


def test_show_writes_reports_and_leaves_the_pager_out(
    cli: Cli, fill_run: FillRun, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = fill_run([("bad", Output(value="no"), check(False))])
    assert cli("show", "--output", "report.json").exit_code == 0
    assert json.loads((home / "report.json").read_text(encoding="utf-8"))["evaluation_id"] == run.id
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("PAGER", "false")
    assert "bad" in cli("show", "--failed", "--no-pager").stdout


def test_the_version_is_that_of_the_package(cli: Cli) -> None:
    assert version("fepflow") in cli("--version").stdout


def test_a_verdict_is_shown_beside_its_baseline(cli: Cli, fill_run: FillRun) -> None:
    counts = {"n_expected": 1, "n_completed": 1, "n_error": 0, "n_skipped": 0}
    metric = {"id": "says_so", "value": 0.25, "low": 0.1, "high": 0.4, **counts}
    change = {"id": "says_so", "value": 0.25, "baseline": 0.75, "difference": -0.5}
    baseline = {"run_id": "cafe1234" * 4, "outcome": "pass", "worsened": True, "metrics": [change]}
    verdict = {"gate": "Every check must pass.", "reasons": ["because"], "warnings": [], "baseline": baseline}
    fill_run([("bad", Output(value="no"), check(False))], verdict=verdict, metrics=[metric])
    shown = cli("show").stdout
    assert "baseline: pass in run cafe1234: the outcome has worsened" in shown
    (row,) = (line.split() for line in shown.splitlines() if line.startswith("says_so") and "0.25" in line)
    assert row[-2:] == ["0.75", "-0.5"]
    assert json.loads(cli("show", "--json").stdout)["metadata"]["verdict"]["baseline"] == baseline


def test_slices_are_a_table(cli: Cli, fill_run: FillRun) -> None:
    counts = {"n_expected": 9, "n_completed": 8, "n_error": 1, "n_skipped": 0}
    figures = {"metric": "acc", "by": "[topic]", "value": 0.25, "low": 0.1, "high": 0.4, **counts}
    slices = [{**figures, "slice": f"t{n}", "threshold": 0.5, "outcome": "fail"} for n in range(30)]
    slices.append({**figures, "slice": "small"})
    verdict = {"gate": "x", "reasons": ["because"], "slices": slices}
    fill_run([("bad", Output(value="no"), check(False))], verdict=verdict)
    shown = cli("show").stdout
    assert "[topic]" in shown
    (row,) = (line.split() for line in shown.splitlines() if line.startswith("t29"))
    assert row == ["t29", "acc", "0.25", "0.1", "to", "0.4", "8", "of", "9", "1", "0.5", "fail"]
    assert "small" not in shown
    assert "... and 1 more (--json)" in shown
    fill_run([("bad", Output(value="no"), check(False))], verdict={**verdict, "slices": slices[-1:]})
    (row,) = (line.split() for line in cli("show").stdout.splitlines() if line.startswith("small"))
    assert row[-2:] == ["·", "·"]


def test_a_share_by_a_judge_is_shown_corrected(cli: Cli, fill_run: FillRun) -> None:
    counts = {"n_expected": 1, "n_completed": 1, "n_error": 0, "n_skipped": 0}
    metric = {"id": "judged", "value": 0.9, "low": 0.8, "high": 0.95, **counts}
    corrected = {"value": 0.8, "low": 0.7, "high": 0.85, "method": "mover"}
    metrics = [
        {**metric, "corrected": corrected},
        {**metric, "id": "other"},
        {**metric, "id": "chance", "corrected": {}},
    ]
    fill_run([("bad", Output(value="no"), check(False))], metrics=metrics)
    shown = cli("show").stdout
    assert "corrected for the judge" in shown
    rows = {line.split()[0]: line.split() for line in shown.splitlines() if "0.95" in line}
    assert rows["judged"][-4:] == ["0.8", "(0.7", "to", "0.85)"]
    assert rows["other"][-1] == rows["chance"][-1] == "·"


def test_a_run_without_a_verdict_shows_what_is_there(cli: Cli, store: Store) -> None:
    says_so = {"id": "says_so", "type": "contains", "arguments": {"text": "$.output.value", "phrases": ["yes"]}}
    suite = {"name": "stopped", "checks": [says_so]}
    cases = [TestCase(id="good", input=1), TestCase(id="later", input=2)]
    store.create_run(NewRun("abcd1234", "stopped", suite, None, 1), cases)
    store.acquire_lease("abcd1234", "me", 60)
    result = check(True)
    store.write(
        "abcd1234",
        [NewOutput(0, 0, "a" * 64, Output(value="yes"))],
        [NewCheckResult(0, 0, "says_so", "b" * 64, result, True)],
    )
    under_way = cli("show").stdout
    assert " s so far" in under_way
    assert "1 of 2 calls" in under_way
    assert "RUNNING  no verdict yet, the numbers are of what is there" in under_way

    store.finish("abcd1234", "me", "cancelled")
    shown = cli("show").stdout
    assert "CANCELLED  no verdict yet, the numbers are of what is there" in shown
    (row,) = (line for line in shown.splitlines() if line.startswith("says_so") and " of 2 " in line)
    assert "0.09453 to 1" in row, "what is missing may fail"


def test_a_run_whose_process_has_gone_is_listed_as_interrupted(cli: Cli, store: Store) -> None:
    store.create_run(NewRun(id="abcd1234", name="gone", suite={}, suite_path=None, repeats=1), [])
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        owner = f"{os.uname().nodename}/{process.pid}/x"
        store.acquire_lease("abcd1234", owner, 1000)
        assert "running" in cli("list").stdout
        process.kill()
    assert "interrupted" in cli("list").stdout
    assert "fepflow run --resume abcd1234" in cli("show", "abcd").stdout


def test_a_closed_pipe_is_not_an_error(fill_run: FillRun, home: Path) -> None:
    for _ in range(3):
        fill_run([("good", Output(value="yes" * 50_000), check(True))])
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "surfaces.cli.main", "show", "--json"],
        env={**os.environ, "FEPFLOW_HOME": str(home / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""


def test_an_internal_error_is_one_line(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Path) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.delenv("FEPFLOW_DEBUG", raising=False)
    monkeypatch.setattr("surfaces.service.validate", broken)
    done = cli("validate", "suite.yaml")
    assert done.exit_code == 3
    assert done.stderr.startswith("error: ZeroDivisionError: division by zero\n")
    assert "FEPFLOW_DEBUG=1" in done.stderr


def test_a_stored_pytest_run_cannot_be_resumed(cli: Cli, store: Store) -> None:
    store.create_run(NewRun("a" * 32, "a test", {"target": {"pytest": "a test"}}, None, 1), [TestCase(id="a", input=1)])
    store.acquire_lease("a" * 32, "me", 60)
    store.finish("a" * 32, "me", "completed", outcome="pass")
    done = cli("run", "--resume", "latest")
    assert done.exit_code == 2
    assert "run pytest again" in done.stderr
    assert store.run("a" * 32).outcome == "pass"


def test_show_has_the_steps_of_a_scenario_that_broke_off_and_what_was_found_in_them(
    cli: Cli, fill_run: FillRun
) -> None:
    fill_run([("broken", BROKE_OFF, check(False, text="one")), ("fine", Output(value="yes"), check(True))])
    shown = cli("show", "latest", "--failed").output
    assert "broke off step 2 of 2: the agent exited with code 1" in shown
    assert 'output    {"steps": [{"public_output": "one"}]}' in shown
    assert "  failed    says_so" in shown
    assert "fine" not in shown.partition("broke off")[2]
