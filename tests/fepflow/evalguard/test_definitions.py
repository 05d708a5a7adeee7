"""What task and metric files say about thresholds; also on EvalGuard's own files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fepflow.evalguard.documents import Kind, load_thresholds
from fepflow.evalguard.models import Metric, Range, Task, Thresholds
from fepflow.evalguard.validation import Catalogue, catalogue_near, remarks

RISING = [Range(impact="low", min=0.5), Range(impact="severe", max=0.5)]
ACC = Metric(id="acc", name="acc", direction="higher_is_better")
QA = Task(id="qa", name="qa", metrics=["acc"])


BOTH: frozenset[Kind] = frozenset({"task", "metric"})


def messages(catalogue: Catalogue, task: str = "qa", metric: str = "acc") -> list[str]:
    return [remark.message for remark in remarks(Thresholds(task=task, thresholds={metric: RISING}), catalogue)]


def test_definitions_that_fit_need_no_remark() -> None:
    assert messages(Catalogue(BOTH, {"qa": QA}, {"acc": ACC})) == []


def test_without_definitions_there_is_nothing_to_refer_to() -> None:
    assert messages(Catalogue()) == []


def test_references_that_lead_nowhere() -> None:
    catalogue = Catalogue(BOTH, {"qa": QA}, {"acc": ACC})
    assert messages(catalogue, task="other") == ["there is no definition of the task other"]
    assert messages(catalogue, metric="f1") == [
        "there is no definition of the metric f1",
        "the task qa does not list the metric f1",
    ]


def test_ranges_against_the_metrics_direction() -> None:
    falling = Metric(id="acc", name="acc", direction="lower_is_better")
    (message,) = messages(Catalogue(BOTH, {"qa": QA}, {"acc": falling}))
    assert "lower_is_better" in message


@pytest.fixture
def config() -> Path:
    folder = os.environ.get("FEPFLOW_TEST_DATA")
    if not folder:
        pytest.skip("FEPFLOW_TEST_DATA names no folder with EvalGuard's files")
    return Path(folder) / "evalguard" / "config"


@pytest.mark.parametrize("part", [".", "thresholds", "thresholds/truthfulqa_mc1.yaml"])
def test_evalguards_own_files_from_wherever_one_points(config: Path, part: str) -> None:
    catalogue = catalogue_near(config / part)
    assert (len(catalogue.tasks), len(catalogue.metrics)) == (33, 30)
    thresholds = load_thresholds(config / part, "truthfulqa_mc1")
    assert [remark.message for remark in remarks(thresholds, catalogue)] == [
        "the task truthfulqa_mc1 does not list the metric acc_norm"
    ]
