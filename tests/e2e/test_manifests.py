"""ECP manifests as flow runs, against a real server."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from .conftest import Workplace

pytestmark = pytest.mark.e2e

SUPPORT = Path(__file__).parents[2] / "deployments" / "suites" / "support"


def test_manifests_of_both_kinds_are_run_to_a_verdict(workplace: Workplace) -> None:
    shutil.copytree(SUPPORT, workplace.folder, dirs_exist_ok=True)
    manifest = workplace.folder / "manifest.yaml"
    text = manifest.read_text(encoding="utf-8").replace("target: python3 ", f"target: {sys.executable} -I -S ")
    manifest.write_text(text, encoding="utf-8")
    done = workplace.fepflow("run", manifest, "-o", workplace.folder / "results.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert workplace.record.name == "Support desk"
    kept = workplace.results["The order is asked for, and kept in mind"]
    assert {check.check_id: check.passed for check in kept.checks} == dict.fromkeys(
        ("step-1-text_match", "step-2-text_match", "step-3-text_match", "step-3-tool_usage", "completed"), True
    )
    assert kept.output.metadata["agent"] == "support"
    whole = json.loads((workplace.folder / "results.json").read_text(encoding="utf-8"))
    assert (whole["metadata"]["outcome"], len(whole["results"])) == ("pass", 4)

    manifest.write_text(text.replace('manifest_version: "v1"\n', "owner: me\n").replace("value: Which", "value: What"))
    failed = workplace.fepflow("run", manifest, "--failed-exit-code", "2")
    assert failed.returncode == 2
    assert "FAIL  " in failed.stdout
    assert "owner is not known here" in failed.stderr
    asked = workplace.results["The order is asked for, and kept in mind"]
    assert [check.check_id for check in asked.checks if not check.passed] == ["step-1-text_match"]
    again = workplace.fepflow("run", "--resume", "latest", "--failed-exit-code", "5")
    assert again.returncode == 5


AGENT = """\
import json, sys, time
for line in sys.stdin:
    request = json.loads(line)
    text = request["params"].get("input", "")
    if text:
        print(text, file=open("asked", "a"))
    if text == "hang":
        time.sleep(1000)
    result = {"status": "done", "public_output": text} if text else {"name": "echo", "capabilities": {}}
    answer = {} if text == "mute" else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}), flush=True)
"""


def test_a_faulty_manifest_is_run_as_far_as_it_goes_and_each_agent_is_asked_once(workplace: Workplace) -> None:
    (workplace.folder / "agent.py").write_text(AGENT)
    hello = {"type": "text_match", "condition": "contains", "value": "hello"}
    bad = [{"type": "text_match", "condition": "regex", "pattern": "("}, {"type": "text_match", "value": "hello"}]
    steps = {"hello": [hello, *bad], "hang": [hello], "mute": [hello]}
    scenarios = [{"name": text, "steps": [{"input": text, "graders": graders}]} for text, graders in steps.items()]
    document = {"manifest_version": "v1", "name": "faulty", "target": f"{sys.executable} -I -S agent.py"}
    manifest = workplace.folder / "manifest.json"
    manifest.write_text(json.dumps({**document, "scenarios": scenarios}))
    assert workplace.fepflow("validate", manifest).returncode == 2
    done = workplace.fepflow("run", manifest, "--timeout", "6", "-o", workplace.folder / "results.json")
    assert done.returncode == 4, done.stdout + done.stderr
    assert done.stderr.count("error: ") == 2
    assert sorted((workplace.folder / "asked").read_text().split()) == ["hang", "hello", "mute"]
    whole = json.loads((workplace.folder / "results.json").read_text(encoding="utf-8"))
    checks = {row["execution_context"]["test_case"]["id"]: row["check_results"] for row in whole["results"]}
    assert [check["status"] for check in checks["hello"]] == ["completed", "error", "error", "completed"]
    assert "no answer within 6 s" in checks["hang"][0]["error"]["message"]
    assert "neither a result nor an error" in checks["mute"][0]["error"]["message"]
