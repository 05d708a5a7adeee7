"""The gate of a pull request on GitHub, whole: the steps of action.yml, a baseline that travels, one comment."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.github_api import TOKEN, GitHubAPI, github_api, runner_environment

from .conftest import Stack, Workplace

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
ACTION = YAML(typ="safe").load((ROOT / "action.yml").read_text(encoding="utf-8"))
AGENT = """
WRONG = {wrong}

def answer(question):
    number = int(question.split()[-1])
    return "@octocat\\n```\\n</details><img src=x> I do not know" if number < WRONG else question
"""
SUITE = """
name: refunds
target: {python: agent.py:answer}
test_cases: cases.jsonl
checks:
  - {id: right, type: exact_match, arguments: {actual: $.output.value, expected: $.test_case.expected}}
gate: {regression: {margin: 0.1}}
"""


class Runner:
    """A machine of CI that is thrown away: a checkout, an empty store, and the steps of the action.

    `uses:` steps are not executed; `used` has their names and inputs.
    """

    def __init__(self, stack: Stack, folder: Path, api: GitHubAPI, event: str, wrong: int) -> None:
        self.folder, self.repository, self.temp = folder, folder / "repository", folder / "temp"
        for each in (self.repository, self.temp):
            each.mkdir(parents=True)
        rows = [json.dumps({"id": f"q{n}", "input": f"question {n}", "expected": f"question {n}"}) for n in range(80)]
        (self.repository / "cases.jsonl").write_text("\n".join(rows), encoding="utf-8")
        (self.repository / "suite.yaml").write_text(SUITE, encoding="utf-8")
        (self.repository / "agent.py").write_text(AGENT.replace("{wrong}", str(wrong)), encoding="utf-8")
        self.env = {
            **stack.env,
            "FEPFLOW_STORE_URL": f"sqlite:///{folder / 'store.db'}",
            "PATH": os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "GITHUB_WORKSPACE": str(self.repository),
            **runner_environment(folder / "runner", api, event),
        }
        # Nothing is downloaded or installed: fepflow is there, and only what pip is asked for is noted.
        python = folder / "python"
        python.write_text(f'#!/bin/sh\necho "$@" >> {folder}/pip.log\n', encoding="utf-8")
        python.chmod(0o700)
        stack.warm.install(folder)
        del self.env["GITHUB_TOKEN"]  # a step has it only if it is given
        self.used: dict[str, dict[str, str]] = {}
        self.steps: dict[str, dict[str, str]] = {}
        self.printed = ""

    def run_action(self, **inputs: str) -> int:
        """Runs the steps as GitHub does, and returns the exit code of the first that fails, else 0."""
        known = {name: str(each["default"]) for name, each in ACTION["inputs"].items()}
        assert inputs.keys() <= known.keys()
        known = {**known, "github-token": TOKEN, **inputs}
        failed = 0
        for step in ACTION["runs"]["steps"]:
            condition = str(step.get("if", "success()"))
            if "always()" not in condition:
                condition = f"success() && {condition}"
            if not self._is_true(condition, known, failed):
                continue
            if "uses" in step:
                assert re.search("@[0-9a-f]{40}$", step["uses"]), "an action that is not pinned"
                self.used[step["name"]] = {
                    name: self._filled(str(value), known) for name, value in step["with"].items()
                }
                continue
            code = self._run(step, known)
            failed = failed or code
        return failed

    def _run(self, step: dict[str, Any], inputs: dict[str, str]) -> int:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "an input in a script is code"
        script = self.folder / "script.sh"
        script.write_text(step["run"], encoding="utf-8")
        (self.folder / "runner" / "output").write_text("", encoding="utf-8")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.repository / self._filled(step.get("working-directory", "."), inputs),
            env={**self.env, **{name: self._filled(value, inputs) for name, value in step.get("env", {}).items()}},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        self.printed += done.stdout + done.stderr
        written = (self.folder / "runner" / "output").read_text(encoding="utf-8").splitlines()
        self.steps[step.get("id", "")] = dict(line.split("=", 1) for line in written)
        return done.returncode

    def _context(self, expression: str, inputs: dict[str, str]) -> str:
        name, _, rest = expression.partition(".")
        if name == "steps":
            step, _, output = rest.partition(".outputs.")
            return self.steps.get(step, {}).get(output, "")
        contexts = {"inputs": inputs, "github": {"action_path": str(ROOT)}, "runner": {"temp": str(self.temp)}}
        return contexts[name][rest]

    def _filled(self, text: str, inputs: dict[str, str]) -> str:
        return re.sub(r"\$\{\{ (\S+) \}\}", lambda match: self._context(match[1], inputs), text)

    def _is_true(self, condition: str, inputs: dict[str, str], failed: int) -> bool:
        python = re.sub(r"[a-z]+\.[\w.-]+", lambda match: repr(self._context(match[0], inputs)), condition)
        python = python.replace("always()", "True").replace("success()", str(not failed))
        return bool(eval(python.replace("&&", "and").replace("||", "or")))

    @property
    def outputs(self) -> dict[str, str]:
        return {name: self._filled(each["value"], {}) for name, each in ACTION["outputs"].items()}

    @property
    def summary(self) -> str:
        return (self.folder / "runner" / "summary.md").read_text(encoding="utf-8")


@pytest.fixture
def api() -> Iterator[GitHubAPI]:
    with github_api() as server:
        for number in range(120):
            server.add(f"talk {number}", "Codertocat")
        yield server


def test_the_page_about_ci_has_all_inputs_and_no_others() -> None:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    table = page.split("| input | default |")[1].split("\n\n")[0]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)) == set(ACTION["inputs"])
    for text in re.findall(r"```yaml[^\n]*\n(.*?)```", page, re.DOTALL):
        document = YAML().load(text)  # it knows tags of others, such as GitLab's `!reference`
        steps = document.get("steps") or document.get("jobs", {}).get("evals", {}).get("steps", [])
        for step in steps:
            if step.get("uses", "").startswith("OWNER/fepflow"):
                assert step["with"].keys() <= ACTION["inputs"].keys()


def ran_on_main(stack: Stack, tmp_path: Path, api: GitHubAPI) -> tuple[Runner, Path]:
    """A run on the main branch, and the baseline that it keeps."""
    main = Runner(stack, tmp_path / "main", api, "push", wrong=2)
    assert main.run_action(**{"save-baseline": "main", "inconclusive": "neutral"}) == 0, main.printed
    return main, Path(main.used["Keep the baseline"]["path"]) / "baseline.zip"


def test_a_pull_request_is_gated_on_the_baseline_of_main_with_one_comment(
    stack: Stack, tmp_path: Path, api: GitHubAPI
) -> None:
    main, baseline = ran_on_main(stack, tmp_path, api)
    assert main.outputs["outcome"] == "inconclusive"
    assert "nothing has passed" in main.summary
    assert "No comment: the event push is of no pull request" in main.printed
    kept = main.used["Keep the baseline"]
    assert (kept["name"], kept["path"]) == ("fepflow-baseline", str(main.temp / "fepflow-baseline"))
    with zipfile.ZipFile(baseline) as zipped:
        assert all(TOKEN.encode() not in zipped.read(name) for name in zipped.namelist())
    assert len(api.requests) == 0
    assert (main.folder / "pip.log").read_text().split() == f"-m pip install --quiet {ROOT}[serve]".split()

    first = Runner(stack, tmp_path / "first", api, "pull_request", wrong=30)
    assert first.run_action(baseline=str(baseline), arguments="-j 4 --tag 'two words'") == 1, first.printed
    assert first.outputs == {
        "outcome": "fail",
        "run-id": first.outputs["run-id"],
        "report": str(first.temp / "fepflow" / "report.html"),
    }
    for name in ("report.html", "junit.xml", "results.json"):
        assert (first.temp / "fepflow" / name).stat().st_size > 1_000, name
    assert first.used.keys() == {"Set up Python", "Keep the reports"}
    report = json.loads((first.temp / "fepflow" / "results.json").read_text(encoding="utf-8"))
    assert "two words" in report["metadata"]["tags"]
    (body,) = api.of_bot()
    assert "### FAIL: refunds" in body
    assert "**right\\: a difference of \\-0\\.35" in body
    assert "| right | 0.975 | 0.625 | -0.35 | -0." in body
    assert "Worse now: 5 of 28" in body
    assert "````text\n@octocat\n```\n</details><img src=x> I do not know\n````" in body
    assert body.split("\n", 1)[1] + "\n\n" == first.summary
    (annotation,) = [line for line in first.printed.splitlines() if line.startswith("::error ")]
    assert annotation.startswith("::error file=suite.yaml,title=fepflow::FAIL: refunds: right: a difference of -0.35")

    second = Runner(stack, tmp_path / "second", api, "pull_request", wrong=2)
    assert second.run_action(baseline=str(baseline)) == 0, second.printed
    assert (second.outputs["outcome"], len(api.of_bot())) == ("pass", 1)
    assert "### PASS: refunds" in api.of_bot()[0]
    assert api.requests[-1].startswith("PATCH ")

    for runner in (main, first, second):
        assert TOKEN not in runner.printed + runner.summary


@pytest.mark.battery
def test_suites_in_error_forks_and_wrong_inputs_are_told_from_a_fail(
    stack: Stack, tmp_path: Path, api: GitHubAPI
) -> None:
    _, baseline = ran_on_main(stack, tmp_path, api)
    second = Runner(stack, tmp_path / "second", api, "pull_request", wrong=2)
    assert second.run_action(baseline=str(baseline)) == 0, second.printed
    (second.repository / "suite.yaml").write_text("name: refunds\ntarget: {}\n", encoding="utf-8")
    assert second.run_action(baseline=str(baseline)) == 2
    assert second.outputs["outcome"] == "error"
    assert "### COULD NOT BE EVALUATED" in api.of_bot()[0]
    assert not (second.temp / "fepflow" / "report.html").exists(), "the report of a run before"

    api.refused, api.only_writes = "fork", True
    fork = Runner(stack, tmp_path / "fork", api, "pull_request", wrong=30)
    inputs = {"python-version": "", "inconclusive": "neutral", "arguments": "--failed-exit-code 4"}
    assert fork.run_action(baseline=str(baseline), **inputs) == 4, "a fail is not neutral, whatever its code"
    assert "Set up Python" not in fork.used
    assert "On a pull request of a fork the token can only read" in fork.printed
    assert "### FAIL: refunds" in fork.summary
    assert "### COULD NOT BE EVALUATED" in api.of_bot()[0]
    assert fork.run_action(arguments="-j 4 --tag don't --limit 3") == 2, "options would be left out"
    assert "has a quote that is not closed" in fork.printed
    assert fork.run_action(inconclusive="sometimes", version="1.2.0", extras="serve,mcp") == 2
    assert (fork.folder / "pip.log").read_text().endswith("--quiet fepflow[serve,mcp]==1.2.0\n")
    for runner in (second, fork):
        assert TOKEN not in runner.printed + runner.summary


def test_the_template_for_gitlab_runs_what_it_says(stack: Stack, tmp_path: Path, api: GitHubAPI) -> None:
    """Its script is executed as GitLab does, line by line in one shell, but for pip's."""
    job = YAML(typ="safe").load((ROOT / "deployments" / "ci" / "gitlab.yml").read_text(encoding="utf-8"))[".fepflow"]
    runner = Runner(stack, tmp_path / "gitlab", api, "push", wrong=0)
    variables = {**{name: str(value) for name, value in job["variables"].items()}, "EVAL_ARGUMENTS": "--first 12 -q"}
    commands = [line for line in job["before_script"] if not line.startswith("pip ")] + job["script"]
    assert len(commands) == len(job["before_script"]) + len(job["script"]) - 1
    env = {name: text for name, text in runner.env.items() if not name.startswith("GITHUB_")}
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", "\n".join(commands)],
        cwd=runner.repository,
        env={**env, **variables},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 4, done.stderr
    artifacts = job["artifacts"]
    for name in (*artifacts["paths"], artifacts["reports"]["junit"]):
        assert (runner.repository / name).stat().st_size > 500


def test_all_variants_of_a_suite_are_in_one_comment(workplace: Workplace, tmp_path: Path, api: GitHubAPI) -> None:
    variants = {"style": ["plain", "polite"]}
    workplace.write_suite(["a", "b", "c"], variants=variants, http={"headers": {"X-Style": "${variant.style}"}})
    environment = {**runner_environment(tmp_path / "runner", api), "FEPFLOW_LOG": "json"}
    done = workplace.run("--github", "--quiet", **environment)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if line.startswith("::notice ")], "no object of the log"
    (body,) = api.of_bot()
    assert body.count("### PASS: e2e \\[style\\=") == 2
    outputs = (tmp_path / "runner" / "output").read_text()
    assert "outcome=pass\n" in outputs
    assert re.search("^run-ids=[0-9a-f]{32} [0-9a-f]{32}$", outputs, re.MULTILINE), "each is to be a baseline"
