"""EvalGuard: ten thousand reports read, validated, judged and imported; the CPU's time, as ratios to `json.loads`."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

from benchmarks.measuring import Line
from fepflow.evalguard.models import Thresholds
from fepflow.evalguard.report_reader import ReadReport, read_report
from fepflow.services.evalguard_reports import import_reports
from fepflow.store.store import Store
from fepflow.verdict.report import judge_report

REPORTS, TASKS, METRICS = 10_000, 3, 4
MAX_READ, MAX_JUDGED, MAX_IMPORTED = 10.0, 35.0, 30.0
"""Budgets, in times what `json.loads` takes for the same files. Judging is of twelve metrics, each with its reason."""


def evalguard() -> Iterator[Line]:
    """Results of lm-evaluation-harness, as large as those of a small run, against thresholds of every metric."""
    with TemporaryDirectory() as folder:
        paths = [_written(Path(folder, f"results_{number}.json"), number) for number in range(REPORTS)]
        bare = _seconds(lambda: [json.loads(path.read_bytes()) for path in paths])
        read: list[ReadReport] = []
        seconds = _seconds(lambda: read.extend(map(read_report, paths)))
        yield _line("read and validated", seconds, bare, MAX_READ)
        thresholds = _thresholds()
        outcomes: list[str] = []
        judged = _seconds(lambda: outcomes.extend(judge_report(each.report, thresholds).outcome for each in read))
        if set(outcomes) != {"pass", "fail", "inconclusive"}:
            raise SystemExit(f"outcomes are {set(outcomes)}: this measures something else")
        yield _line("judged", judged, bare, MAX_JUDGED)
        with Store.open(f"sqlite:///{folder}/store.db") as store:
            imported = _seconds(lambda: import_reports(store, [Path(folder)], lambda path, warnings: None))
        yield _line("read and imported", imported, bare, MAX_IMPORTED)


def _line(what: str, seconds: float, bare: float, budget: float) -> Line:
    times = seconds / bare
    figure = f"{seconds / REPORTS * 1000:.2f} ms of CPU a report, {times:.1f} times"
    return Line(
        f"{REPORTS:,} reports {what}",
        figure,
        f"{budget:g} times",
        times <= budget,
        f"json.loads {bare / REPORTS * 1000:.2f} ms",
    )


def _seconds(work: Callable[[], Any]) -> float:
    began = process_time()
    work()
    return process_time() - began


def _written(path: Path, number: int) -> Path:
    chance = random.Random(number)  # noqa: S311  # data of a benchmark
    results = {}
    for task in range(TASKS):
        metrics: dict[str, Any] = {"alias": f"task_{task}"}
        level = chance.choice([0.3, 0.5, 0.8])
        for metric in range(METRICS):
            metrics[f"metric_{metric},none"] = level + chance.uniform(0, 0.05)
            metrics[f"metric_{metric}_stderr,none"] = 0.01
        results[f"task_{task}"] = metrics
    config = {"dataset_path": "org/data", "output_type": "multiple_choice", "repeats": 1, "doc_to_text": "x" * 500}
    document = {
        "results": results,
        "configs": dict.fromkeys(results, config),
        "versions": dict.fromkeys(results, 1.0),
        "n-shot": dict.fromkeys(results, 0),
        "n-samples": {name: {"original": 800, "effective": 800} for name in results},
        "config": {"model": "hf", "model_args": f"pretrained=org/model-{number},dtype=auto"},
        "model_name": f"org/model-{number}",
        "model_source": "hf",
        "date": 1746085828.5 + number,
        "pretty_env_info": "y" * 4_000,
    }
    path.write_text(json.dumps(document, indent=2), encoding="utf-8")
    return path


def _thresholds() -> dict[str, Thresholds]:
    ranges = [{"impact": "severe", "max": 0.5}, {"impact": "low", "min": 0.5}]
    table = {f"metric_{metric}": ranges for metric in range(METRICS)}
    return {
        name: Thresholds.model_validate({"task": name, "thresholds": table})
        for name in (f"task_{task}" for task in range(TASKS))
    }
