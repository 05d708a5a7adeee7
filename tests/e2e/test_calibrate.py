"""A judge of several samples beside people's labels: a run of its own, and what is said of the judge from then on."""

import json

import pytest

pytestmark = pytest.mark.e2e

SUITE = """
name: calibrated
target: {{recorded: {{path: outputs.jsonl, id: $.id}}}}
test_cases: [{{id: a, input: 1}}, {{id: b, input: 2}}, {{id: c, input: 3}}, {{id: d, input: 4}}]
repeats: 2
checks:
  - type: llm_judge
    arguments:
      prompt: "Is {{{{$.output.value}}}} right?"
      response_format: {{type: object, properties: {{passed: {{type: boolean}}}}, required: [passed]}}
      samples: 3
      model_config: {{model: openai/stand-in}}
      provider_config: {{api_base: "{base}", api_key: "${{JUDGE_KEY}}"}}
"""


@pytest.mark.battery
def test_show_has_the_calibration_of_a_judge(stack, tmp_path, model_server):
    outputs = [{"id": name, "value": f"the answer {name}"} for name in "abcd"]
    (tmp_path / "outputs.jsonl").write_text("\n".join(map(json.dumps, outputs)), encoding="utf-8")
    (tmp_path / "labels.csv").write_text("id,label\na,yes\nc,no\nd,pass\n", encoding="utf-8")
    suite = tmp_path / "suite.yaml"
    suite.write_text(SUITE.format(base=f"{model_server.address}/v1"), encoding="utf-8")
    env = {"JUDGE_KEY": "sk-any", "FEPFLOW_STORE_URL": f"sqlite:///{tmp_path / 'store.db'}"}

    done = stack.fepflow("calibrate", suite, "--labels", tmp_path / "labels.csv", "--json", env=env)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["n"], told["missing"], told["tpr"]["n"], told["tnr"]["n"]) == (3, 0, 2, 1)
    assert told["model"] == "openai/stand-in"
    assert told["parameters"]["temperature"] == 1.0
    assert len(model_server.bodies) == 9, "three labelled cases, once, of three samples each"

    shown = stack.fepflow("show", "latest", "--json", env=env)
    report = json.loads(shown.stdout)
    assert report["evaluation_id"] == told["run_id"]
    assert [result["execution_context"]["test_case"]["id"] for result in report["results"]] == ["a", "c", "d"]
    (judge,) = report["metadata"]["judges"]
    assert judge["calibration"] == told
    assert (judge["samples"], judge["agreement"], judge["disputed"]) == (3, 1.0, 0)
    words = stack.fepflow("show", "latest", env=env).stdout
    assert "judge llm_judge (openai/stand-in): TPR " in words
    assert "its samples agree to 1.00, 0 of 3 verdicts disputed" in words

    again = stack.fepflow(
        "calibrate", suite, "--labels", tmp_path / "labels.csv", "--run", "latest", "--min-kappa", "1", env=env
    )
    assert again.returncode == (0 if told["kappa"]["value"] == 1 else 1), again.stderr
    assert len(model_server.bodies) == 9
    assert "n = 3 is small" in again.stdout
