"""A suite whose judge is a model, from the command line to the store."""

import json

import pytest

pytestmark = pytest.mark.e2e

CANARY = "sk-canary-77f0e2b9"
SUITE = """
name: judged
target: {{recorded: {{path: outputs.jsonl}}}}
test_cases:
  - {{id: a, input: "Capital of France?", expected: Paris}}
  - {{id: b, input: "Capital of Italy?", expected: Rome}}
checks:
  - type: llm_judge
    arguments:
      prompt: "Is {{{{$.output.value}}}} right? Expected is {{{{$.test_case.expected}}}}."
      response_format: {{type: object, properties: {{passed: {{type: boolean}}}}, required: [passed]}}
      model_config: {{model: openai/stand-in}}
      provider_config: &there {{api_base: "{base}", api_key: "${{JUDGE_KEY}}"}}
  - type: semantic_similarity
    arguments:
      text: $.output.value
      reference: $.test_case.expected
      threshold: {{min_value: 0.1}}
      model_config: {{model: openai/embedding}}
      provider_config: *there
gate: {{min: {{semantic_similarity: 0.0}}}}
"""


@pytest.fixture
def suite(tmp_path, model_server):
    outputs = [{"id": "a", "value": "Paris"}, {"id": "b", "value": "Rome"}]
    (tmp_path / "outputs.jsonl").write_text("\n".join(map(json.dumps, outputs)), encoding="utf-8")
    path = tmp_path / "suite.yaml"
    path.write_text(SUITE.format(base=f"{model_server.address}/v1"), encoding="utf-8")
    return path


def test_validate_names_the_variable_that_is_missing(stack, suite):
    done = stack.fepflow("validate", suite)
    assert done.returncode == 2
    assert "${JUDGE_KEY} is not set in the environment" in done.stdout + done.stderr


@pytest.mark.battery
def test_a_suite_runs_with_its_judge(stack, suite, model_server, tmp_path):
    env = {"JUDGE_KEY": CANARY}
    valid = stack.fepflow("validate", suite, env=env)
    assert valid.returncode == 0, valid.stdout + valid.stderr
    assert model_server.seen == []
    report = tmp_path / "results.json"
    done = stack.fepflow("run", suite, "--output", report, env=env)
    assert done.returncode in (0, 1, 4), done.stderr
    text = report.read_text(encoding="utf-8")
    results = [check for case in json.loads(text)["results"] for check in case["check_results"]]
    assert [check["status"] for check in results] == ["completed"] * 4, results
    assert {check["results"]["metadata"]["model"] for check in results} == {"openai/stand-in", "openai/embedding"}
    assert sum(path == "/v1/chat/completions" for path, _, _ in model_server.seen) == 2
    embedded = [text for body in model_server.bodies for text in body.get("input", ())]
    assert sorted(embedded) == ["Paris", "Rome"], "each text once, whoever compares it with what"
    assert all(headers["Authorization"] == f"Bearer {CANARY}" for _, headers, _ in model_server.seen)
    kept = b"".join(path.read_bytes() for path in (stack.home / "fepflow").rglob("*") if path.is_file())
    for place in (text, done.stdout, done.stderr, kept.decode("utf-8", "replace")):
        assert CANARY not in place
