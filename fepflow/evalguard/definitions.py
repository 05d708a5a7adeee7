"""What is known of a task and its metrics beside its thresholds (EvalGuard 5 and 6.1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fepflow.errors import Problem
from fepflow.evalguard.impact import check_ranges
from fepflow.evalguard.loader import load_metrics, load_tasks
from fepflow.evalguard.models import Metric, Task, Thresholds


@dataclass(frozen=True)
class Definitions:
    """Tasks and metrics by id; empty where none are defined."""

    tasks: dict[str, Task] = field(default_factory=dict)
    metrics: dict[str, Metric] = field(default_factory=dict)

    def remarks(self, thresholds: Thresholds) -> list[Problem]:
        """Warnings about thresholds: ranges that surprise, and references that lead nowhere (EvalGuard 5.1)."""
        task = self.tasks.get(thresholds.task)
        remarks = []
        if self.tasks and task is None:
            remarks.append(_warning("task", f"there is no definition of the task {thresholds.task}"))
        for name, ranges in thresholds.thresholds.items():
            metric = self.metrics.get(name)
            if self.metrics and metric is None:
                remarks.append(_warning(f"thresholds.{name}", f"there is no definition of the metric {name}"))
            if task is not None and name not in task.metrics:
                remarks.append(_warning(f"thresholds.{name}", f"the task {task.id} does not list the metric {name}"))
            remarks += check_ranges(name, ranges, metric.direction if metric else None)
        return remarks


def definitions_near(thresholds: Path) -> Definitions:
    """The `tasks` and `metrics` folders beside the `thresholds` (or `policies`) folder that a path leads to or into.

    Raises InputError for definitions that are not valid.
    """
    if any((thresholds / name).is_dir() for name in ("thresholds", "policies")):
        root = thresholds
    else:
        root = thresholds.parent if thresholds.is_dir() else thresholds.parent.parent
    tasks = load_tasks(root) if (root / "tasks").is_dir() else {}
    metrics = load_metrics(root) if (root / "metrics").is_dir() else {}
    return Definitions(tasks, metrics)


def _warning(path: str, message: str) -> Problem:
    return Problem(message, path=path, severity="warning")
