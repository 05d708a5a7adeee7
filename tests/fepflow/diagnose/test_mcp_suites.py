"""Mistakes in suites with an MCP server, found without starting or calling it."""

from pathlib import Path

import pytest

from fepflow.diagnose.validate_suite import validate_suite
from fepflow.suite.models import ANSWERED

CASE = '{id: a, input: {tool: get_order, arguments: {order_id: "1"}}}'


def told(folder: Path, target: str, cases: str = f"[{CASE}]", checks: str = "[{type: declared}]") -> list[str]:
    path = folder / "suite.yaml"
    path.write_text(f"name: orders\ntarget:\n  mcp: {target}\ntest_cases: {cases}\nchecks: {checks}\n")
    return [f"{problem.severity}: {problem}".replace(f"{folder}/", "") for problem in validate_suite(path).problems]


def test_a_valid_suite_starts_nothing_and_has_the_check_that_no_tool_answered_with_an_error(tmp_path: Path) -> None:
    script = tmp_path / "server.sh"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    script.chmod(0o700)
    assert told(tmp_path, "{command: [./server.sh]}") == []
    assert validate_suite(tmp_path / "suite.yaml").loaded.section("checks")[-1] == ANSWERED
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("{}", "3: target.mcp: give command, a program to start, or url, the address of one that runs already"),
        (
            "{command: [sh], url: 'http://localhost/mcp'}",
            "3: target.mcp: give command, a program to start, or url, the address of one that runs already",
        ),
        ("{url: 'http://localhost/mcp', env: [HOME]}", "3: target.mcp: env has no meaning with url"),
        ("{command: [sh], headers: {}}", "3: target.mcp: headers has no meaning with command"),
        (
            "{command: [no-such-program]}",
            "3: target.mcp.command: the program no-such-program is not found in PATH (install it, or name its path)",
        ),
        ("{command: [sh], cwd: nowhere}", "3: target.mcp.cwd: nowhere is not a folder"),
        (
            "{command: [sh], args: [x]}",
            "3: target.mcp.args: args is not known here (it belongs into command, after the program)",
        ),
        (
            "{command: [sh], env: {TOKEN: abc}}",
            "3: target.mcp.env: must be a list (env lists names: the process gets those variables of fepflow's own "
            "environment)",
        ),
        (
            "{url: 'http://localhost/mcp', headers: {Authorization: Bearer abcdefgh}}",
            "3: target.mcp.headers.Authorization: a secret must not stand in the suite (write it as ${NAME})",
        ),
        ("{url: 'localhost/mcp'}", "3: target.mcp.url: "),
    ],
)
def test_mistakes_in_the_target_have_their_line(tmp_path: Path, target: str, sentence: str) -> None:
    problems = told(tmp_path, target)
    assert len(problems) == 1
    assert problems[0].startswith(f"error: suite.yaml:{sentence}")


def test_a_variable_that_is_not_set_is_a_warning(tmp_path: Path) -> None:
    message = "NOT_SET_ANYWHERE is not set in the environment, so the server does not get it"
    assert told(tmp_path, "{command: [sh], env: [NOT_SET_ANYWHERE]}") == [
        f"warning: suite.yaml:3: target.mcp.env[0]: {message} (export NOT_SET_ANYWHERE)"
    ]


@pytest.mark.parametrize(
    ("case_input", "sentence"),
    [
        ("'get_order'", "the input of an mcp test case is an object, {tool: NAME, arguments: {...}}"),
        ("{arguments: {}}", "the input has no tool: give a tool's name"),
        ("{tool: a, arguments: [1]}", "the input's arguments must be an object"),
        ("{tool: a, args: {}}", "the input has args, but the call of a tool has tool, arguments, is_error only"),
        ("{tool: a, is_error: maybe}", "the input's is_error is neither true nor false"),
    ],
)
def test_an_input_that_is_no_call_is_a_mistake_in_its_line(tmp_path: Path, case_input: str, sentence: str) -> None:
    advice = "write input: {tool: NAME, arguments: {...}}"
    cases = f"\n  - {CASE}\n  - {{id: b, input: {case_input}}}"
    assert told(tmp_path, "{command: [sh]}", cases) == [
        f"error: suite.yaml:6: test_cases[1].input: {sentence} ({advice})"
    ]


def test_a_conversation_with_a_server_is_one_mistake(tmp_path: Path) -> None:
    (problem,) = told(tmp_path, "{command: [sh]}", "[{id: a, turns: [x, y]}]")
    assert "a is a conversation: a target of the kind mcp holds no conversations" in problem


def test_an_input_in_a_file_has_the_line_of_its_record(tmp_path: Path) -> None:
    (tmp_path / "cases.jsonl").write_text('{"id": "a", "input": {"tool": "x"}}\n{"id": "b", "input": {}}\n')
    (problem,) = told(tmp_path, "{command: [sh]}", "cases.jsonl")
    assert problem.startswith("error: cases.jsonl:2: b.input: the input has no tool")


def test_without_checks_only_errors_of_tools_are_judged_which_is_a_warning(tmp_path: Path) -> None:
    (problem,) = told(tmp_path, "{command: [sh]}", checks="[]")
    assert "all that is judged is that no tool answers with an error" in problem


def test_an_id_of_a_check_of_fepflows_own_is_taken(tmp_path: Path) -> None:
    (problem,) = told(tmp_path, "{command: [sh]}", checks="[{id: answered, type: declared}]")
    assert "fepflow has its own check answered: that no tool answered with an error" in problem


def test_declared_needs_a_target_that_declares(tmp_path: Path) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(
        "name: a\ntarget: {http: {url: 'http://localhost'}}\ntest_cases: [{input: x}]\nchecks: [{type: declared}]"
    )
    (problem,) = validate_suite(path).errors
    assert str(problem).endswith(
        "declared reads what an MCP server declares, but the target is not an MCP server (use schema_validation)"
    )


@pytest.mark.parametrize(
    ("target", "what", "extra"),
    [
        ("{mcp: {command: [sh]}}", "a target that speaks MCP", "mcp"),
        ("{a2a: {card: 'http://localhost'}}", "a target that speaks A2A", "a2a"),
    ],
)
def test_a_missing_extra_is_a_mistake_in_its_line_beside_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, what: str, extra: str
) -> None:
    monkeypatch.setattr("fepflow.extras._is_there", lambda module: module != extra)
    path = tmp_path / "suite.yaml"
    path.write_text(f"name: a\ntarget: {target}\ntest_cases: [{CASE}]\nchecks: [{{type: declare}}]\n")
    told = {problem.path: str(problem) for problem in validate_suite(path).errors}
    assert "declare" in told["checks[0].type"]
    sentence = f'{what} needs {extra}, which is not installed here: pip install "fepflow[{extra}]"'
    assert told[f"target.{extra}"].endswith(f"suite.yaml:2: target.{extra}: {sentence}")
