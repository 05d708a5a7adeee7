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
from fepflow.text import escape_markdown
from tests.pages_process import pages_process

from .browser import browsing
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
SENTENCE = "called nothing; wanted search"
RUDE = "It does not say sorry."
WRONG_TOTAL = "total: '12 EUR' is not of type 'number'"
LOOKED_UP = f"16 × looked_up: {SENTENCE}"
CAUSES = [
    (LOOKED_UP, "q-001, q-002, q-003, …: fepflow show {run} --check looked_up"),
    ('4 × HTTP 401 Unauthorized: {"error": "invalid api key"}', "q-009, q-019, q-029, …: fepflow show {run} --errors"),
    (f"4 × polite: {RUDE}", "q-008, q-018, q-028, …: fepflow show {run} --check polite"),
    (f"4 × shape: {WRONG_TOTAL}", "q-005, q-015, q-025, …: fepflow show {run} --check shape"),
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
    run_id = suite.record.id
    _reads_on_the_terminal(done.stdout, run_id)
    _reads_in_junit(read_junit(reports[0]))
    _reads_in_csv(reports[1])
    assert json.loads(reports[2].read_text(encoding="ascii"))["status"] == "completed"
    _reads_in_evalguard(reports[3])

    failed = suite.fepflow("show", "--failed")
    _reads_on_the_terminal(failed.stdout, run_id)
    blocks = failed.stdout.split("\nq-")[1:]
    assert len(blocks) == 20, "as many as the limit"
    decided = [block for block in blocks if "failed    looked_up" in block]
    assert decided == blocks[:16], "the cases that decided come first"
    assert f"failed    looked_up: {SENTENCE}\n" in blocks[0]
    assert "polite" not in blocks[0], "checks that passed are left out"
    assert "20 of 28 cases" in failed.stdout
    assert "\x1b" not in failed.stdout

    only = suite.fepflow("show", "--check", "shape", "--limit", "50").stdout
    assert only.count(f"failed    shape: {WRONG_TOTAL}\n") == 4
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
    _reads_in_prefect(suite)
    _reads_on_pages(suite)


def _reads_on_the_terminal(text: str, run_id: str) -> None:
    lines = [line.strip() for line in text.splitlines()]
    start = lines.index("What did not pass:") + 1
    for index, (cause, cases) in enumerate(CAUSES):
        assert lines[start + 2 * index].startswith(cause)
        assert lines[start + 2 * index + 1] == cases.format(run=run_id[:8])
    (verdict,) = [line for line in lines if line.startswith("FAIL")]
    assert verdict.startswith("FAIL  looked_up: 0.5556 ")


def _reads_in_prefect(suite: Workplace) -> None:
    body = {"flow_runs": {"id": {"any_": [suite.record.flow_run_id]}}}
    found = suite.stack.api.post("/artifacts/filter", json=body).raise_for_status().json()
    artifacts = {artifact["key"]: artifact["data"] for artifact in found}
    why = {(row["case"], row["check"]): row["why"] for row in json.loads(artifacts["failed-cases-e2e"])}
    assert (why["q-001", "looked_up"], why["q-008", "polite"]) == (SENTENCE, RUDE)
    assert why["q-005", "shape"] == WRONG_TOTAL
    page = artifacts["verdict-e2e"]
    assert f"- {escape_markdown(LOOKED_UP)} (q\\-001, q\\-002, q\\-003, …: " in page
    assert escape_markdown(f"fepflow show {suite.record.id[:8]} --check looked_up") in page
    assert f"- **q\\-001** · looked\\_up: {escape_markdown(SENTENCE)}\n" in page


def _reads_on_pages(suite: Workplace) -> None:
    home = suite.folder / "pages"
    home.mkdir()
    store = {"FEPFLOW_STORE_URL": suite.env["FEPFLOW_STORE_URL"]}
    with (
        pages_process(home, suite.stack.warm, **store) as address,
        browsing(address, suite.folder / "profile") as browser,
    ):
        browser.open(f"/runs/{suite.record.id}")
        browser.shows(LOOKED_UP, f"looked_up: {SENTENCE}")
        browser.follow("in the list of cases")
        browser.until(lambda text: "16 cases" in text, "the cases of the cause")
        browser.open(f"/runs/{suite.record.id}?show=failed&check=polite")
        browser.shows("4 cases", f"polite: {RUDE}")
        browser.follow("q-001")
        browser.shows("q-001", SENTENCE)


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
    assert said.startswith(f"{SENTENCE}\n{SENTENCE}\n")
    assert 'input: "where is 1"' in said
    assert '"text": "sorry, There is no such order."' in said
    assert f"failed, which the gate allows: {RUDE}" in suites["check polite"].said("q-008")


def _reads_in_csv(path: Path) -> None:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 120
    wrong = {(row["test_case_id"], row["check_id"]): row for row in rows if row["passed"] == "false"}
    assert len(wrong) == 24
    assert wrong["q-001", "looked_up"]["reason"] == SENTENCE
    assert wrong["q-008", "polite"]["reason"] == RUDE
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
    assert suites["check looked_up"].said("q-001").startswith(f"failed, which the gate allows: {SENTENCE}")

    quiet = suite.run("-q", "-o", report, "--overwrite", "--junit-failures", "checks")
    assert quiet.stdout.startswith("PASS  ")
    assert len(quiet.stdout.splitlines()) == 1
    assert read_junit(report)["check looked_up"].counts["failures"] == 16


@pytest.mark.battery
def test_a_report_that_is_lost_takes_neither_the_verdict_nor_the_others(suite: Workplace) -> None:
    folder = suite.folder / "gone"
    folder.mkdir()
    code = f"""\
import shutil, fepflow.services.run_service as s, fepflow.cli.main as m
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


@pytest.mark.battery
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
    assert causes[0] == f"4 × looked_up: {SENTENCE} (q-1, q-2, q-3, …)"
    assert causes[1].startswith("1 × HTTPError: HTTP Error 401: Unauthorized")
    assert causes[2] == f"1 × shape: {WRONG_TOTAL} (q-5)"
    assert f"looked_up: {SENTENCE}" in lines
