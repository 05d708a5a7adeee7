"""A judge of several samples beside people's labels: a run of its own, and what is said of the judge from then on."""

import csv
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


PICKED = """
name: picked
target: {{recorded: {{path: outputs.jsonl, id: $.id}}}}
test_cases: cases.jsonl
checks:
  - type: llm_judge
    id: right
    arguments:
      prompt: "Is {{{{$.output.value}}}} right?"
      response_format: {{type: object, properties: {{passed: {{type: boolean}}}}, required: [passed]}}
      model_config: {{model: openai/stand-in}}
      provider_config: {{api_base: "{base}", api_key: "${{JUDGE_KEY}}"}}
gate: {{min: {{right: 0.3}}, judge: corrected}}
"""


def test_labels_picked_by_the_judges_verdict_pass_no_run_and_drawn_ones_decide(stack, tmp_path, model_server):
    """The judge passes half of the outputs, and of these a sixth is right: a twelfth of all, and 0.3 are asked for."""
    ids = [f"c{number}" for number in range(320)]
    outputs = [{"id": name, "value": f"the answer {name}"} for name in ids]
    (tmp_path / "outputs.jsonl").write_text("\n".join(map(json.dumps, outputs)), encoding="utf-8")
    cases = "\n".join(json.dumps({"id": name, "input": name}) for name in ids)
    (tmp_path / "cases.jsonl").write_text(cases, encoding="utf-8")
    suite, sheet, labels = tmp_path / "suite.yaml", tmp_path / "sheet.csv", tmp_path / "labels.csv"
    suite.write_text(PICKED.format(base=f"{model_server.address}/v1"), encoding="utf-8")
    env = {"JUDGE_KEY": "sk-any", "FEPFLOW_STORE_URL": f"sqlite:///{tmp_path / 'store.db'}"}

    assert stack.fepflow("run", suite, env=env).returncode == 4, "nothing is known of the judge"
    results = json.loads(stack.fepflow("show", "latest", "--json", env=env).stdout)["results"]
    verdicts = {
        result["execution_context"]["test_case"]["id"]: result["check_results"][0]["results"]["response"]["passed"]
        for result in results
    }
    passed, failed = ([name for name in ids if verdicts[name] is verdict] for verdict in (True, False))
    assert 130 < len(passed) < 190, "a coin's judge"
    right = set(passed[: len(passed) // 6])

    picked = [*(f"{name},yes" for name in passed[:20]), *(f"{name},no" for name in failed[:60])]
    labels.write_text("\n".join(["id,label", *picked]), encoding="utf-8")
    done = stack.fepflow("calibrate", suite, "--run", "latest", "--labels", labels, env=env)
    assert done.returncode == 0, done.stderr
    assert "The outputs were picked by hand, so the labels do not correct this run" in done.stdout

    again = stack.fepflow("run", suite, env=env)
    assert again.returncode == 4, again.stdout
    printed = " ".join(again.stdout.split())
    assert "the labels do not fit this run: the judge passed 0.25 of the labelled outputs, and 0." in printed
    assert "--sample 100 --labels FILE` draws outputs to label" in printed

    drawn = stack.fepflow("calibrate", suite, "--run", "latest", "--sample", "200", "--labels", sheet, env=env)
    assert drawn.returncode == 0, drawn.stderr
    rows = list(csv.DictReader(sheet.read_text(encoding="utf-8-sig").splitlines()))
    filled = [f"{row['id']},{'yes' if row['id'] in right else 'no'}" for row in rows]
    labels.write_text("\n".join(["id,label", *filled]), encoding="utf-8")
    done = stack.fepflow("calibrate", suite, "--run", "latest", "--labels", labels, env=env)
    assert "drawn from those that the judge passed and from those that it failed, so the labels correct" in done.stdout
    suite.write_text(suite.read_text(encoding="utf-8").replace(", judge: corrected", ""), encoding="utf-8")
    last = stack.fepflow("run", suite, env=env)
    assert last.returncode == 1, last.stdout
    assert "corrected for its judge's errors" in " ".join(last.stdout.split())
