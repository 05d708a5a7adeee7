"""An agent that calls tools, judged by what it called; and what failed becomes a file of test cases."""

from __future__ import annotations

import json

import pytest

from tests.conftest import free_port

from .conftest import Workplace

pytestmark = pytest.mark.e2e

AGENT = """
import json

WRONG = {"refund B200": ["refund", "lookup"], "refund C300": []}


def answer(question):
    order = question.split()[1]
    names = WRONG.get(question, ["lookup", "refund"])
    calls = [{"id": name, "type": "function", "function": {"name": name, "arguments": json.dumps({"order": order})}}
             for name in names]
    message = {"role": "assistant", "content": "Done.", **({"tool_calls": calls} if calls else {})}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
"""

SUITE = """
name: refunds
target: {python: "agent.py:answer"}
test_cases: FILE
checks:
  - type: tool_usage
    arguments:
      calls: $.output.value.choices[0].message.tool_calls
      expected: [lookup, {name: refund, arguments: {order: $.test_case.metadata.order}}]
      match: in_order
metrics: [{id: trajectory, check: tool_usage, value: $.score}]
"""


def test_trajectories_are_judged_and_failures_become_test_cases(workplace: Workplace) -> None:
    folder = workplace.folder
    (folder / "agent.py").write_text(AGENT, encoding="utf-8")
    cases = [{"id": f"c-{n}", "input": f"refund {n}", "metadata": {"order": n}} for n in ("A100", "B200", "C300")]
    (folder / "cases.jsonl").write_text("".join(f"{json.dumps(case)}\n" for case in cases), encoding="utf-8")
    for name, file in (("suite.yaml", "cases.jsonl"), ("again.yaml", "failed.jsonl")):
        (folder / name).write_text(SUITE.replace("FILE", file), encoding="utf-8")
    nowhere = f"http://127.0.0.1:{free_port()}"  # a collector that is away changes nothing
    done = workplace.run("-o", folder / "junit.xml", OTEL_EXPORTER_OTLP_ENDPOINT=nowhere)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("spans were not all exported to 127.0.0.1") == 1
    assert done.stderr.count("Transient error") == 1
    results = {name: result.checks[0].results for name, result in workplace.results.items()}
    assert [(results[f"c-{n}"]["passed"], results[f"c-{n}"]["score"]) for n in ("A100", "B200", "C300")] == [
        (True, 1.0),
        (False, 0.5),
        (False, 0.0),
    ]
    (metric,) = workplace.record.metrics
    assert (metric["id"], metric["value"]) == ("trajectory", 0.5)
    shown = workplace.fepflow("show", "--failed", "--no-pager").stdout
    assert "called refund, lookup; wanted lookup, then refund" in shown
    assert "called nothing; wanted lookup, then refund" in shown
    assert "wanted lookup, then refund" in (folder / "junit.xml").read_text(encoding="utf-8")
    added = workplace.fepflow("cases", "add", "latest", "--failed", "-o", folder / "failed.jsonl")
    assert "2 test cases added" in added.stdout, added.stderr
    again = workplace.fepflow("validate", folder / "again.yaml")
    assert "again.yaml is valid: 2 test cases" in again.stdout, again.stderr
