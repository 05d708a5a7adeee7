"""Reports on GitHub: what an answer may say, whom the comment is of, and what GitHub may refuse."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from fepflow.errors import InfrastructureError
from fepflow.protocol.test_case import Output
from fepflow.services.github import MAX_BODY, GitHubReport, comment, fenced
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from tests.fepflow.conftest import NASTY, Cli, FillRun, check
from tests.github_api import HEAD, REPOSITORY, TOKEN, GitHubAPI, github_api, runner_environment

pytestmark = pytest.mark.e2e

HOSTILE = {
    "mention": "@octocat and @org/team, see #12, GH-13 and https://evil.example",
    "fence": "```\n### PASS\n@octocat\n````text\n~~~",
    "html": "</details><img src=x onerror=alert(1)><!-- fepflow:0 -->",
    "command": "::error::owned\n::set-output name=outcome::pass\n##[error]owned",
    "table": "a | b\n|---|---|\n| 1 | 2 |",
    "many lines": "line\n" * 400,
    **NASTY,
}


@pytest.fixture(scope="module")
def server() -> Iterator[GitHubAPI]:
    with github_api() as api:
        yield api


@pytest.fixture
def api(server: GitHubAPI) -> GitHubAPI:
    server.comments.clear()
    server.requests.clear()
    server.refused, server.only_writes = None, False
    return server


@pytest.fixture
def failed(fill_run: FillRun) -> RunRecord:
    """A run whose hostile answers did not pass."""
    return fill_run(
        [(f"@case GH-12 {name}", Output(value=text), check(False, text=text)) for name, text in HOSTILE.items()]
    )


def reported(store: Store, run: RunRecord, env: dict[str, str]) -> list[str]:
    """The lines that the report of a run prints."""
    lines: list[str] = []
    report = GitHubReport(Path("suite.yaml"), lines.append, env)
    with report.watching():
        report.report(store, [run])
    assert TOKEN not in "\n".join(lines)
    assert lines[0].removeprefix("::stop-commands::") == lines[1].removeprefix("\n").strip(":"), "on a line of its own"
    return lines[2:]


def outside_of_fences(markdown: str) -> str:
    """The markdown that is rendered, by the rules of CommonMark for fences of backticks."""
    rendered, fence = [], ""
    for line in re.split("\r\n|\r|\n", markdown):
        opened = re.match(" {0,3}(`{3,})([^`]*)$", line)
        if fence:
            closed = re.fullmatch(" {0,3}(`{3,}) *", line)
            fence = "" if closed and len(closed[1]) >= len(fence) else fence
        elif opened:
            fence = opened[1]
        else:
            rendered.append(line)
    assert not fence
    return "\n".join(rendered)


def test_nothing_of_an_answer_takes_effect(store: Store, failed: RunRecord) -> None:
    text = comment(store, [failed], "fepflow")
    rendered = outside_of_fences(text)
    assert "Did not pass: " in rendered
    for active in (
        "@octocat",
        "@case",
        "GH\\-12",
        "<img",
        "</details><",
        "evil.example",
        "### PASS",
        "<!--",
        "::error",
    ):
        assert active not in rendered, active
    assert rendered.count("<details>") == rendered.count("</details>") == 1
    for said in HOSTILE.values():
        assert "octocat" not in outside_of_fences(fenced(said))
        assert outside_of_fences(fenced(said)) == ""
    assert len(fenced("x" * 10**6)) < 1_000
    text.encode()  # no half of a surrogate pair
    many = comment(store, [failed] * 60, "fepflow")
    assert many.count("### ") == 60
    assert len(many) <= MAX_BODY + 2_000


def test_one_comment_is_edited_and_those_of_strangers_are_left(
    store: Store, failed: RunRecord, api: GitHubAPI, tmp_path: Path
) -> None:
    env = runner_environment(tmp_path / "runner", api)
    for number in range(250):
        api.add(f"talk {number}", "Codertocat")
    lines = reported(store, failed, env)
    (level,) = [line for line in lines if line.startswith("::error file=suite.yaml,title=fepflow::FAIL: refunds")]
    assert "\n" not in level
    (body,) = api.of_bot()
    marker = body.split("\n")[0]
    assert re.fullmatch("<!-- fepflow:[0-9a-f]{32} run:1658821493 -->", marker)
    assert f"commit `{HEAD[:8]}` · [job](https://github.com/{REPOSITORY}/actions/runs/1658821493)" in body
    assert (tmp_path / "runner" / "summary.md").read_text() == body.removeprefix(f"{marker}\n") + "\n\n"
    assert (tmp_path / "runner" / "output").read_text() == f"outcome=fail\nrun-id={failed.id}\nrun-ids={failed.id}\n"

    api.add(f"{marker}\nmine", "stranger")
    api.comments.insert(0, api.comments.pop())
    api.requests.clear()
    reported(store, failed, runner_environment(tmp_path / "runner", api, "issue_comment"))
    assert [each.split()[0] for each in api.requests] == ["GET", "GET", "GET", "PATCH"]
    assert len(api.of_bot()) == 1
    assert api.comments[0]["body"] == f"{marker}\nmine"

    (newest,) = api.of_bot()
    lines = reported(store, failed, {**env, "GITHUB_RUN_ID": "999999999"})
    assert "No comment: the one that is there is of a newer run of the workflow" in lines[-1], "an older push, late"
    assert api.of_bot() == [newest]
    reported(store, failed, {**env, "GITHUB_RUN_ID": "10000000000"})
    assert [each.split("\n")[0] for each in api.of_bot()] == [marker.replace("1658821493", "10000000000")]


REFUSED = {
    "fork": "may not write comments here (403: Resource not accessible by integration)",
    "hidden": "may not write comments here (404: Not Found)",
    "bad token": "may not write comments here (401: Bad credentials)",
    "locked": "(403: Unable to create comment because issue is locked.)",
    "rate": "GitHub's rate limit is reached until 10:00 UTC (403: API rate limit exceeded)",
    "secondary": "GitHub's rate limit is reached (429: You have exceeded a secondary rate limit)",
    "down": "GitHub's API refused it (503: Service unavailable)",
    "html": "GitHub's API refused it (502)",
}


@pytest.mark.parametrize("only_writes", [False, True])
@pytest.mark.parametrize("refused", REFUSED)
def test_what_github_refuses_is_a_notice(
    store: Store, failed: RunRecord, api: GitHubAPI, tmp_path: Path, refused: str, only_writes: bool
) -> None:
    api.refused, api.only_writes = refused, only_writes
    lines = reported(store, failed, runner_environment(tmp_path / "runner", api))
    (notice,) = [line for line in lines if line.startswith("::notice title=fepflow::No comment: ")]
    assert REFUSED[refused].replace("%", "%25") in notice
    assert "### FAIL: refunds" in (tmp_path / "runner" / "summary.md").read_text()
    assert api.comments == []


def test_where_no_comment_can_be_the_rest_is_written(
    store: Store, failed: RunRecord, api: GitHubAPI, tmp_path: Path
) -> None:
    def notice(env: dict[str, str]) -> str:
        (line,) = [each for each in reported(store, failed, env) if "notice" in each]
        return line

    folder = tmp_path / "runner"
    for event in ("push", "schedule"):
        assert f"the event {event} is of no pull request" in notice(runner_environment(folder, api, event))
    env = runner_environment(folder, api)
    assert "GITHUB_TOKEN is not set" in notice({**env, "GITHUB_TOKEN": ""})
    assert "GITHUB_REPOSITORY names no repository" in notice({**env, "GITHUB_REPOSITORY": "../../user"})
    assert "is of no pull request" in notice({**env, "GITHUB_EVENT_PATH": str(folder)})
    assert "did not answer" in notice({**env, "GITHUB_API_URL": "http://127.0.0.1:9"})
    assert "could not be reported" in notice({**env, "GITHUB_STEP_SUMMARY": str(folder)})
    api.refused = "page"
    assert "did not answer with JSON" in notice(env)
    assert api.comments == []
    lines: list[str] = []
    report = GitHubReport(Path("suite.yaml"), lines.append, {})
    with report.watching():
        report.report(store, [failed])
    assert [line.split(":")[0] for line in lines] == ["error", "notice"], "outside of GitHub they are plain lines"


def test_an_error_takes_the_place_of_the_verdict_before(
    store: Store, failed: RunRecord, api: GitHubAPI, tmp_path: Path
) -> None:
    """A comment that goes on to show an older pass would be a false one."""
    env = runner_environment(tmp_path / "runner", api)
    reported(store, failed, env)
    lines: list[str] = []
    with pytest.raises(InfrastructureError), GitHubReport(Path("suite.yaml"), lines.append, env).watching():
        raise InfrastructureError(f"the store is away\n::error::x {httpx.URL('http://a/?token=' + TOKEN)}")
    (body,) = api.of_bot()
    assert "### COULD NOT BE EVALUATED: suite\\.yaml" in body
    assert TOKEN not in body + "".join(lines)
    assert "the store is away" in body
    assert (tmp_path / "runner" / "output").read_text().endswith("outcome=error\n")


def test_a_suite_that_is_not_valid_is_said_where_its_verdict_would_be(
    cli: Cli, home: Path, api: GitHubAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in runner_environment(home / "runner", api).items():
        monkeypatch.setenv(name, value)
    (home / "suite.yaml").write_text("name: refunds\ntarget: {}\n", encoding="utf-8")
    done = cli("run", "--github")
    assert (done.exit_code, TOKEN in done.output) == (2, False)
    (body,) = api.of_bot()
    assert "### COULD NOT BE EVALUATED: suite\\.yaml" in body
    assert "suite.yaml:2" in body


@pytest.mark.parametrize("log", ["json", pytest.param("text", marks=pytest.mark.battery)])
def test_the_runner_takes_commands_again_whatever_stdout_and_the_log_are(
    home: Path, api: GitHubAPI, tmp_path: Path, log: str
) -> None:
    (home / "agent.py").write_text("print('::error::owned')\nraise ValueError('bad')\n", encoding="utf-8")
    (home / "suite.yaml").write_text("name: refunds\ntarget: {python: agent.py:answer}\n", encoding="utf-8")
    env = {**os.environ, **runner_environment(tmp_path, api), "FEPFLOW_LOG": log}
    command = [sys.executable, "-P", "-m", "fepflow.cli.main", "run", "--json", "--github"]
    done = subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, timeout=180, check=False)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    commands = [line for line in done.stderr.splitlines() if line.startswith("::")]
    assert commands[0].startswith("::stop-commands::")
    resumed = commands.index(f"::{commands[0].removeprefix('::stop-commands::')}::")
    assert [line.split()[0] for line in commands[resumed + 1 :]] == ["::error"]
    assert "COULD NOT BE EVALUATED" in commands[-1]
    if log == "json":
        assert [json.loads(line) for line in done.stderr.splitlines() if line and not line.startswith("::")]
