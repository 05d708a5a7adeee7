"""Would I know why, without opening anything else? A run that fails in five ways, read as its user reads it."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fepflow.evalguard.report_reader import read_report

from .conftest import Workplace

pytestmark = pytest.mark.e2e

UNKNOWN = "There is no such order."
JUDGE = """\
from fepflow import BaseCheck, JSONPath, register


@register("tone")
class Tone(BaseCheck):
    text: str | JSONPath

    async def __call__(self):
        rude = "sorry" not in self.text
        return {"response": {"passed": not rude, "reason": "It does not say sorry." if rude else "Kind."}}
"""


class Desk(BaseHTTPRequestHandler):
    """An agent: of ten questions one is refused, four get no look-up, one a total that is a text."""

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["question"]
        last = int(question.split()[-1]) % 10
        calls = [] if last in (1, 2, 3, 4) else [{"name": "search", "arguments": {}}]
        text = "<b>\x1b[31mno</b>" if last == 8 else f"sorry, {UNKNOWN}"
        answer: dict[str, Any] = {"text": text, "total": "12 EUR" if last == 5 else 12, "calls": calls}
        body = json.dumps({"error": "invalid api key"} if last == 9 else {"answer": answer}).encode()
        self.send_response(401 if last == 9 else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def desk() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Desk) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/ask"
        server.shutdown()


CHECKS = [
    {"id": "looked_up", "type": "tool_usage", "arguments": {"calls": "$.output.value.calls", "order": ["search"]}},
    {
        "id": "shape",
        "type": "schema_validation",
        "arguments": {"data": "$.output.value", "schema": {"properties": {"total": {"type": "number"}}}},
    },
    {"id": "polite", "type": "tone", "arguments": {"text": "$.output.value.text"}},
]
LOOKED_UP = "16 × looked_up: missing: search"
CAUSES = [
    LOOKED_UP,
    '4 × HTTP 401 Unauthorized: {"error": "invalid api key"}',
    "4 × polite: reason: It does not say sorry.",
    "4 × shape: validation_errors: total: '12 EUR' is not of type 'number'",
]


@pytest.fixture
def suite(workplace: Workplace, desk: str) -> Workplace:
    (workplace.folder / "tone.py").write_text(JUDGE, encoding="utf-8")
    workplace.env["AGENT_URL"] = desk
    cases = [{"id": f"q-{n:03}", "input": f"where is {n}", "metadata": {"topic": "orders"}} for n in range(40)]
    workplace.write_suite(
        cases,
        target={"attempts": 1, "timeout": "30s"},
        checks=CHECKS,
        plugins=["./tone.py"],
        gate={"min": {"looked_up": 0.9, "shape": 0.5}},
    )
    return workplace


def test_a_failed_run_shows_its_causes(suite: Workplace, read_junit: Callable[[Path], Any]) -> None:
    reports = [suite.folder / name for name in ("r.xml", "r.csv", "r.json", "r.evalguard.yaml")]
    done = suite.run(*(word for path in reports for word in ("-o", path)))
    assert done.returncode == 1, done.stderr
    _reads_on_the_terminal(done.stdout)
    _reads_in_junit(read_junit(reports[0]))
    _reads_in_csv(reports[1])
    assert json.loads(reports[2].read_text(encoding="ascii"))["status"] == "completed"
    _reads_in_evalguard(reports[3])

    failed = suite.fepflow("show", "--failed")
    _reads_on_the_terminal(failed.stdout)
    blocks = failed.stdout.split("\nq-")[1:]
    assert len(blocks) == 20, "as many as the limit"
    decided = [block for block in blocks if "failed    looked_up" in block]
    assert decided == blocks[:16], "the cases that decided come first"
    assert "failed    looked_up: count: 0, missing: search" in blocks[0]
    assert "polite" not in blocks[0], "checks that passed are left out"
    assert "20 of 28 cases" in failed.stdout
    assert "\x1b" not in failed.stdout

    only = suite.fepflow("show", "--check", "shape", "--limit", "50").stdout
    assert only.count("failed    shape: validation_errors: total: '12 EUR' is not of type 'number'") == 4
    assert "failed    looked_up" not in only
    errors = suite.fepflow("show", "--errors").stdout
    assert errors.count("no output HTTP 401 Unauthorized") == 4
    assert "failed    " not in errors
    one = suite.fepflow("show", "--case", "q-000").stdout
    assert [word in one for word in ("looked_up", "shape", "polite")] == [True] * 3
    for option, wrong in (("--case", "q-0"), ("--check", "look_up")):
        missing = suite.fepflow("show", option, wrong)
        assert (missing.returncode, missing.stdout) == (2, "")
        assert "did you mean" in missing.stderr


def _reads_on_the_terminal(text: str) -> None:
    lines = [line.strip() for line in text.splitlines()]
    start = lines.index("What did not pass:")
    assert all(line.startswith(cause) for line, cause in zip(lines[start + 1 :], CAUSES, strict=False))
    (verdict,) = [line for line in lines if line.startswith("FAIL")]
    assert verdict.startswith("FAIL  looked_up: 0.5556 ")


def _reads_in_evalguard(path: Path) -> None:
    read = read_report(path)
    ((task, results),) = read.report.pairs()
    assert task.n_samples == {"original": 40, "effective": 40}
    assert results["looked_up"].value == pytest.approx(20 / 36)
    assert results["looked_up"].stderr == pytest.approx(0.084, abs=1e-3)
    assert task.metadata == {f"missing.{check['id']}": "4 of 40" for check in CHECKS}
    assert read.report.context is not None
    assert (read.report.context.model_source, read.report.context.model_name) == ("http", "${AGENT_URL}")


def _reads_in_junit(suites: dict[str, Any]) -> None:
    assert list(suites) == ["verdict", "calls", "check looked_up", "check shape", "check polite"]
    rules = suites["verdict"].outcomes
    assert [outcome for rule, outcome in rules.items() if rule.startswith("looked_up")] == ["failure"]
    assert LOOKED_UP in suites["verdict"].element.findtext("system-out")
    assert suites["calls"].counts["errors"] == 4
    assert "HTTP 401 Unauthorized" in suites["calls"].said("q-009")
    assert suites["check looked_up"].counts == {"tests": 40, "failures": 16, "errors": 0, "skipped": 4}
    said = suites["check looked_up"].said("q-001")
    assert said.startswith("count: 0, missing: search")
    assert 'input: "where is 1"' in said
    assert '"text": "sorry, There is no such order."' in said
    assert "failed, which the gate allows: reason: It does not say sorry." in suites["check polite"].said("q-008")


def _reads_in_csv(path: Path) -> None:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 120
    wrong = {(row["test_case_id"], row["check_id"]): row for row in rows if row["passed"] == "false"}
    assert len(wrong) == 24
    assert wrong["q-001", "looked_up"]["reason"].startswith("count: 0, missing: search")
    assert wrong["q-008", "polite"]["reason"].startswith("reason: It does not say sorry.")
    assert wrong["q-001", "looked_up"]["input"] == "where is 1"
    assert wrong["q-001", "looked_up"]["metadata"] == '{"topic": "orders"}'
    assert float(wrong["q-001", "looked_up"]["latency_ms"]) > 0
    refused = [row for row in rows if row["test_case_id"] == "q-009"]
    assert {row["status"] for row in refused} == {"error"}
    assert all("HTTP 401 Unauthorized" in row["error"] for row in refused)
    assert not [cell for row in rows for cell in row.values() if cell == "null"]


@pytest.mark.battery
def test_a_gate_that_passes_is_green_with_its_single_failures_visible(
    suite: Workplace, read_junit: Callable[[Path], Any]
) -> None:
    document = suite.suite.read_text(encoding="utf-8").replace("looked_up: 0.9", "looked_up: 0.2")
    suite.suite.write_text(document, encoding="utf-8")
    report = suite.folder / "r.xml"
    done = suite.run("-o", report)
    assert done.returncode == 0, done.stdout + done.stderr
    suites = read_junit(report)
    assert all(found.counts["failures"] == found.counts["errors"] == 0 for found in suites.values())
    assert (
        suites["check looked_up"].said("q-001").startswith("failed, which the gate allows: count: 0, missing: search")
    )

    quiet = suite.run("-q", "-o", report, "--overwrite", "--junit-failures", "checks")
    assert quiet.stdout.startswith("PASS  ")
    assert len(quiet.stdout.splitlines()) == 1
    assert read_junit(report)["check looked_up"].counts["failures"] == 16


@pytest.mark.battery
def test_a_report_that_is_lost_takes_neither_the_verdict_nor_the_others(suite: Workplace) -> None:
    folder = suite.folder / "gone"
    folder.mkdir()
    code = f"""\
import shutil, surfaces.service as s, surfaces.cli.main as m
execute = s.execute
s.execute = lambda *given: (execute(*given), shutil.rmtree({str(folder)!r}))[0]
m.main()
"""
    with suite.running("run", suite.suite, "-o", folder / "r.xml", "-o", suite.folder / "r.csv", code=code) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "r.xml cannot be written: No such file or directory; the run is in the store" in err
    assert (suite.folder / "r.csv").stat().st_size > 1_000
    assert "Traceback" not in err
    assert "r.csv" in out


def test_pytest_shows_the_same_causes(tmp_path: Path, desk: str) -> None:
    (tmp_path / "test_desk.py").write_text(
        f"""\
import json, urllib.request
from fepflow import Check, TestCase
from fepflow.pytest import evaluate

CASES = [TestCase(id=f"q-{{n}}", input=f"where is {{n}}") for n in range(10)]

@evaluate(CASES, [Check(**check) for check in {CHECKS[:2]!r}])
def test_desk(test_case):
    body = json.dumps({{"question": test_case.input}}).encode()
    with urllib.request.urlopen(urllib.request.Request({desk!r}, body)) as answer:
        return json.load(answer)["answer"]
""",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120)
    lines = [line.strip() for line in done.stdout.splitlines()]
    causes = lines[lines.index("Causes:") + 1 :][:3]
    assert causes[0] == "4 × looked_up: missing: search"
    assert causes[1].startswith("1 × HTTPError: HTTP Error 401: Unauthorized")
    assert causes[2] == "1 × shape: validation_errors: total: '12 EUR' is not of type 'number'"
