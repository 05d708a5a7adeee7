"""A run as a report of EvalGuard's: valid, without secrets, and judged again as the run was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fepflow.cli.report_files import write_report
from fepflow.documents.loader import parse_document
from fepflow.evalguard.documents import validated
from fepflow.evalguard.models import Report
from fepflow.evalguard.report_reader import read_report
from fepflow.reports.evalguard import report_of_run
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from tests.fepflow.conftest import NASTY, Cli, FillRun

ACC = {
    "id": "acc", "check": "acc", "value": 0.9, "stderr": 0.03, "low": 0.8, "high": 0.95, "confidence": 0.95,
    "method": "wilson", "n_expected": 100, "n_completed": 100, "n_error": 0, "n_skipped": 0,
}  # fmt: skip
NONE = {
    **ACC,
    "id": "style",
    "value": None,
    "stderr": None,
    "n_completed": 0,
    "n_error": 100,
    "reason": "style: no value.",
}
LONE = {**ACC, "id": "one", "stderr": None, "n_completed": 99, "n_error": 1}


@pytest.fixture
def run(fill_run: FillRun) -> RunRecord:
    """A completed run of two cases with metrics, of which one has no value."""
    verdict = {"gate": "g", "reasons": ["because"], "warnings": [], "thresholds_digest": "d" * 64}
    return fill_run([("a", None, None), ("b", None, None)], metrics=[ACC, NONE, LONE], verdict=verdict)


def test_metrics_with_their_standard_errors_and_what_is_missing(run: RunRecord) -> None:
    report = report_of_run(run)
    assert report["results"] == [{"acc": {"value": 0.9, "stderr": 0.03}, "one": {"value": 0.9}}]
    assert report["tasks"] == [{
        "task_ref": "refunds", "repeats": 1, "n_samples": {"original": 2, "effective": 2},
        "metadata": {"missing.style": "100 of 100", "no_value.style": "style: no value.", "missing.one": "1 of 100"},
    }]  # fmt: skip


def test_context_and_metadata_say_what_was_evaluated(run: RunRecord) -> None:
    report = report_of_run(run)
    assert report["id"] == run.id
    assert report["metadata"] == {
        "evaluator": "fepflow", "suite": "refunds", "status": "completed", "outcome": "fail", "gate": "g",
        "thresholds_digest": "d" * 64, "cases_hash": run.cases_hash, "tags": "nightly",
    }  # fmt: skip
    assert run.completed_at is not None
    assert report["context"]["date"] == run.completed_at.timestamp()
    assert "version" in report["context"]["tools"]["fepflow"]


TARGETS: dict[str, tuple[Any, dict[str, str]]] = {
    "http": ({"http": {"url": "https://me:swordfish@bot.example.org/x?api_key=k3yk3y"}},
             {"model_name": "https://***@bot.example.org/x?api_key=***", "model_source": "http"}),
    "http, named": ({"http": {"url": "${URL}"}}, {"model_name": "${URL}", "model_source": "http"}),
    "python": ({"python": "agent.py:answer"}, {"model_name": "agent.py:answer", "model_source": "python"}),
    "python, in full": ({"python": {"function": "agent.py:answer", "isolate": "process"}},
                        {"model_name": "agent.py:answer", "model_source": "python"}),
    "ecp": ({"ecp": {"command": "./agent --token=swordfish"}}, {"model_name": "./agent", "model_source": "ecp"}),
    "ecp, a list": ({"ecp": {"command": ["./agent", "--x"]}}, {"model_name": "./agent", "model_source": "ecp"}),
    "recorded": ({"recorded": {"path": "out.jsonl"}}, {"model_name": "out.jsonl", "model_source": "recorded"}),
    "openai": ({"openai": {"model": "openai/gpt-5-mini", "api_key": "${KEY}"}},
               {"model_name": "openai/gpt-5-mini", "model_source": "openai"}),
    "a2a": ({"a2a": {"card": "https://u:pw@a.example.org/card.json"}},
            {"model_name": "https://***@a.example.org/card.json", "model_source": "a2a"}),
    "mcp": ({"mcp": {"command": ["./server", "--x"]}}, {"model_name": "./server", "model_source": "mcp"}),
    "none": (None, {}),
    "odd": ({"http": 1}, {}),
}  # fmt: skip


@pytest.mark.parametrize(("target", "expected"), TARGETS.values(), ids=list(TARGETS))
def test_a_target_is_named_without_credentials_and_arguments(run: RunRecord, target: Any, expected: Any) -> None:
    context = report_of_run(run.replaced(suite={"target": target}))["context"]
    assert {name: context[name] for name in ("model_name", "model_source") if name in context} == expected


def test_task_data_and_sample_are_the_suites(run: RunRecord) -> None:
    sample = {"sample": {"cases": 2, "of": 40, "seed": 1}}
    for test_cases in ("cases.jsonl", {"path": "cases.jsonl"}):
        other = run.replaced(suite={"task": "qa", "test_cases": test_cases}, options=sample)
        (task,) = report_of_run(other)["tasks"]
        assert (task["task_ref"], task["dataset_path"], task["n_samples"]) == (
            "qa", "cases.jsonl", {"original": 40, "effective": 2},
        )  # fmt: skip
    assert "a random sample of 2 of 40" in report_of_run(other)["metadata"]["sample"]


@pytest.mark.parametrize("name", ["r.evalguard.json", "r.evalguard.yaml", "r.EvalGuard.YML"])
def test_the_file_is_a_valid_report_with_what_the_store_has(
    store: Store, run: RunRecord, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    write_report(store, run, path)
    text = path.read_text(encoding="utf-8")
    document = json.loads(text) if name.endswith("json") else parse_document(text, name).data
    assert document == report_of_run(store.runs.get(run.id))
    definition, errors = validated(Report, document)
    assert (definition is not None, errors) == (True, [])


def test_whatever_a_suite_is_called_the_report_is_valid(store: Store, run: RunRecord, tmp_path: Path) -> None:
    for text in NASTY.values():
        path = tmp_path / "r.evalguard.yaml"
        write_report(store, run.replaced(name=text or "x", tags=[text]), path)
        assert read_report(path).warnings == []


def test_a_run_without_metrics_has_none(run: RunRecord, store: Store, tmp_path: Path) -> None:
    write_report(store, run.replaced(metrics=None, verdict=None, outcome=None), tmp_path / "r.evalguard.json")
    assert read_report(tmp_path / "r.evalguard.json").report.results == [{}]


def test_show_writes_it_and_it_is_judged_and_imported(cli: Cli, run: RunRecord, home: Path) -> None:
    ranges = "[{impact: severe, max: 0.7}, {impact: low, min: 0.7}]"
    (home / "refunds.yaml").write_text(f"task: refunds\nthresholds:\n  acc: {ranges}\n  style: {ranges}\n")
    assert cli("show", run.id, "-o", "r.evalguard.yaml").exit_code == 0
    done = cli("evalguard", "verdict", "r.evalguard.yaml", "--thresholds", "refunds.yaml")
    assert done.exit_code == 4
    assert (
        "refunds/style: no value (n = 0 of 2: 2 never came)" in done.stdout or "refunds/style: no value" in done.stdout
    )
    assert "refunds/acc   " in done.stdout
    assert cli("evalguard", "import", "r.evalguard.yaml").stdout == "1 report imported.\n"
    assert cli("evalguard", "export", run.id).stdout == (home / "r.evalguard.yaml").read_text()


def test_yaml_alone_is_no_format(cli: Cli, run: RunRecord) -> None:
    done = cli("show", run.id, "-o", "r.yaml")
    assert done.exit_code == 2
    assert "no report ends in .yaml; use .json, .jsonl, .csv, .parquet, .xml, .html, .evalguard.yaml" in done.stderr
