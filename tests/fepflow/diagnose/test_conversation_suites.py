"""Mistakes in suites with conversations, found without calling anything."""

import json
from pathlib import Path

import pytest

from fepflow.diagnose.validate_suite import validate_suite
from fepflow.protocol.test_case import TestCase
from fepflow.suite.models import COMPLETED

HTTP = "{http: {url: 'http://127.0.0.1:9/'}}"
CHECK = "{type: contains, arguments: {text: $.output.value, phrases: [a]}}"
TURNS = f"[{{id: a, turns: [Hi, {{input: Bye, checks: [{CHECK}]}}]}}]"


def told(folder: Path, cases: str, target: str = HTTP, more: str = "") -> list[str]:
    path = folder / "suite.yaml"
    path.write_text(f"name: talk\ntarget: {target}\ntest_cases: {cases}\n{more}\n", encoding="utf-8")
    return [f"{problem.severity}: {problem}".replace(f"{folder}/", "") for problem in validate_suite(path).problems]


@pytest.mark.parametrize(
    "target",
    [HTTP, "{openai: {model: m, base_url: 'http://127.0.0.1:9/v1'}}", "{python: {function: 'agent.py:answer'}}"],
)
def test_a_valid_suite_with_conversations_has_no_problem(tmp_path: Path, target: str) -> None:
    (tmp_path / "agent.py").write_text("def answer(messages):\n    return 'Hi'\n", encoding="utf-8")
    assert told(tmp_path, TURNS, target) == []


def test_a_valid_conversation_has_the_checks_of_its_turns_and_that_it_was_completed(tmp_path: Path) -> None:
    assert told(tmp_path, TURNS) == []
    (case,) = validate_suite(tmp_path / "suite.yaml").cases
    assert case.input == ["Hi", "Bye"]
    checks = [check.to_check() for check in case.checks or ()]
    assert [(check.id, check.turn) for check in checks] == [("turn-2-contains", 2), ("completed", None)]
    assert checks[-1] == COMPLETED
    (tmp_path / "cases.jsonl").write_text(case.model_dump_json(exclude={"input"}), encoding="utf-8")
    assert told(tmp_path, "cases.jsonl") == []
    assert list(validate_suite(tmp_path / "suite.yaml").cases) == [case]


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("{id: a, turns: []}", "test_cases[0].turns: must have at least 1 item"),
        ("{id: a, turns: [Hi], input: Hi}", "a test case has input or turns, not both"),
        ("{id: a, user: {goal: x}, input: Hi}", "a test case has input or user, not both"),
        ("{id: a, turns: [Hi], user: {goal: x}}", "a test case has turns or a user, not both"),
        (
            "{id: a, turns: [{input: Hi, check: []}]}",
            "test_cases[0].turns[0].check: check is not known here (did you mean checks?)",
        ),
        ("{id: a, turns: [{text: Hi}]}", "test_cases[0].turns[0].input: is missing"),
        ("{id: a, user: {persona: x}}", "test_cases[0].user.goal: is missing"),
        ("{id: a, user: {goal: x, max_turns: 0}}", "test_cases[0].user.max_turns: "),
        (
            "{id: a, user: {goal: x, turns: 3}}",
            "test_cases[0].user.turns: turns is not known here (did you mean max_turns?)",
        ),
        ("{id: a, conversation: [Hi]}", "it is turns"),
    ],
)
def test_mistakes_in_a_conversation_have_their_place(tmp_path: Path, case: str, sentence: str) -> None:
    problems = told(tmp_path, f"[{case}]", more=f"checks: [{CHECK}]\nuser: {{model_config: {{model: openai/gpt-4o}}}}")
    assert any(sentence in problem and "suite.yaml:3" in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("{http: {url: 'http://127.0.0.1:9/', body: {q: $.test_case.input}}}", "each turn would get the same request"),
        ("{http: {url: 'http://127.0.0.1:9/', method: GET}}", "a conversation needs a body"),
        ("{http: {url: 'http://127.0.0.1:9/', body: {q: $.turn.text}}}", "$.turn has no text"),
        ("{mcp: {url: 'http://127.0.0.1:9/'}}", "a target of the kind mcp holds no conversations"),
    ],
)
def test_a_target_that_holds_no_conversation_is_an_error(tmp_path: Path, target: str, sentence: str) -> None:
    problems = told(tmp_path, TURNS, target)
    assert any(sentence in problem for problem in problems), problems


def test_simulated_users_need_a_model_and_repeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    cases, check = (
        "[{id: a, user: {goal: x}}]",
        "checks: [{type: is_empty, arguments: {value: $.output.metadata.user}}]",
    )
    (problem,) = [problem for problem in told(tmp_path, cases, more=check) if problem.startswith("error")]
    assert "does not say which model plays them" in problem
    user = "user: {model_config: {model: openai/gpt-4o}}"
    (warning,) = told(tmp_path, cases, more=f"{check}\n{user}")
    assert warning.startswith("warning")
    assert "one conversation of a case shows little" in warning
    assert told(tmp_path, cases, more=f"{check}\n{user}\nrepeats: 3") == []
    wrong = told(tmp_path, cases, more=f"{check}\nrepeats: 3\nuser: {{model_config: {{model: openai/a, heat: 1}}}}")
    assert any("heat" in problem for problem in wrong)
    two = "[{id: a, user: {goal: x, model: openai/a}}, {id: b, user: {goal: x, model: openai/b}}]"
    secret = "user: {model_config: {model: openai/c}, provider_config: {api_key: sk-12345678901234567890}}"
    assert len(told(tmp_path, two, more=f"{check}\nrepeats: 3\n{secret}")) == 1


def test_a_shared_check_of_the_whole_value_is_warned_of(tmp_path: Path) -> None:
    (warning,) = told(tmp_path, TURNS, more=f"checks: [{CHECK}]")
    assert "$.output.value is an object with steps and messages" in warning
    assert told(tmp_path, TURNS, more=f"checks: [{CHECK[:-1]}, turn: 1}}]") == []
    (of_default,) = told(tmp_path, TURNS, more="checks: [{type: contains, phrases: a}]")
    assert "$.output.value.messages[-1].content is the last" in of_default
    assert told(tmp_path, TURNS, more="checks: [{type: json_diff, expected: {a: 1}}]") == []


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_check_with_the_id_of_fepflows_own_is_told_so(tmp_path: Path, is_shared: bool) -> None:
    check = f"checks: [{CHECK[:-1]}, id: completed, turn: 1}}]"
    shared, own = (check, "") if is_shared else ("checks: []", f", {check}")
    (problem,) = told(tmp_path, f"[{{id: a, turns: [Hi]{own}}}]", more=shared)
    assert "the check id completed appears twice (fepflow's own check has it: choose another id)" in problem


def cases_of(folder: Path, name: str, text: str, mapping: str = "") -> list[TestCase]:
    (folder / name).write_text(text, encoding="utf-8")
    problems = told(folder, f"{{path: {name}{mapping}}}", more=f"checks: [{CHECK[:-1]}, turn: 1}}]")
    assert not [problem for problem in problems if problem.startswith("error")], problems
    return list(validate_suite(folder / "suite.yaml").cases)


def test_data_files_have_conversations_too(tmp_path: Path) -> None:
    lines = [{"id": "a", "turns": ["Hi", "Bye"]}, {"id": "b", "input": "Hi", "user": "alice"}]
    conversation, single = cases_of(tmp_path, "cases.jsonl", "\n".join(map(json.dumps, lines)))
    assert (conversation.is_conversation, conversation.input) == (True, ["Hi", "Bye"])
    assert (single.is_conversation, single.metadata) == (False, {"user": "alice"})
    (from_cell,) = cases_of(tmp_path, "cases.csv", 'id,turns\na,"[""Hi"", ""Bye""]"\n')
    assert from_cell.input == ["Hi", "Bye"]
    (mapped,) = cases_of(tmp_path, "dialogs.jsonl", '{"dialog": ["Hi", "Bye"]}\n', ", turns: $.dialog")
    assert (mapped.input, mapped.is_conversation) == (["Hi", "Bye"], True)


def test_turns_that_are_no_list_are_an_error_where_nothing_else_is_said(tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text("id,turns,input\na,Hi; Bye,\nb,3,Hi\n", encoding="utf-8")
    (problem,) = [
        problem for problem in told(tmp_path, "cases.csv", more=f"checks: [{CHECK}]") if problem.startswith("error")
    ]
    assert "cases.csv:2: turns: a record without an input has turns that are not a list" in problem


def test_a_record_with_an_input_and_turns_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cases.jsonl").write_text('{"input": "Hi", "turns": ["Hi"]}\n', encoding="utf-8")
    problems = told(tmp_path, "cases.jsonl", more=f"checks: [{CHECK}]")
    assert any("cases.jsonl:1" in problem and "input or turns, not both" in problem for problem in problems), problems
