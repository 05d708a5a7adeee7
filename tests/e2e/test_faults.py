"""One run against an endpoint that does everything wrong: every case ends truthfully, and no secret gets out."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from jsonschema import Draft202012Validator

from tests.prefect_api import PrefectAPI

from .conftest import Stack, Workplace, wait_for
from .endpoint import serving

pytestmark = pytest.mark.e2e

SECRET = "Canary-7QxK2mVb93"

FAULTS = {
    "reset": ("connect", 2, "connection reset by"),
    "hang": ("timeout", 2, "no complete answer within 2 s"),
    "drip": ("timeout", 2, "no complete answer within 2 s"),
    "error": ("http_status", 2, "HTTP 500 Internal Server Error: out of order"),
    "html": ("malformed", 2, "the answer is HTML, but JSON is needed"),
    "truncated": ("malformed", 2, "the answer is not valid JSON"),
    "cut": ("connect", 2, "broke in the middle of the answer"),
    "huge": ("too_large", 1, "larger than 10,000,000 bytes"),
    "redirect": ("redirect", 1, "put the final address into the suite"),
    "echo-error": ("http_status", 1, "HTTP 403 Forbidden: no such tenant for Bearer ***"),
    "echo-redirect": ("redirect", 1, "redirects to ***.example.test:80; put the final address into the suite"),
}
"""What the endpoint does: the kind of error, how many calls are made, what the message says."""

ODD = [
    "with spaces",
    "日本語",
    "🙂",
    "a/b/../c",
    "{x}",
    "{label!r:>10}",
    "%s %(x)s",
    "$.x",
    "=1+1",
    "\u0001control\u0000",
    "two\nlines",
    "'; DROP TABLE run; --",
    "x" * 10_000,
]
"""Ids, and answers, that something on the way could trip over."""

INJECTION = "<img src=x onerror=alert(1)> | [click](javascript:alert(1)) **bold** `code`"

CASES: list[Any] = [
    *FAULTS,
    *ODD,
    {"id": "busy", "input": "busy", "expected": "patience"},
    {"id": "echo", "input": "echo", "expected": "something else"},
    {"id": "empty", "input": "", "expected": ""},
    {"id": "surrogate", "input": "lone \ud800", "expected": "lone"},
    {"id": INJECTION, "input": INJECTION, "expected": "harmless"},
]
WRONG = {"echo", "surrogate", INJECTION}


@dataclass
class Faulty:
    """The run, what its process said, and what Prefect's API says about it."""

    workplace: Workplace
    done: subprocess.CompletedProcess[str]
    asked: dict[str, int]
    prefect: PrefectAPI

    def filtered(self, what: str, **body: Any) -> list[dict[str, Any]]:
        """All objects of a kind that belong to the flow run."""
        by = {"id": {"any_": [self.workplace.record.flow_run_id]}}
        found = self.prefect.post(f"/{what}/filter", json={"flow_runs": by, **body})
        assert found.status_code == 200, found.text
        answer: list[dict[str, Any]] = found.json()
        return answer

    def report(self, extension: str) -> Path:
        return self.workplace.folder / f"report{extension}"


@pytest.fixture(scope="module")
def faulty(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    folder = tmp_path_factory.mktemp("faulty")
    with serving() as endpoint:
        env = {"AGENT_URL": endpoint.url, "FEPFLOW_STORE_URL": f"sqlite:///{folder / 'store.db'}"}
        workplace = Workplace(stack, folder, env)
        headers = {"Authorization": "Bearer ${AGENT_TOKEN}"}
        workplace.write_suite(
            CASES,
            name="Faults {x} <b>bold</b>",
            http={"headers": headers},
            target={"timeout": "2s"},
            tags=["faulty", "two words"],
            batch_size=1,
        )
        (folder / ".env").write_text(f"AGENT_TOKEN={SECRET}\n")
        outputs = [
            part for extension in (".json", ".jsonl", ".csv", ".xml") for part in ("-o", folder / f"report{extension}")
        ]
        done = workplace.run("--verbose", "--tag", "by-hand", "--env-file", folder / ".env", *outputs)
        yield Faulty(workplace, done, dict(endpoint.questions), stack.api)


def test_the_run_completes_and_does_not_pass(faulty: Faulty) -> None:
    assert faulty.done.returncode == 1
    assert faulty.workplace.record.status == "completed"
    assert faulty.workplace.record.outcome == "fail"
    assert len(faulty.workplace.results) == len(CASES)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_a_truthful_error_of_its_case(faulty: Faulty, fault: str) -> None:
    kind, calls, message = FAULTS[fault]
    result = faulty.workplace.results[fault]
    assert result.output is not None
    assert result.output.metadata is not None
    error = result.output.metadata["error"]
    assert result.output.value is None
    assert error["kind"] == kind
    assert message in error["message"]
    assert result.output.metadata["attempts"] == calls == faulty.asked[fault]
    assert [check.status for check in result.checks] == ["error"]
    assert result.checks[0].error is not None
    assert message in result.checks[0].error.message


def test_retry_after_is_honoured(faulty: Faulty) -> None:
    output = faulty.workplace.results["busy"].output
    assert output is not None
    assert output.metadata is not None
    assert output.value == "patience"
    assert [attempt["error"] is None for attempt in output.metadata["attempt_log"]] == [False, True]


@pytest.mark.parametrize("name", [*ODD, "empty"], ids=lambda name: ascii(name)[:20])
def test_odd_ids_and_answers_come_through_unchanged(faulty: Faulty, name: str) -> None:
    result = faulty.workplace.results[name]
    assert result.output is not None
    assert result.output.value == result.case.input
    assert [check.results for check in result.checks] == [{"passed": True}]


def test_the_secret_is_nowhere(faulty: Faulty) -> None:
    # Prefect writes its database some time after it has answered.
    wait_for(lambda: len(faulty.filtered("task_runs")) >= 2 * len(CASES), "the task runs in Prefect's database")
    server = faulty.workplace.stack.home / "fepflow"
    files = [path for folder in (faulty.workplace.folder, server) for path in folder.rglob("*") if path.is_file()]
    names = {path.name for path in files}
    assert {"store.db", "prefect.db", "server.log", "report.json", "report.xml"} <= names
    leaks = [path.name for path in files if SECRET.lower().encode() in path.read_bytes().lower()]
    assert leaks == [".env"], "the file in which it was written down, and no other"
    assert SECRET.lower() not in (faulty.done.stdout + faulty.done.stderr).lower()
    echoed = faulty.workplace.results["echo"].output
    assert echoed is not None
    assert echoed.value == "I was called with Bearer ***"


def test_the_flow_run_has_the_outcome(faulty: Faulty) -> None:
    flow_run = faulty.prefect.get(f"/flow_runs/{faulty.workplace.record.flow_run_id}").json()
    assert flow_run["name"] == "Faults {x} <b>bold</b> · fail"
    assert set(flow_run["tags"]) == {"faulty", "two words", "by-hand", "verdict:fail"}
    assert (flow_run["state"]["type"], flow_run["state"]["name"]) == ("FAILED", "Failed")
    assert flow_run["parameters"] == {
        "suite": str(faulty.workplace.suite),
        "run_id": faulty.workplace.record.id,
        "limit": None,
        "repeats": None,
        "cache": None,
    }


def test_task_runs_are_named_after_what_they_carry(faulty: Faulty) -> None:
    wait_for(lambda: len(faulty.filtered("task_runs")) >= 2 * len(CASES), "the task runs in Prefect's database")
    names = {run["name"] for run in faulty.filtered("task_runs")}
    assert {"plan", "call hang", "check hang", "call {x}", "call {label!r:>10}", "call 日本語", "decide"} <= names
    assert "call two lines" in names
    assert max(map(len, names)) < 100


def test_retries_and_failures_are_in_the_log(faulty: Faulty) -> None:
    by = {"flow_run_id": {"any_": [faulty.workplace.record.flow_run_id]}}

    def messages() -> str:
        found = faulty.prefect.post("/logs/filter", json={"logs": by, "limit": 200})
        return "\n".join(entry["message"] for entry in found.json())

    wait_for(lambda: "hang: no output: no complete answer" in messages(), "the last log entry")
    assert "error: attempt 1 failed, again in" in messages()
    assert "busy: attempt 1 failed, again in 1.0 s: HTTP 429 Too Many Requests" in messages()
    assert "error: no output: HTTP 500" in faulty.done.stderr, "--verbose shows them too"


def test_the_artifacts_exist_and_escape_text_of_agents(faulty: Faulty) -> None:
    artifacts = {artifact["key"]: artifact for artifact in faulty.filtered("artifacts")}
    part = "faults-x-b-bold-b"
    assert artifacts[f"verdict-{part}"]["data"].startswith(r"# FAIL: Faults \{x\} \<b\>bold\<\/b\>")
    rows = json.loads(artifacts[f"failed-cases-{part}"]["data"])
    assert len(rows) == len(FAULTS) + len(WRONG)
    injected = next(row for row in rows if "onerror" in row["case"])
    for cell in (injected["case"], injected["output"]):
        assert "<img" not in cell, "a character without width breaks what HTML would be"
        assert "](" not in cell
        assert "**" not in cell
        assert "`" not in cell


def test_an_event_has_the_verdict(faulty: Faulty) -> None:
    record = faulty.workplace.record

    def events() -> list[dict[str, Any]]:
        body = {"filter": {"event": {"name": ["fepflow.verdict.fail"]}}, "limit": 50}
        found: list[dict[str, Any]] = faulty.prefect.post("/events/filter", json=body).json()["events"]
        return [event for event in found if event["payload"]["run_id"] == record.id]

    wait_for(events, "the event")
    assert events()[0]["resource"]["prefect.resource.name"] == record.name


def test_the_json_report_follows_the_protocol(faulty: Faulty) -> None:
    schemas = Path(__file__).parents[1] / "conformance" / "fep_schemas.json"
    result = json.loads(faulty.report(".json").read_text(encoding="utf-8"))
    Draft202012Validator(json.loads(schemas.read_text(encoding="utf-8"))).validate(result)
    assert result["status"] == "completed", "the run was, whatever became of its cases"
    assert result["summary"]["total_test_cases"] == len(CASES)
    assert result["summary"]["error_test_cases"] == result["summary"]["error_checks"] == len(FAULTS)
    assert result["metadata"]["outcome"] == "fail"
    assert [metric["n_error"] for metric in result["metadata"]["metrics"]] == [len(FAULTS)]


def test_the_other_reports_hold_every_case(faulty: Faulty) -> None:
    lines = faulty.report(".jsonl").read_text(encoding="utf-8").splitlines()
    assert len([json.loads(line) for line in lines]) == len(CASES)

    with faulty.report(".csv").open(encoding="utf-8-sig", newline="") as file:
        rows = {row["test_case_id"]: row for row in csv.DictReader(file)}
    assert len(rows) == len(CASES)
    assert rows["'=1+1"]["output"] == "'=1+1"
    assert rows["hang"]["status"] == "error"

    root = ElementTree.parse(faulty.report(".xml")).getroot()
    suites = {suite.get("name"): suite for suite in root.findall("testsuite")}
    found = {
        name: tuple(len(suite.findall(f"testcase{kind}")) for kind in ("", "/error", "/failure", "/skipped"))
        for name, suite in suites.items()
    }
    assert found == {
        "verdict": (1, 0, 1, 0),
        "calls": (len(CASES), len(FAULTS), 0, 0),
        "check exact_match": (len(CASES), 0, len(WRONG), len(FAULTS)),
    }


def test_resuming_the_completed_run_retries_only_errors(faulty: Faulty) -> None:
    with serving() as other:
        again = faulty.workplace.fepflow(
            "run", "--resume", "latest", "--quiet", AGENT_URL=other.url, AGENT_TOKEN=SECRET
        )
        assert again.returncode == 1
        assert set(other.questions) == set(FAULTS)
    assert len(faulty.workplace.results) == len(CASES)
