"""Whole runs of recorded outputs whose scores look better than they show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Stack, Workplace

pytestmark = pytest.mark.e2e


def judged(stack: Stack, folder: Path, scores: list[float], metric: dict[str, Any], gate: str) -> tuple[int, str]:
    """Run a suite of recorded outputs with a score each; return the exit code and what the run printed."""
    rows = [{"id": f"q{number}", "value": "ok", "score": score} for number, score in enumerate(scores)]
    (folder / "outputs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "cases.jsonl").write_text(
        "".join(json.dumps({"id": row["id"], "input": row["id"]}) + "\n" for row in rows)
    )
    suite = {
        "name": "scores",
        "target": {"recorded": {"path": "outputs.jsonl", "metadata": {"score": "$.score"}}},
        "test_cases": "cases.jsonl",
        "checks": [{"type": "exact_match", "arguments": {"actual": "$.output.value", "expected": "ok"}}],
        "metrics": [{"id": "score", "value": "$.output.metadata.score", **metric}],
        "gate": json.loads(gate),
    }
    place = Workplace(stack, folder, {"FEPFLOW_STORE_URL": f"sqlite:///{folder / 'store.db'}"})
    place.suite.write_text(json.dumps(suite))
    done = place.run()
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.mark.battery
def test_a_mean_without_a_range_passes_by_no_number_of_good_scores(stack: Stack, tmp_path: Path) -> None:
    """Student's t calls this a pass, though an agent that is at 0.9 shows it in every fifth run."""
    scores = [0.97, 0.99] * 20
    code, printed = judged(stack, tmp_path, scores, {}, '{"min": {"score": 0.9}}')
    assert code == 4, printed
    assert "it is not known how large or small a single value can be" in printed
    assert "declare range: [least, most] of the metric" in printed


@pytest.mark.battery
def test_two_of_four_do_not_show_a_small_minimum(stack: Stack, tmp_path: Path) -> None:
    """Wilson's interval begins at 0.150036, and does so for one in nine agents that are at 0.15."""
    metric = {"aggregate": "rate", "at_least": 0.5}
    code, printed = judged(stack, tmp_path, [1, 1, 0, 0], metric, '{"min": {"score": 0.15}}')
    assert code == 4, printed
    assert "0.5 (95 % interval 0.06759 to 0.9324, n = 4) reaches the minimum of 0.15, but its interval" in printed


def test_good_scores_with_few_bad_ones_do_not_show_more_than_they_are(stack: Stack, tmp_path: Path) -> None:
    """Scores of 0.95, or 0 for one in nineteen, have a mean of 0.9: 4 % of samples of 60 have no zero, and passed."""
    code, printed = judged(stack, tmp_path, [0.95] * 60, {"range": [0, 1]}, '{"min": {"score": 0.9}}')
    assert code == 4, printed
    assert "reaches the minimum of 0.9, but its interval begins below" in printed


def test_a_report_of_scores_that_look_alike_does_not_pass_by_its_standard_error(stack: Stack, tmp_path: Path) -> None:
    """Value ± z standard errors is 0.9297 to 0.9308; that one score in thirty is 0, 35 of them do not rule out."""
    task = {"task_ref": "qa", "n_samples": {"original": 35, "effective": 35}}
    report = {"context": {}, "tasks": [task], "results": [{"acc": {"value": 0.9303, "stderr": 0.0003}}]}
    ranges = [{"impact": "severe", "max": 0.9}, {"impact": "low", "min": 0.9}]
    (tmp_path / "report.json").write_text(json.dumps(report))
    (tmp_path / "thresholds.json").write_text(json.dumps({"task": "qa", "thresholds": {"acc": ranges}}))
    place = Workplace(stack, tmp_path, {})
    done = place.fepflow("evalguard", "verdict", tmp_path / "report.json", "--thresholds", tmp_path / "thresholds.json")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "its interval reaches severe" in " ".join(done.stdout.split())
