"""What a manifest becomes as a suite, and what is wrong with one that cannot become one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fepflow.suite.reader import is_manifest, load_suite

from .conftest import Read, told

V1 = """\
manifest_version: "v1"
name: Refunds
target: python3 agent.py
scenarios:
  - name: Eligible
    steps:
      - input: I want a refund.
        graders:
          - {type: text_match, condition: contains, value: order}
          - {type: text_match, field: evaluation_context, condition: regex, pattern: "^ask"}
          - {type: tool_usage, tool_name: lookup, arguments: {id: 7}}
      - input: It is A100.
  - name: Eligible
    steps: [{input: Hello}]
"""


def test_a_scenario_is_a_test_case_and_a_grader_a_check_of_its_step(read: Read) -> None:
    loaded = read(V1)
    assert loaded.problems == []
    assert loaded.suite is not None
    assert loaded.snapshot == {
        "name": "Refunds",
        "target": {
            "ecp": {"command": "python3 agent.py", "step_timeout": 30.0, "start_timeout": 30.0},
            "timeout": 120.0,
        },
        "test_cases": [
            {
                "id": "Eligible",
                "input": ["I want a refund.", "It is A100."],
                "checks": [
                    {
                        "id": "step-1-text_match",
                        "type": "text_match",
                        "arguments": {
                            "text": "$.output.value.steps[0].public_output",
                            "condition": "contains",
                            "value": "order",
                        },
                    },
                    {
                        "id": "step-1-text_match-2",
                        "type": "text_match",
                        "arguments": {
                            "text": "$.output.value.steps[0].evaluation_context",
                            "condition": "regex",
                            "pattern": "^ask",
                        },
                    },
                    {
                        "id": "step-1-tool_usage",
                        "type": "tool_usage",
                        "arguments": {
                            "calls": "$.output.value.steps[0].tool_calls",
                            "name": "lookup",
                            "arguments": {"id": 7},
                        },
                    },
                ],
            },
            {"id": "Eligible-2", "input": ["Hello"], "checks": []},
        ],
    }
    assert [check.id for check in loaded.suite.checks] == ["completed"]


@pytest.mark.parametrize(
    ("document", "is_one"),
    [
        ({"manifest_version": "v1"}, True),
        ({"scenarios": [], "target": "agent"}, True),
        ({"scenarios": [], "target": {"ecp": {"command": "agent"}}}, False),
        ({"name": "s", "target": {"http": {}}, "test_cases": []}, False),
        (["manifest_version"], False),
        (None, False),
    ],
)
def test_a_document_is_a_manifest_by_its_version_or_its_scenarios_and_target(document: Any, is_one: bool) -> None:
    assert is_manifest(document) is is_one


OLD = """\
manifest_version: 0.2
name: Refunds
owner: me
target: python3 agent.py
scenarios:
  - name: A
    tags: [a]
    steps:
      - input: a
        note: b
        graders:
          - {type: tool_usage, tool: lookup, args: {id: 7}, weight: 2}
"""


@pytest.mark.parametrize("version", ["manifest_version: 0.2\n", 'manifest_version: "0.2.3"\n', ""])
def test_older_manifests_are_read_leniently(read: Read, version: str) -> None:
    loaded = read(OLD.replace("manifest_version: 0.2\n", version))
    assert loaded.suite is not None
    (case,) = loaded.snapshot["test_cases"]
    assert case["checks"][0]["arguments"] == {
        "calls": "$.output.value.steps[0].tool_calls",
        "name": "lookup",
        "arguments": {"id": 7},
    }
    assert [problem.path for problem in loaded.problems] == [
        "owner",
        "scenarios[0].tags",
        "scenarios[0].steps[0].note",
        "scenarios[0].steps[0].graders[0].weight",
    ]
    assert {problem.severity for problem in loaded.problems} == {"warning"}


def test_in_v1_unknown_keys_are_errors_with_their_lines_and_what_was_meant(read: Read) -> None:
    loaded = read(OLD.replace("0.2", "v1"))
    assert loaded.suite is None
    assert [line.partition(" (")[0] for line in told(loaded)] == [
        "error 3: owner: owner is not known here",
        "error 7: scenarios[0].tags: tags is not known here",
        "error 10: scenarios[0].steps[0].note: note is not known here",
        "error 12: scenarios[0].steps[0].graders[0].tool: tool is not known here",
        "error 12: scenarios[0].steps[0].graders[0].args: args is not known here",
        "error 12: scenarios[0].steps[0].graders[0].weight: weight is not known here",
    ]
    assert told(loaded)[3].endswith("(did you mean tool_name?)")


MISTAKEN = """\
manifest_version: "v1"
name: 5
target: ""
require_capabilities: maybe
env: [A-B]
scenarios:
  - steps:
      - graders: [text]
      - input: 5
        graders:
          - {type: text_match}
          - {type: text_match, condition: equals}
          - {type: text_match, condition: regex, value: a}
          - {type: text_match, condition: starts_with, value: a}
          - {type: text_match, field: thoughts, condition: contains, value: a}
          - {type: text_match, condition: contains, value: 5}
          - {type: llm_judge, prompt: "  "}
          - {type: tool_usage, arguments: [a]}
          - {type: tool_usage, arguments: {a: ['\\$.b']}}
          - {condition: equals}
          - {type: rouge}
  - name: nothing
  - hello
  - {name: steps, steps: {input: a}}
"""

MISTAKES = """\
2: name: must be a text (put it in quotes)
3: target: must not be empty
4: require_capabilities: must be true or false or a list
5: env[0]: must be the name of an environment variable
7: scenarios[0]: name is missing (add it)
8: scenarios[0].steps[0]: input is missing (add it)
8: scenarios[0].steps[0].graders[0]: must be a mapping
9: scenarios[0].steps[1].input: must be a text (put it in quotes)
11: scenarios[0].steps[1].graders[0]: condition is missing: text_match needs it (add it)
12: scenarios[0].steps[1].graders[1]: value is missing: text_match needs it (add it)
13: scenarios[0].steps[1].graders[2]: pattern is missing: text_match needs it (add it)
14: scenarios[0].steps[1].graders[3].condition: must be one of 'contains', 'equals', 'does_not_contain' or 'regex'
15: scenarios[0].steps[1].graders[4].field: must be one of 'public_output', 'evaluation_context' or 'private_thought'
16: scenarios[0].steps[1].graders[5].value: must be a text (put it in quotes)
17: scenarios[0].steps[1].graders[6]: prompt is missing: llm_judge needs it (add it)
18: scenarios[0].steps[1].graders[7].arguments: must be a mapping
19: scenarios[0].steps[1].graders[8]: a text that starts with \\$. cannot be compared (use a regex)
20: scenarios[0].steps[1].graders[9]: type is missing (add it)
21: scenarios[0].steps[1].graders[10].type: must be one of 'text_match', 'llm_judge' or 'tool_usage'
22: scenarios[1]: has neither steps nor a dataset (add steps, each with an input)
23: scenarios[2]: must be a mapping
24: scenarios[3].steps: must be a list
""".splitlines()


def test_all_errors_are_told_at_once_with_their_lines(read: Read) -> None:
    loaded = read(MISTAKEN)
    assert loaded.suite is None
    assert sorted(told(loaded)) == sorted(f"error {line}" for line in MISTAKES)


@pytest.mark.parametrize("version", ["v2", "1.0", '"2024-01"', "[v1]"])
def test_an_unknown_version_is_an_error(read: Read, version: str) -> None:
    loaded = read(V1.replace('"v1"', version))
    assert loaded.suite is None
    (line,) = told(loaded)
    assert line.startswith("error 1: manifest_version: ")


def test_a_manifest_without_scenarios_has_nothing_to_run(read: Read) -> None:
    loaded = read('manifest_version: "v1"\nname: a\ntarget: agent\nscenarios: []\n')
    assert told(loaded) == ["error 4: scenarios: there are no scenarios (add one, with name and steps)"]


def test_what_is_not_looked_at_is_told(read: Read) -> None:
    step = "{input: a, constraints: {max: 1}, graders: [{type: text_match, condition: contains, value: a, prompt: b}]}"
    text = f'manifest_version: "v1"\nname: a\ntarget: agent\nscenarios:\n  - name: a\n    steps: [{step}]\n'
    loaded = read(text + "    dataset: {type: csv, source: none.csv}\n")
    assert loaded.suite is not None
    assert told(loaded) == [
        "warning 6: scenarios[0].steps[0].constraints: constraints are not looked at, as in ECP's own runtime",
        "warning 6: scenarios[0].steps[0].graders[0].prompt: prompt is not used by text_match graders",
        "warning 7: scenarios[0].dataset: is not read, as the scenario has steps",
    ]


@pytest.mark.parametrize(
    ("given", "required"),
    [("true", ["tool_calls", "evaluation_context"]), ("false", []), ("[usage, reset]", ["usage", "reset"])],
)
def test_capabilities_are_required_as_graders_need_them_or_by_name(read: Read, given: str, required: list[str]) -> None:
    loaded = read(V1.replace("scenarios:", f"require_capabilities: {given}\nscenarios:"))
    assert loaded.suite is not None
    assert loaded.suite.target.ecp is not None
    assert loaded.suite.target.ecp.require_capabilities == required


def test_a_grader_of_public_output_needs_no_capability(read: Read) -> None:
    text = V1.replace("scenarios:", "require_capabilities: true\nscenarios:").replace("field: evaluation_context, ", "")
    loaded = read(text.replace("          - {type: tool_usage, tool_name: lookup, arguments: {id: 7}}\n", ""))
    assert loaded.suite is not None
    assert loaded.suite.target.ecp is not None
    assert loaded.suite.target.ecp.require_capabilities == []


def test_json_is_a_manifest_too(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    scenarios = [{"name": "a", "steps": [{"input": "b"}]}]
    path.write_text(json.dumps({"manifest_version": "v1", "name": "a", "target": "agent", "scenarios": scenarios}))
    loaded = load_suite(path, {})
    assert loaded.suite is not None
    assert loaded.snapshot["test_cases"] == [{"id": "a", "input": ["b"], "checks": []}]
