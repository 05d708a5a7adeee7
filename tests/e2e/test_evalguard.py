"""A run as a report of EvalGuard's, and back: the report has the verdict that the run had, and no better one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fepflow.api.rest.evalguard import Catalogue, EvalguardApi
from fepflow.documents.loader import parse_document
from fepflow.errors import InputError
from fepflow.evalguard.documents import load_all_thresholds
from fepflow.evalguard.report_reader import read_report
from fepflow.store.store import Store
from fepflow.verdict.report import judge_report

from .conftest import Stack, Workplace
from .endpoint import serving

pytestmark = pytest.mark.e2e

THRESHOLDS = """
task: refunds
thresholds:
  acc:
    - {impact: low, min: 0.9}
    - {impact: moderate, min: 0.5, max: 0.9}
    - {impact: severe, max: 0.5}
"""
CODES = {"pass": 0, "fail": 1, "inconclusive": 4}
WRONG = {"pass": 0.01, "inconclusive": 0.06, "fail": 0.3}
"""The share of cases that an agent fails, by what a run of 100 comes to."""


@pytest.fixture(scope="module")
def runs(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A folder with `OUTCOME.evalguard.yaml` of a run for each outcome, and the thresholds in `config`."""
    folder = tmp_path_factory.mktemp("evalguard")
    (folder / "config" / "thresholds").mkdir(parents=True)
    (folder / "config" / "thresholds" / "refunds.yaml").write_text(THRESHOLDS, encoding="utf-8")
    with serving() as endpoint:
        place = Workplace(
            stack, folder, {"AGENT_URL": endpoint.url, "FEPFLOW_STORE_URL": f"sqlite:///{folder / 'store.db'}"}
        )
        sections = {"name": "refunds", "task": "refunds", "thresholds": "config", "metrics": [METRIC]}
        for outcome, wrong in WRONG.items():
            cases = [
                {
                    "id": str(number),
                    "input": f"yes {number}",
                    "expected": "no" if number < 100 * wrong else f"yes {number}",
                }
                for number in range(100)
            ]
            place.write_suite(cases, **sections)
            done = place.run("--quiet", "-o", folder / f"{outcome}.evalguard.yaml")
            assert done.returncode == CODES[outcome], done.stdout + done.stderr
    return place


METRIC = {"id": "acc", "check": "exact_match"}


def verdict(place: Workplace, report: Path, thresholds: Path | None = None) -> tuple[int, str]:
    done = place.fepflow("evalguard", "verdict", report, "--thresholds", thresholds or place.folder / "config")
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("outcome", WRONG)
def test_the_report_of_a_run_is_valid_and_has_its_verdict(runs: Workplace, outcome: str) -> None:
    report = runs.folder / f"{outcome}.evalguard.yaml"
    valid = runs.fepflow("evalguard", "validate", report)
    assert (valid.returncode, valid.stdout) == (0, "1 document: 0 errors, 0 warnings.\n")
    code, said = verdict(runs, report)
    assert (code, said.count(outcome.upper() + "  refunds/acc")) == (CODES[outcome], 1), said
    with Store.open(runs.env["FEPFLOW_STORE_URL"]) as store:
        metrics = store.runs.get(str(read_report(report).report.id)).metrics
    assert metrics is not None
    (metric,) = metrics
    assert f"{metric['low']:.4g} to {metric['high']:.4g}" in said, "the interval is the run's"


def test_the_api_serves_the_reports_that_were_written(runs: Workplace) -> None:
    written = [read_report(path).report.to_json() for path in runs.folder.glob("*.evalguard.yaml")]
    with Store.open(runs.env["FEPFLOW_STORE_URL"]) as store:
        api = EvalguardApi(Catalogue(runs.folder / "config"), store)
        served = api.reports(limit=20, offset=0, task_ref="refunds", metric="acc")
        (thresholds,) = api.thresholds(tasks="refunds")["thresholds"]
    assert served["pagination"]["total"] == len(WRONG)
    assert sorted(served["reports"], key=lambda each: each["id"]) == sorted(written, key=lambda each: each["id"])
    assert thresholds == parse_document(THRESHOLDS, "refunds.yaml").data


def outcome_of(report: Path, thresholds: Path) -> str:
    """As the command judges, without its process; "refused" if it would not."""
    try:
        return judge_report(read_report(report).report, load_all_thresholds(thresholds)).outcome
    except InputError:
        return "refused"


def better_value(text: str) -> str:
    return text.replace("value: 0.7\n", "value: 0.99\n")


def better_value_and_error(text: str) -> str:
    return better_value(text).replace("stderr: 0.04605", "stderr: 0.00995 # 0.04605")


def percentage(text: str) -> str:
    return text.replace("value: 0.7\n", "value: 99\n")


def no_error(text: str) -> str:
    return better_value(text).replace("      stderr:", "      # ")


def another_name(text: str) -> str:
    return text.replace("- acc:", "- accuracy:")


def another_task(text: str) -> str:
    return text.replace("task_ref: refunds", "task_ref: refund")


def no_results(text: str) -> str:
    return text[: text.index("results:")]


TAMPERED = [better_value, better_value_and_error, percentage, no_error, another_name, another_task, no_results]


@pytest.mark.parametrize("tamper", TAMPERED)
def test_a_report_that_was_tampered_with_does_not_pass(
    runs: Workplace, tmp_path: Path, tamper: Callable[[str], str]
) -> None:
    text = (runs.folder / "fail.evalguard.yaml").read_text(encoding="utf-8")
    other = tmp_path / "report.evalguard.yaml"
    other.write_text(tamper(text), encoding="utf-8")
    assert other.read_text(encoding="utf-8") != text
    assert outcome_of(other, runs.folder / "config") == "inconclusive"


CHANGES = {
    "another metric": ("acc:", "accuracy:"),
    "another task": ("task: refunds", "task: refund"),
    "no impact": ("impact: moderate, ", ""),
    "a gap": ("    - {impact: moderate, min: 0.5, max: 0.9}\n", ""),
    "a text for a number": ("min: 0.9", "min: zero"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_thresholds_that_were_tampered_with_pass_nothing(runs: Workplace, tmp_path: Path, change: str) -> None:
    changed = THRESHOLDS.replace(*CHANGES[change])
    assert changed != THRESHOLDS
    (tmp_path / "refunds.yaml").write_text(changed, encoding="utf-8")
    assert outcome_of(runs.folder / "fail.evalguard.yaml", tmp_path / "refunds.yaml") in ("inconclusive", "refused")


def test_lower_thresholds_than_the_runs_are_said(runs: Workplace, tmp_path: Path) -> None:
    (tmp_path / "refunds.yaml").write_text(THRESHOLDS.replace("0.9", "0.51"), encoding="utf-8")
    code, said = verdict(runs, runs.folder / "fail.evalguard.yaml", tmp_path / "refunds.yaml")
    assert code == 0
    assert "! The run itself was judged by other thresholds" in said
    assert "! The run itself has the verdict fail" in said


def test_reports_of_evalguards_repository_are_imported_and_judged(stack: Stack, workplace: Workplace) -> None:
    folder = os.environ.get("FEPFLOW_TEST_DATA")
    if not folder:
        pytest.skip("FEPFLOW_TEST_DATA names no folder with EvalGuard's files")
    data = Path(folder) / "evalguard"
    imported = workplace.fepflow("evalguard", "import", data / "reports")
    assert (imported.returncode, imported.stdout) == (0, "4 reports imported.\n")
    rows = [json.loads(line) for line in workplace.fepflow("evalguard", "list", "--json").stdout.splitlines()]
    ids = {row["model_name"]: row["id"] for row in rows}
    done = workplace.fepflow(
        "evalguard", "verdict", ids["microsoft/phi-2"][:8], "--thresholds", data / "config", "--task", "truthfulqa_mc1"
    )
    assert done.returncode == 1, done.stdout
    # 252 of 817: EvalGuard's own thresholds call less than 0.4 high.
    assert (
        "FAIL  truthfulqa_mc1/acc: 0.3084 (95 % interval 0.2777 to 0.3409, n = 817) has the impact high" in done.stdout
    )
